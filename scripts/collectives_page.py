# SPDX-License-Identifier: Apache-2.0
"""Write the tables of docs/collectives.md from the tables of collectives and engine rules in the code.

python scripts/collectives_page.py            write them
python scripts/collectives_page.py --check    write nothing, exit 1 when the page is stale
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from ansible_collections.pdlab.pdlab.plugins.module_utils import collectives
from ansible_collections.pdlab.pdlab.plugins.module_utils.collectives import Knob
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_rule_table import RULES
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_rules import Rule

PAGE = Path(__file__).resolve().parent.parent / "docs" / "collectives.md"
TITLES = {
    collectives.ALWAYS: "Set always",
    collectives.PROFILE: "Set by a profile",
    collectives.OFFERED: "Offered",
    collectives.REMEDY: "For trouble",
    collectives.LEFT_ALONE: "Left alone",
}


def row(cells: Iterable[str]) -> str:
    """A table row."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table."""
    names = list(head)
    return "\n".join([row(names), row("---" for _ in names), *(row(cells) for cells in rows)])


def knob_row(knob: Knob) -> list[str]:
    """The cells of a row of the environment."""
    value = f"`{knob.value_text}`" if isinstance(knob.value, str) and not knob.shown else knob.value_text
    profiles = ", ".join(knob.profiles) if knob.use in (collectives.PROFILE, collectives.OFFERED) else ""
    when = f"{knob.when} ({profiles})" if profiles else knob.when
    return [f"`{knob.name}`", knob.read_by, value, when, knob.why, knob.source]


def knobs() -> str:
    """The tables of the environment, one for each use."""
    parts = []
    for use, title in TITLES.items():
        rows = [knob_row(knob) for knob in collectives.rows_by_use(use)]
        if use == collectives.LEFT_ALONE:
            head, rows = ["variable", "library", "why", "source"], [[*cells[:2], *cells[4:]] for cells in rows]
        else:
            head = ["variable", "library", "value", "when", "why", "source"]
        parts.append(f"### {title}\n\n{table(head, rows)}")
    return "\n\n".join(parts)


def rule_row(rule: Rule) -> list[str]:
    """The cells of a row of the engine rules."""
    bounds = [f"from {rule.since}" if rule.since else "", f"before {rule.before}" if rule.before else ""]
    added = ", ".join(f"`--{name} {value}`" for name, value in rule.flags.items())
    what = f"adds {added}" if added else rule.cure
    return [
        f"`{rule.id}`",
        rule.effect,
        rule.when,
        rule.why,
        what,
        " ".join(filter(None, bounds)) or "any",
        ", ".join(f"{chip}x" for chip in rule.chips) or "any",
        rule.source,
    ]


def rules() -> str:
    """The table of engine rules."""
    head = ["rule", "effect", "when", "why", "what to do", "sglang", "chip", "source"]
    return table(head, [rule_row(rule) for rule in RULES])


def page(text: str) -> str:
    """The page's text with fresh tables."""
    for name, content in (("knobs", knobs()), ("rules", rules())):
        block = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        # Cut by hand: a replacement text of re.sub would read the tables' backslashes.
        found = block.search(text)
        if found:
            text = f"{text[: found.start()]}{found[1]}\n{content}\n\n{found[2]}{text[found.end() :]}"
    return text


def main(arguments: list[str]) -> int:
    """Write or check the page."""
    text = PAGE.read_text(encoding="utf-8")
    fresh = page(text)
    if fresh == text:
        return 0
    if arguments == ["--check"]:
        print("docs/collectives.md is stale; run: python scripts/collectives_page.py", file=sys.stderr)
        return 1
    PAGE.write_text(fresh, encoding="utf-8")
    print("docs/collectives.md")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
