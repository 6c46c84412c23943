# SPDX-License-Identifier: Apache-2.0
"""Write the part of docs/preflight.md that the table of rules decides: everything below the line MARK.

python scripts/preflight_page.py            write it
python scripts/preflight_page.py --check    write nothing, exit 1 when it differs
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules import GROUPS, Rule, public_cases

PAGE = Path(__file__).resolve().parent.parent / "docs" / "preflight.md"
MARK = "<!-- Below this line: written by scripts/preflight_page.py from the table of rules. Do not edit. -->\n"


def page(text: str) -> str:
    """The page with its lower part written anew. Raises ValueError when it has no MARK."""
    head, mark, _old = text.partition(MARK)
    if not mark:
        raise ValueError(f"docs/preflight.md has no line {MARK.strip()}")
    return head + MARK + "\n" + "\n".join([*overview(), *rules(), *cases()])


def overview() -> Iterator[str]:
    """All rules in one table, with links."""
    yield from ("## All rules", "", "| rule | severity | finds |", "| --- | --- | --- |")
    for group in GROUPS.values():
        for rule in group:
            yield row(f"[`{rule.id}`](#{rule.id})", rule.severity, rule.finds)
    yield ""


def rules() -> Iterator[str]:
    """Each rule in a section of its own; rows of one id share it."""
    for title, group in GROUPS.items():
        yield from (f"## {title}", "")
        for name, rows in groupby(group, key=lambda rule: rule.id):
            yield from (f"### `{name}`", "")
            yield from one_rule(list(rows))


def one_rule(rows: list[Rule]) -> Iterator[str]:
    """A rule's severities, what each finds, wants and cures, why, and its source."""
    for rule in rows:
        lesser = f" (**{rule.severity_when_unknown}** when unknown)" if rule.unknown else ""
        yield from (f"**{rule.severity}**{lesser}: {rule.finds}.", "")
        if isinstance(rule.wanted, str):
            yield f"- Wanted: {rule.wanted}"
        yield f"- Why: {rule.why}"
        yield f"- Do: {rule.documented_cure}"
        if rule.source:
            yield f"- Source: {rule.source}"
        yield ""


def cases() -> Iterator[str]:
    """Public reports and what finds each."""
    yield from (
        "## Public reports",
        "",
        "What others met, and what of pdlab would find it. Read as excerpts of the threads; a cause that they do not prove "
        "is marked as inferred.",
        "",
        "| reported in | what happened | found by |",
        "| --- | --- | --- |",
    )
    for case in public_cases.CASES:
        links = ", ".join(f"[`{name}`](#{name})" for name in case.rules)
        found = f"{links}." if links else ""
        yield row(case.threads, case.symptom, " ".join(filter(None, [found, case.otherwise])))
    yield from ("", public_cases.NOT_FOUND, "")


def row(*cells: str) -> str:
    """A row of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main(arguments: Iterable[str]) -> int:
    """Write the page, or say that it is not what the rules say."""
    text = PAGE.read_text(encoding="utf-8")
    wanted = page(text)
    if list(arguments) == ["--check"]:
        if text != wanted:
            print("docs/preflight.md is not what the rules say; run: python scripts/preflight_page.py", file=sys.stderr)
        return int(text != wanted)
    if text != wanted:
        PAGE.write_text(wanted, encoding="utf-8")
        print("docs/preflight.md")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
