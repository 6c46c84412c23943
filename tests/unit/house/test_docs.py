# SPDX-License-Identifier: Apache-2.0
"""The documentation says what the code does: rules, variables, commands, messages and links."""

from __future__ import annotations

import functools
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
import yaml
from ansible_collections.pdlab.pdlab.plugins.module_utils import benchmark_points, preflight_rules
from ansible_collections.pdlab.pdlab.plugins.module_utils import topology_variables as variables
from ansible_collections.pdlab.pdlab.plugins.module_utils.benchmark_points import resolve_benchmark
from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Faults
from ansible_collections.pdlab.pdlab.plugins.module_utils.host.change import OWN_FILES
from ansible_collections.pdlab.pdlab.plugins.module_utils.host.sysctls import SYSCTLS
from ansible_collections.pdlab.pdlab.plugins.module_utils.preflight_rules import public_cases
from ansible_collections.pdlab.pdlab.plugins.module_utils.shapes import Check
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology import resolve
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_hosts import HostVars

from pdlab.cli import app
from scripts import collectives_page, preflight_page

CHECKOUT = Path(__file__).resolve().parents[3]
DOCS = CHECKOUT / "docs"
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.M | re.S)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
NOBODYS_KEY = "xxxxxxxxxxxxxxxx"
WORKLOADS = yaml.safe_load((CHECKOUT / "roles" / "benchmark" / "vars" / "workloads.yml").read_text())[
    "benchmark_workloads"
]
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
# What typer gives every program.
OWN_OPTIONS = {"--version", "--install-completion", "--show-completion", "--help", "-h"}


def pages() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=CHECKOUT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [CHECKOUT / line for line in sorted(set(listing.stdout.splitlines())) if (CHECKOUT / line).is_file()]


def name_of(path: Path) -> str:
    return str(path.relative_to(CHECKOUT))


def rows(text: str, width: int | None = None) -> list[list[str]]:
    """The cells of every table row below the head; of tables with `width` columns only, when it is given."""
    found: list[list[str]] = []
    lines = text.splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        if not line.startswith("| ") or line.startswith("| ---"):
            continue
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        is_head = not before.startswith("|")
        if not is_head and (width is None or len(cells) == width):
            found.append(cells)
    return found


def section(text: str, title: str) -> str:
    """The part of a page below a heading, up to the next one of any level."""
    match = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", FENCE.sub("", text), re.M | re.S)
    assert match, title
    return match[1]


# --- preflight ---------------------------------------------------------------------------------------------------


def test_the_preflight_page_is_what_the_rules_say() -> None:
    text = preflight_page.PAGE.read_text()
    assert text == preflight_page.page(text), "run: python scripts/preflight_page.py"


def test_the_preflight_page_has_every_rule_with_its_severities_and_every_public_report() -> None:
    text = (DOCS / "preflight.md").read_text()
    table = rows(section(text, "All rules"), 3)
    assert [(row[0].split("`")[1], row[1]) for row in table] == [
        (rule.id, rule.severity) for rule in preflight_rules.RULES
    ]
    for rule in preflight_rules.RULES:
        assert f"**{rule.severity}**" in section(text, f"`{rule.id}`")
    assert [row[0] for row in rows(section(text, "Public reports"))] == [case.threads for case in public_cases.CASES]


def test_the_page_of_the_environment_and_the_engine_rules_is_made_from_the_tables() -> None:
    stale = "docs/collectives.md is stale: run .venv/bin/python scripts/collectives_page.py"
    assert collectives_page.page(collectives_page.PAGE.read_text()) == collectives_page.PAGE.read_text(), stale


# --- inventory ---------------------------------------------------------------------------------------------------


def keys_of(check: Check) -> set[str]:
    """The keys that a check of a mapping knows: it names them all when it meets one that is like none of them."""
    faults = Faults()
    check(faults, "x", {NOBODYS_KEY: 1})
    check(faults, "x", [{NOBODYS_KEY: 1}])
    return {
        key
        for fault in faults
        for key in re.sub("^known are ", "", fault.cure).split(", ")
        if "known are" in fault.cure
    }


def benchmark_keys() -> set[str]:
    faults = Faults()
    presets = {"default": {"points": [{"concurrency": 1, "prompts": 1}]}}
    benchmark_points.resolve_benchmark({NOBODYS_KEY: 1}, presets, faults)
    (fault,) = faults
    return set(fault.cure.removeprefix("known are ").split(", "))


def documented(title: str) -> set[str]:
    """The names in the first column of a section's tables."""
    table = rows(section((DOCS / "inventory.md").read_text(), title))
    return {found for row in table for found in re.findall(r"^`([\w-]+)`", row[0])}


def test_the_inventory_page_has_every_variable_and_no_other() -> None:
    assert documented("Variables") == set(variables.KNOWN)


@pytest.mark.parametrize(
    ("title", "keys"),
    [
        ("pd_model", keys_of(variables.MODEL)),
        ("pd_servers", keys_of(variables.SERVER)),
        ("pd_router", keys_of(variables.ROUTER)),
        ("pd_answers", keys_of(variables.SHARED["pd_answers"])),
        ("pd_oracle", keys_of(variables.SHARED["pd_oracle"])),
        ("pd_engine", keys_of(variables.PER_HOST["pd_engine"])),
        ("pd_host", keys_of(variables.PER_HOST["pd_host"])),
        ("pd_benchmark", benchmark_keys() | set(WORKLOADS)),
        ("pd_monitoring", keys_of(variables.SHARED["pd_monitoring"])),
    ],
)
def test_the_inventory_page_has_every_key_of_a_variable_and_no_other(title: str, keys: set[str]) -> None:
    assert len(keys) > 1, "the check no longer names its keys"
    assert documented(title) == keys


def test_the_inventory_page_names_every_flag_that_pdlab_keeps_for_itself() -> None:
    text = (DOCS / "inventory.md").read_text()
    servers = set(INLINE.findall(section(text, "pd_servers")))
    assert {*variables.DERIVED_SERVER_FLAGS, *variables.REFUSED_SERVER_FLAGS} <= servers
    assert set(variables.DERIVED_ROUTER_FLAGS) <= set(INLINE.findall(section(text, "pd_router")))


def test_the_inventory_page_describes_every_workload_as_it_is() -> None:
    for row in rows(section((DOCS / "inventory.md").read_text(), "pd_benchmark")):
        workload = WORKLOADS.get(row[0].strip("`"))
        if workload:
            resolved = resolve_benchmark({"workloads": [row[0].strip("`")]}, WORKLOADS, Faults())
            assert resolved is not None
            loads = [
                f"{point['concurrency']}:{point['prompts']}" if point["concurrency"] else f"{point['rate_s']:g}/s"
                for point in resolved["points"]
            ]
            assert row[1] == ", ".join(loads)
            assert f"{workload['input_len']} in" in row[2]
            assert f"{workload['output_len']} out" in row[2]


def test_the_inventory_page_has_every_kernel_parameter_with_its_reason_and_no_other() -> None:
    table = rows(section((DOCS / "inventory.md").read_text(), "pd_host"), 2)
    assert table == [[f"`{name}`", sysctl.why] for name, sysctl in SYSCTLS.items()]


def test_the_undo_page_names_every_file_that_pdlab_writes_outside_its_root() -> None:
    text = (DOCS / "undo.md").read_text()
    assert not [path for path in OWN_FILES if f"| `{path}` |" not in text]


def test_the_monitoring_page_names_every_alert_and_no_other() -> None:
    rules = (CHECKOUT / "roles" / "observability" / "files" / "pdlab-rules.yml").read_text()
    table = rows(section((DOCS / "monitoring.md").read_text(), "Alerts"), 3)
    assert [row[0].strip("`") for row in table] == re.findall(r"- alert: (\w+)", rules)


def test_every_whole_inventory_in_the_documentation_is_without_a_fault() -> None:
    blocks = [block for path in pages() for kind, block in FENCE.findall(path.read_text()) if kind == "yaml"]
    whole = [given for given in map(yaml.safe_load, blocks) if isinstance(given, dict) and "pd_root" in given]
    assert whole
    for given in whole:
        own = {name: value for name, value in given.items() if name in variables.PER_HOST}
        shared = {name: value for name, value in given.items() if name not in variables.PER_HOST}
        plan, faults = resolve(shared, [HostVars("box1", variables=own)], WORKLOADS)
        assert plan, list(map(str, faults))


# --- messages ----------------------------------------------------------------------------------------------------


@functools.cache
def source_text() -> str:
    """All of the program's text, with string literals that go on in the next line joined."""
    files = [
        *(CHECKOUT / "plugins").rglob("*.py"),
        *(CHECKOUT / "pdlab").rglob("*.py"),
        *(CHECKOUT / "roles").glob("*/tasks/*.yml"),
        CHECKOUT / "scripts/bootstrap.sh",
    ]
    text = "\n".join(path.read_text() for path in files)
    return re.sub(r"(\"|')\s*\n\s*f?(\"|')", "", text)


def quoted_messages() -> Iterator[tuple[str, str]]:
    troubles = (DOCS / "troubleshooting.md").read_text()
    faults = section((DOCS / "inventory.md").read_text(), "Faults that are refused")
    for page, table in (("troubleshooting.md", rows(troubles, 3)), ("inventory.md", rows(faults, 2))):
        for row in table:
            for message in INLINE.findall(row[0]):
                yield page, message


@pytest.mark.parametrize(("page", "message"), list(quoted_messages()))
def test_a_message_that_the_documentation_quotes_is_one_that_the_program_has(page: str, message: str) -> None:
    assert message.strip() in source_text(), page


# --- commands ----------------------------------------------------------------------------------------------------


def command_lines(path: Path) -> Iterator[str]:
    """What a reader would type: lines of shell blocks, and code in the text that begins with a command of ours."""
    text = path.read_text()
    for kind, block in FENCE.findall(text):
        if kind in ("sh", "bash", "shell", "console"):
            for line in re.sub(r"\\\n\s*", " ", block).splitlines():
                yield from re.split(r" (?:&&|\|\||\||;) ", line)
    for code in INLINE.findall(FENCE.sub("", text)):
        if code.startswith(("pdlab ", "make ", ".venv/bin/pdlab ")):
            yield code.replace("[", "").replace("]", "").replace("…", "")


def words_of(line: str) -> list[str]:
    """A command line's words, without comments, prompts and variables in front of it."""
    words = shlex.split(line, comments=True)
    while words and (words[0] in ("$", "#", "sudo") or re.match(r"[A-Z_]+=", words[0])):
        words = words[1:]
    return words


def command_faults(words: list[str]) -> list[str]:
    """What of a `pdlab` or `make` command line does not exist."""
    if not words:
        return []
    if words[0] == "make":
        targets = set(re.findall(r"^([a-z0-9]+):", (CHECKOUT / "Makefile").read_text(), re.M))
        return [f"make {word}" for word in words[1:] if "=" not in word and word.isidentifier() and word not in targets]
    if words[0] == "ansible-playbook":
        return [word for word in words[1:] if word.endswith(".yml") and not (CHECKOUT / word).is_file()]
    if words[0].rpartition("/")[2] != "pdlab":
        return []
    options = [word.partition("=")[0] for word in words[1:] if word.startswith("-") and len(word) > 1]
    if len(words) > 1 and not words[1].startswith("-"):
        if words[1] not in COMMANDS:
            return [f"pdlab {words[1]}"]
        known = {
            option for parameter in COMMANDS[words[1]].params for option in [*parameter.opts, *parameter.secondary_opts]
        } | {"--help", "-h"}
    else:
        known = OWN_OPTIONS
    return [f"{' '.join(words[:2])} {option}" for option in options if option not in known]


@pytest.mark.parametrize("path", pages(), ids=name_of)
def test_every_command_in_the_documentation_exists_with_its_options(path: Path) -> None:
    wrong = [fault for line in command_lines(path) for fault in command_faults(words_of(line))]
    assert not wrong


def test_a_command_that_does_not_exist_would_be_found() -> None:
    assert command_faults(words_of(".venv/bin/pdlab up --nonsense -i x")) == [".venv/bin/pdlab up --nonsense"]
    assert command_faults(words_of("pdlab fly")) == ["pdlab fly"]
    assert command_faults(words_of("make coffee INVENTORY=x")) == ["make coffee"]
    assert not command_faults(words_of("PDLAB_ROOT=/x pdlab logs prefill-0 -n 3  # three lines"))


def test_every_command_of_pdlab_is_in_the_readme() -> None:
    readme = (CHECKOUT / "README.md").read_text()
    assert not [name for name in COMMANDS if f"pdlab {name}" not in readme]


# --- links -------------------------------------------------------------------------------------------------------


def anchors(path: Path) -> set[str]:
    """The anchors that a page's headings get on the usual forges."""
    titles = re.findall(r"^#+ (.*)$", FENCE.sub("", path.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", pages(), ids=name_of)
def test_every_relative_link_leads_somewhere(path: Path) -> None:
    text = INLINE.sub("", FENCE.sub("", path.read_text()))
    broken = []
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        target, _hash, anchor = link.partition("#")
        goal = (path.parent / target) if target else path
        if not goal.exists() or (anchor and anchor not in anchors(goal)):
            broken.append(link)
    assert not broken


def test_the_index_of_the_documentation_has_every_page() -> None:
    index = (DOCS / "README.md").read_text()
    assert not [path.name for path in DOCS.glob("*.md") if path.name != "README.md" and f"({path.name})" not in index]


def test_each_decision_has_a_number_of_its_own_and_says_it() -> None:
    pages = sorted((CHECKOUT / "docs" / "decisions").glob("[0-9]*.md"))
    numbers = [int(page.name.split("-")[0]) for page in pages]
    assert numbers == list(range(1, len(pages) + 1))
    assert [page.read_text().split(".")[0] for page in pages] == [f"# {number}" for number in numbers]
