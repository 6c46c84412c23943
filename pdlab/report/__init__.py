# SPDX-License-Identifier: Apache-2.0
"""The report of a run: report.html in its folder, its section in findings.md one level up."""

from __future__ import annotations

from pathlib import Path

from pdlab.results import Report, build_report
from pdlab.store import RunContents, RunFolder


def write_report(folder: RunFolder) -> tuple[Report, Path]:
    """Write report.html and the run's section of findings.md; safe to repeat. Returns the results and the page's path.

    Raises StoreError when either cannot be written.
    """
    # The charts' library takes a fifth of a second to load, which tables on a terminal can do without.
    from pdlab.report import markdown

    # An ended run looks the same to every reader only when it is sealed.
    folder.seal_if_over()
    contents = folder.read()
    report = build_report(contents)
    path = folder.write_report(page(folder, contents))
    markdown.write_section(folder.findings_path, folder.name, markdown.section(contents, report))
    return report, path


def page(folder: RunFolder, contents: RunContents | None = None) -> str:
    """report.html as this pdlab makes it from the folder: the same text on every machine. Writes nothing."""
    from pdlab.report import html

    return html.render(contents or folder.read())
