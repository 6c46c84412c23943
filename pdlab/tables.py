# SPDX-License-Identifier: Apache-2.0
"""Tables for the terminal, made for 80 columns: results, stages, preflight verdicts, the plan, what runs.

Each is a rich renderable; without a terminal rich prints it as plain text, and `plain` gives that text. `width` is the
console's: a wide one gets more columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from io import StringIO
from typing import TYPE_CHECKING, Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.numa_binding import format_list
from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pdlab.loose import as_list, as_mapping, as_rows, as_text
from pdlab.rehearsal import rehearsal_note
from pdlab.report import formatting
from pdlab.report.verdicts import Verdict, verdicts
from pdlab.report.workloads import load, workloads
from pdlab.results.latency import SAMPLES_NEEDED
from pdlab.results.model import Point, Report

if TYPE_CHECKING:
    from pdlab.dry_run import DryRun
    from pdlab.rebuild import Change
    from pdlab.status import PartState, ServiceState, Status

WIDTH = 80
WIDE = 110
ERROR_LINES = 3
GOOD, BAD, WARNING, SOFT = "green", "bold red", "yellow", "dim"
_REASON = "not bold default"
VETO_WORD = "VETO"

Column = tuple[str, Callable[[Point], str]]

_COLUMNS: list[Column] = [
    ("output\ntok/s", lambda point: formatting.tok_s(point.output_tok_s)),
    ("peak\ntok/s", lambda point: formatting.tok_s(point.peak_output_tok_s)),
    ("total\ntok/s", lambda point: formatting.tok_s(point.total_tok_s)),
    ("TTFT\np50 ms", lambda point: formatting.ms(point.ttft_ms.p50)),
    ("TTFT\np90 ms", lambda point: formatting.ms(point.ttft_ms.p90)),
    ("TPOT\np50 ms", lambda point: formatting.ms(point.tpot_ms.p50)),
    ("TPOT\np90 ms", lambda point: formatting.ms(point.tpot_ms.p90)),
]
_WIDE_COLUMNS: list[Column] = [
    ("ITL\np50 ms", lambda point: formatting.ms(point.itl_ms.p50)),
    ("ITL\np99 ms", lambda point: formatting.ms(point.itl_ms.p99)),
    ("E2E\np50 ms", lambda point: formatting.ms(point.e2e_ms.p50)),
]


def results_table(report: Report, width: int = WIDTH) -> RenderableType:
    """The benchmark points by request lengths; a failed one says FAILED and why, and has no figure."""
    groups = workloads(report.points)
    placed = {id(point) for group in groups.values() for point in group}
    lost = [point for point in report.points if id(point) not in placed]
    if lost:
        groups["load unknown"] = lost
    if not groups:
        return Text("no benchmark point was reached", style=SOFT)
    columns = _COLUMNS + (_WIDE_COLUMNS if width >= WIDE else [])
    parts: list[RenderableType] = []
    for name, group in groups.items():
        parts.append(_points(name, group, columns, report.rehearsal_note))
        parts += [_failure(point) for point in group if not point.ok]
        parts += [_doubt(point) for point in group if point.ok and not point.counts]
    if any(point.ok and point.ttft_ms.p90 is None for point in report.points):
        parts.append(Text(f"n/a: p90 needs {SAMPLES_NEEDED['p90']} requests", style=SOFT))
    return Group(*parts)


def stage_table(report: Report, width: int = WIDTH) -> RenderableType:
    """Each stage with its time, and the run's."""
    table = _table()
    table.add_column("stage")
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for stage in report.stages:
        said = Text("passed", style=GOOD)
        if not stage.ok:
            said = Text("FAILED" if stage.finished else "did not finish", style=BAD)
            said.append(f": {stage.why}" if stage.why else "", style=_REASON)
        table.add_row(Text(stage.name), formatting.seconds(stage.seconds), said)
    if report.seconds is not None:
        table.add_section()
        table.add_row("in all", formatting.seconds(report.seconds), "")
    return table


def verdict_table(record: Mapping[str, Any], width: int = WIDTH, everything: bool = False) -> RenderableType:
    """One host's preflight verdicts: vetoes first, then warnings, then notes; what passed is counted, or listed too."""
    host = as_text(record.get("host")) or "host"
    found = verdicts({host: record})
    passed = sum(verdict.ok for verdict in found)
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    for verdict in found:
        if not verdict.ok:
            table.add_row(_verdict_word(verdict), _verdict_text(verdict))
            table.add_row()
    for verdict in found if everything else ():
        if verdict.ok:
            table.add_row(_verdict_word(verdict), _passed_text(verdict))
    style = BAD if any(verdict.word == VETO_WORD for verdict in found) else GOOD if passed == len(found) else "bold"
    count = Text(f"{host}: {_counted(found)}", style=style)
    return Group(table, count) if table.row_count else count


def plan_table(plan: Mapping[str, Any], width: int = WIDTH) -> RenderableType:
    """What would run where, and what the engine rules say of it."""
    table = _table(f"REHEARSAL: {rehearsal_note(plan)}" if plan.get("rehearsal") else None, WARNING)
    for header in ("name", "role", "host", "address", "other ports", "device", "NUMA"):
        table.add_column(header, overflow="fold", no_wrap=header in ("address", "device"))
    for part in _parts(plan):
        others = {"bootstrap": "bootstrap_port", "nccl": "nccl_port", "metrics": "prometheus_port"}
        gpus = as_list(part.get("gpus"))
        table.add_row(
            *(Text(as_text(part.get(name)) or "") for name in ("name", "role", "host")),
            Text(f"{part.get('address')}:{part.get('port')}"),
            Text("\n".join(f"{word} {part[key]}" for word, key in others.items() if part.get(key))),
            Text(f"GPU {format_list(set(gpus))}" if gpus else as_text(part.get("device")) or ""),
            _numa(part),
        )
    return Group(table, *_arms_note(plan), *_monitoring_note(plan), *_engine_notes(plan))


def _arms_note(plan: Mapping[str, Any]) -> list[Text]:
    """The arms of the inventory, and whose plan this is."""
    names = [str(arm.get("name")) for arm in as_rows(plan.get("arms"))]
    shown = [f"{name} (this one)" if name == plan.get("arm") else name for name in names]
    return [Text(f"arms: {', '.join(shown)}", style=SOFT)] if names else []


def _monitoring_note(plan: Mapping[str, Any]) -> list[RenderableType]:
    """Where the Prometheus that pdlab installs would listen."""
    monitoring = as_mapping(plan.get("monitoring"))
    if not monitoring.get("install"):
        return []
    where = f"{monitoring.get('address')}:{monitoring.get('port')}"
    return [Text(f"Prometheus: {where} on {monitoring.get('host')}, keeps {monitoring.get('retention_days')} days")]


def plan_details(plan: Mapping[str, Any], run: DryRun | None = None) -> Text:
    """Each part's binding, command line and environment; of a dry run also every file that a service manager gets.

    Made to be copied: print it with soft_wrap, so that no line is broken.
    """
    text = Text()
    for part in _parts(plan):
        name = as_text(part.get("name")) or ""
        text.append(f"{name}, unit {part.get('unit')}\n", style="bold")
        if part.get("numa_reason"):
            node = part.get("numa_node")
            binding = as_text(part["numa_reason"]) or ""
            text.append(f"  NUMA: {binding if node is None else f'node {node}: {binding}'}\n", style=SOFT)
        argv = [str(item) for item in as_list(part.get("argv"))]
        environment = {str(key): str(value) for key, value in as_mapping(part.get("environment")).items()}
        text.append(_indented(formatting.shell_block(argv, environment)))
        if run and name in run.units:
            text.append(f"  {run.units[name].manager}: {run.units[name].path}\n", style=SOFT)
            text.append(_indented(run.units[name].text, 4))
        text.append("\n")
    for host, files in (run.shared if run else {}).items():
        text.append(f"shared by all services of {host}\n", style="bold")
        for path, content in files.items():
            text.append(f"  systemd: {path}\n", style=SOFT)
            text.append(_indented(content, 4))
        text.append("\n")
    return text


# How a verdict of an engine rule is told: its effect, or its state where nothing was done.
_RULE_WORDS = {
    "correct": ("added", GOOD),
    "warn": ("WARNING", WARNING),
    "allow": ("fine", SOFT),
    "refuse": ("REFUSED", BAD),
}
_STATE_WORDS = {"undecided": ("open", SOFT), "off": ("switched off", WARNING)}


def _engine_notes(plan: Mapping[str, Any]) -> list[RenderableType]:
    """The profile of the environment, what it offers, and what the engine rules say, grouped by rule."""
    collectives, rules = as_mapping(plan.get("collectives")), as_mapping(plan.get("engine_rules"))
    if not collectives:
        return []
    versions = sorted({as_text(version) or "unknown" for version in as_mapping(rules.get("sglang")).values()})
    default = "" if collectives.get("declared") else " (default)"
    notes: list[RenderableType] = [
        Text(f"collectives {collectives.get('profile')}{default}, sglang {', '.join(versions)}", style="bold")
    ]
    offered = sorted({(str(offer["name"]), str(offer["value"])) for offer in as_rows(collectives.get("offers"))})
    if offered:
        names = ", ".join(f"{name}={value}" for name, value in offered)
        notes.append(
            Padding(Text(f"offered, not set: {names}; docs/collectives.md says for what", style=SOFT), (0, 0, 0, 2))
        )
    grouped: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for verdict in as_rows(rules.get("verdicts")):
        grouped.setdefault((str(verdict["state"]), str(verdict["rule"]), str(verdict["seen"])), []).append(verdict)
    for (state, rule, seen), alike in grouped.items():
        first = alike[0]
        word, style = _STATE_WORDS.get(state) or _RULE_WORDS[str(first["effect"])]
        flags = " ".join(f"--{name} {value}" for name, value in as_mapping(first.get("flags")).items())
        note = Text(f"{word} {flags}".rstrip(), style=style)
        servers = ", ".join(str(verdict["server"]) for verdict in alike)
        note.append(f" for {servers}: {seen}: {first['why']}", style=_REASON)
        if state == "undecided":
            note.append(f"; waits for {', '.join(str(need) for need in as_list(first.get('needs')))}")
        elif first.get("cure") and first["effect"] == "warn":
            note.append(f"\n-> {first['cure']}", style="bold")
        note.append(f" (rule {rule})", style=SOFT)
        notes.append(Padding(note, (0, 0, 0, 2)))
    return notes


def status_table(status: Status, width: int = WIDTH) -> RenderableType:
    """What runs now, and what of it differs from the inventory."""
    table = _table()
    for header in ("name", "role", "host", "state", "PID", "manager", "as declared"):
        table.add_column(header, overflow="fold")
    for service in status.services:
        table.add_row(
            Text(service.name),
            Text(service.role),
            Text(service.host),
            Text(service.state, style=GOOD if service.state == "running" else BAD),
            "" if service.pid is None else str(service.pid),
            Text(service.manager or ""),
            _declared(service.as_declared),
        )
    for part in status.parts:
        table.add_row(Text(part.name), "", Text(part.host), "", "", "", _declared(part.as_declared))
    items: list[ServiceState | PartState] = [*status.services, *status.parts]
    return Group(table, *(Text(f"{item.name} on {item.host}: {reason}") for item in items for reason in item.why))


def changes_table(changes: list[Change], width: int = WIDTH) -> RenderableType:
    """What a rebuild found otherwise than it left it."""
    if not changes:
        return Text("nothing differed; the engine's environment was built anew")
    table = _table("what differed")
    hosts = {change.host for change in changes}
    for header in (*(["host"] if len(hosts) > 1 else []), "part", "what", "before", "after"):
        table.add_column(header, overflow="fold")
    for change in changes:
        row = [change.part, change.what, change.before or "-", change.after or "-"]
        table.add_row(*(Text(cell) for cell in ([change.host, *row] if len(hosts) > 1 else row)))
    return table


def plain(renderable: RenderableType, width: int = WIDTH) -> str:
    """The same as text without any control code."""
    stream = StringIO()
    console = Console(
        file=stream, width=width, force_terminal=False, color_system=None, legacy_windows=False, emoji=False
    )
    console.print(renderable)
    return "".join(line.rstrip() + "\n" for line in stream.getvalue().splitlines())


def _points(name: str, points: Iterable[Point], columns: Iterable[Column], rehearsal: str | None) -> Table:
    title = f"benchmark, {name}"
    if rehearsal:
        title = f"REHEARSAL: {title}\n{rehearsal}"
    table = _table(title, WARNING if rehearsal else "bold")
    for header in ("\nload", "\nrequests", *(header for header, _ in columns)):
        table.add_column(header, justify="right", no_wrap=True)
    for point in points:
        head = (load(point), formatting.done(point.completed, point.requested))
        if point.ok:
            table.add_row(*head, *(shown(point) for _, shown in columns))
        else:
            table.add_row(*head, Text(_failed_word(point), style=BAD))
    return table


def _failure(point: Point) -> RenderableType:
    """Why a point has no figure, below the table, where there is room for it."""
    said = Text(f"{point.label} {_failed_word(point)}", style=BAD)
    said.append(": " + "; ".join(point.why), style=_REASON)
    lines: list[RenderableType] = [Padding(Text(line), (0, 0, 0, 2)) for line in point.error_lines[:ERROR_LINES]]
    if (more := len(point.error_lines) - ERROR_LINES) > 0:
        lines.append(Padding(Text(f"{more} more in the report", style=SOFT), (0, 0, 0, 2)))
    return Group(said, *lines)


def _doubt(point: Point) -> RenderableType:
    """Why no verdict rests on a point that has figures."""
    said = Text(f"{point.label} is doubtful, and left out of verdicts", style=WARNING)
    said.append(": " + "; ".join(point.why), style=_REASON)
    return said


def _failed_word(point: Point) -> str:
    return "FAILED" if point.measured else "not run"


def _counted(found: list[Verdict]) -> str:
    """`41 of 45 checks passed, 1 veto, 2 warnings, 1 note`."""
    said = [f"{sum(verdict.ok for verdict in found)} of {len(found)} checks passed"]
    for word, many in ((VETO_WORD, "vetoes"), ("warning", "warnings"), ("note", "notes")):
        count = sum(verdict.word == word for verdict in found)
        if count:
            said.append(f"{count} {word.lower() if count == 1 else many}")
    return ", ".join(said)


def _verdict_word(verdict: Verdict) -> Text:
    return Text(verdict.word, style={"ok": GOOD, VETO_WORD: BAD, "warning": WARNING}.get(verdict.word, ""))


def _verdict_text(verdict: Verdict) -> Text:
    said = Text(verdict.id, style="bold")
    for label, words in (("seen", verdict.seen), ("wanted", verdict.wanted), ("why", verdict.why)):
        if words:
            said.append(f"\n{label}: ", style="not bold dim")
            said.append(words, style="not bold")
    said.append(f"\n-> {verdict.cure}" if verdict.cure else "")
    return said


def _parts(plan: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return as_rows([*as_list(plan.get("servers")), plan.get("router"), plan.get("reference")])


def _indented(text: str, by: int = 2) -> str:
    return "".join(" " * by + line + "\n" if line else "\n" for line in text.splitlines())


def _numa(part: Mapping[str, Any]) -> str:
    """The node that a server is bound to; nothing for one that is not bound."""
    node = part.get("numa_node")
    return "GPUs'" if part.get("numa_pending") else "" if node is None else str(node)


def _passed_text(verdict: Verdict) -> Text:
    return Text.assemble(verdict.id, (f": {verdict.seen}", SOFT))


def _declared(as_declared: bool) -> Text:
    return Text("yes", style=GOOD) if as_declared else Text("NO", style=BAD)


def _table(title: str | None = None, style: str = "bold") -> Table:
    return Table(
        title=Text(title) if title else None,
        title_justify="left",
        title_style=style,
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
