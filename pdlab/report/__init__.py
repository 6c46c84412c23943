# SPDX-License-Identifier: Apache-2.0
"""The report of a run: report.html in its folder, its section in findings.md one level up."""

from __future__ import annotations

from pathlib import Path

from pdlab.results import Report, build_report
from pdlab.store import RunFolder


def write_report(folder: RunFolder) -> tuple[Report, Path]:
    """Write report.html and the run's section of findings.md; safe to repeat. Returns the results and the page's path.

    Raises StoreError when either cannot be written.
    """
    # The charts' library takes a fifth of a second to load, which tables on a terminal can do without.
    from pdlab.report import html, markdown

    contents = folder.read()
    report = build_report(contents)
    path = folder.write_report(html.render(contents, report))
    markdown.write_section(folder.findings_path, folder.name, markdown.section(contents, report))
    return report, path
