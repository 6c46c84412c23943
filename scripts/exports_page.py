# SPDX-License-Identifier: Apache-2.0
"""The table of columns in docs/exports.md, from pdlab/export/columns.py.

python scripts/exports_page.py       write it
"""

from __future__ import annotations

import itertools
from pathlib import Path

from pdlab.export.columns import Column, columns

PAGE = Path(__file__).resolve().parents[1] / "docs" / "exports.md"
BEGIN, END = "<!-- columns: begin -->\n", "<!-- columns: end -->\n"


def page(text: str) -> str:
    """The page with the table as the columns are now."""
    head, _, rest = text.partition(BEGIN)
    _table, _, tail = rest.partition(END)
    return head + BEGIN + table() + END + tail


def table() -> str:
    """A row a column; one for all parts of a latency or spread that differ in nothing but their name."""
    rows = ["| column | type | unit | what it is |", "| --- | --- | --- | --- |"]
    for (_above, several), group in itertools.groupby(columns(), key=_together):
        found = list(group)
        if several:
            first = found[0].name.rpartition(".")[0]
            names = ", ".join([f"`{found[0].name}`", *(f"`.{one.name.rpartition('.')[2]}`" for one in found[1:])])
            said = found[0].words.partition(":")[0]
            kinds = ", ".join(dict.fromkeys(one.kind for one in found))
            units = ", ".join(dict.fromkeys(one.unit for one in found if one.unit))
            rows.append(f"| {names} | {kinds} | {units} | {said}{_samples(first)} |")
        else:
            rows += [f"| `{one.name}` | {one.kind} | {one.unit} | {one.words} |" for one in found]
    return "\n".join(rows) + "\n"


def _together(column: Column) -> tuple[str, bool]:
    """What is said once: the parts of a latency or spread, whose words differ after the colon alone."""
    above = column.name.rpartition(".")[0]
    several = bool(above) and above not in ("engine", "box", "client")
    return (above if several else column.name), several


def _samples(field: str) -> str:
    latency = field in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms")
    return ". p90 below 64 values, p95 below 130 and p99 below 662 are empty" if latency else ""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
