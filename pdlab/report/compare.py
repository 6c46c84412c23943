# SPDX-License-Identifier: Apache-2.0
"""`pdlab compare`: any runs side by side, as the same page that one run has."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ansible_collections.pdlab.pdlab.plugins.module_utils.text_file import replace_text

from pdlab.evidence.build import build_evidence
from pdlab.evidence.legs import Leg
from pdlab.evidence.model import Evidence
from pdlab.evidence.side_by_side import legs_side_by_side
from pdlab.file_errors import explain
from pdlab.report import html, read_samples
from pdlab.store import RunFolder, StoreError

# Where the page goes when nobody says.
PAGE = Path("comparison.html")
# More names than these would fill the page's title.
NAMED = 3


def compare(folders: Sequence[RunFolder], output: Path, *, anyway: bool = False) -> tuple[tuple[Leg, ...], Evidence]:
    """The legs of all runs and what they show together. `Evidence.refused` says why runs are unlike, unless `anyway`.

    Links of the page lead from where `output` will be to the runs.
    """
    here = output.absolute().parent
    legs = tuple(
        replace(leg, path=Path(os.path.relpath(leg.contents.path.absolute(), here)).as_posix())
        for leg in legs_side_by_side(folders)
    )
    return legs, build_evidence(legs, title(folders), allow_unlike=anyway)


def write_comparison(output: Path, legs: Sequence[Leg], evidence: Evidence) -> None:
    """Write the page of a comparison, whole or not at all. Raises StoreError when it cannot be written."""
    page = html.render(legs, evidence, samples=read_samples(legs, evidence), baselines=[])
    try:
        replace_text(str(output), page)
    except OSError as error:
        raise StoreError(explain("write", output, error)) from error


def title(folders: Sequence[RunFolder]) -> str:
    """The runs by name, each once; of many the first and how many more."""
    names = list(dict.fromkeys(folder.run_name for folder in folders))
    if len(names) <= NAMED:
        return " against ".join(names)
    return f"{names[0]} against {len(names) - 1} more"
