# SPDX-License-Identifier: Apache-2.0
"""One leg as the page shows it: its servers, proofs, stages, versions, files. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from pdlab.evidence.legs import Leg
from pdlab.loose import as_list, as_mapping, as_number, as_rows, as_text
from pdlab.report import formatting
from pdlab.report.next_steps import endpoint
from pdlab.report.verdicts import Verdict, verdicts
from pdlab.results.model import Report
from pdlab.store import RunContents

LOG_LINES = 60


@dataclass(frozen=True)
class ServerView:
    """One server of the topology, as the page shows it."""

    name: str
    role: str
    host: str
    url: str
    ports: str
    devices: str
    binding: str
    unit: str
    seconds_to_ready: str
    command: str
    failed: bool


@dataclass(frozen=True)
class Probe:
    """One host's transfer probe, as the page shows it."""

    host: str
    ok: bool
    said: str


@dataclass(frozen=True)
class OracleCase:
    """One prompt of the oracle."""

    length: str
    identical: bool
    first_difference: str
    max_logprob_diff: str


@dataclass(frozen=True)
class File:
    """A file of a leg: its name and a link relative to the page."""

    name: str
    link: str


@dataclass(frozen=True)
class LegView:
    """Everything of one leg that the page shows beside its figures."""

    id: str
    arm: str
    repeat: int
    run: str
    report: Report
    probes: tuple[Probe, ...]
    oracle_cases: tuple[OracleCase, ...]
    oracle_reference: str | None
    longest_stage: float
    preflight_bad: tuple[Verdict, ...]
    preflight_ok: tuple[Verdict, ...]
    servers: tuple[ServerView, ...]
    started: bool
    endpoint: str | None
    packages: tuple[tuple[str, tuple[str, ...]], ...]
    controller: Mapping[str, str]
    logs: Mapping[str, str]
    files: tuple[File, ...]


def leg_view(leg: Leg) -> LegView:
    """A leg for the page's template."""
    contents, report = leg.contents, leg.report
    checks = verdicts(contents.host_records("preflight"))
    return LegView(
        id=leg.id,
        arm=leg.arm,
        repeat=leg.repeat,
        run=leg.run,
        report=report,
        probes=tuple(_probe(host, record) for host, record in contents.host_records("kv_probe").items()),
        oracle_cases=tuple(_oracle_cases(contents)),
        oracle_reference=as_text(as_mapping(contents.record("oracle")).get("reference")),
        longest_stage=max((stage.seconds or 0 for stage in report.stages), default=0),
        preflight_bad=tuple(verdict for verdict in checks if not verdict.ok),
        preflight_ok=tuple(verdict for verdict in checks if verdict.ok),
        servers=tuple(server_views(contents)),
        started=bool(contents.host_records("server")),
        endpoint=endpoint(contents.plan or {}),
        packages=tuple(_package_rows(report)),
        controller=_controller(contents),
        logs={name: tail(text) for name, text in contents.logs.items() if text} if not report.ok else {},
        files=tuple(File(name, link(leg.path, name)) for name in contents.files),
    )


@dataclass(frozen=True)
class Group:
    """Legs that are alike in what a section shows: their ids, and the first of them."""

    legs: tuple[str, ...]
    leg: LegView


def grouped(views: Sequence[LegView], key: Callable[[LegView], Hashable]) -> list[Group]:
    """Legs with equal keys together, in order."""
    found: dict[Hashable, list[LegView]] = {}
    for view in views:
        found.setdefault(key(view), []).append(view)
    return [Group(tuple(view.id for view in group), group[0]) for group in found.values()]


def engine_key(view: LegView) -> Hashable:
    """What makes the numbers of two legs comparable: engines and models by host."""
    engines = tuple((engine.host, engine.fingerprint, tuple(engine.packages.items())) for engine in view.report.engines)
    return engines, tuple((model.host, model.path, model.fingerprint) for model in view.report.models)


def preflight_key(view: LegView) -> Hashable:
    """What preflight found fault with."""
    return tuple((verdict.host, verdict.id, verdict.severity) for verdict in view.preflight_bad)


def link(folder: str, name: str) -> str:
    """The address of a file, relative to the page, however odd its name is."""
    path = name if folder in ("", ".") else f"{folder}/{name}"
    # A colon is quoted, too: in the first part it would make that the scheme of a URL.
    return quote(path, safe="/", errors="surrogateescape")


def server_views(contents: RunContents) -> list[ServerView]:
    """Every server that the plan or a record names: as started when a record says so, otherwise as planned."""
    plan = contents.plan or {}
    planned = as_rows([*as_list(plan.get("servers")), plan.get("router")])
    records = contents.host_records("server")
    names = dict.fromkeys([*(str(item.get("name")) for item in planned), *records])
    by_name = {str(item.get("name")): item for item in planned}
    return [_server_view(name, by_name.get(name, {}), records.get(name)) for name in names]


def tail(text: str, lines: int = LOG_LINES) -> str:
    """The last lines of a log."""
    return "\n".join(text.rstrip("\n").split("\n")[-lines:])


def _server_view(name: str, planned: Mapping[str, Any], record: Mapping[str, Any] | None) -> ServerView:
    started = {**planned, **{key: value for key, value in (record or {}).items() if value is not None}}
    ports = {
        "": started.get("port"),
        "bootstrap ": started.get("bootstrap_port"),
        "nccl ": started.get("nccl_port"),
        "metrics ": started.get("prometheus_port"),
    }
    gpus = as_list(started.get("gpus"))
    tp = started.get("tp") or 1
    devices = f"GPU {', '.join(str(gpu) for gpu in gpus)}" if gpus else _text(started.get("device"))
    argv = [str(item) for item in as_list(started.get("argv"))]
    environment = {str(key): str(value) for key, value in as_mapping(started.get("environment")).items()}
    return ServerView(
        name=name,
        role=_text(started.get("role")),
        host=_text(started.get("host")),
        url=_text(started.get("url")),
        ports=", ".join(f"{label}{port}" for label, port in ports.items() if port),
        devices=devices + (f", TP {tp}" if tp != 1 else ""),
        binding=_binding(started),
        unit=_text(started.get("unit")),
        seconds_to_ready=formatting.seconds(as_number(started.get("seconds_to_ready"))),
        command=formatting.shell_block(argv, environment) if argv else "",
        failed=bool(as_mapping(record).get("failed")),
    )


def _probe(host: str, record: Mapping[str, Any]) -> Probe:
    moved = f"{_text(record.get('backend'))} moved {formatting.size(as_number(record.get('bytes')))}"
    said = f"{moved} of {_text(record.get('memory'))}"
    if (speed := as_number(record.get("gib_s"))) is not None:
        said += f" at {speed:.2f} GiB/s"
    if record.get("transport"):
        said += f" over {record['transport']}"
    said += f" (NIXL {_text(record.get('nixl_version'))}, UCX {_text(record.get('ucx_version'))})."
    if record.get("why"):
        said += f" {record['why']}"
    return Probe(host, bool(record.get("ok")), said)


def _oracle_cases(contents: RunContents) -> list[OracleCase]:
    return [
        OracleCase(
            length=_text(row.get("length")),
            identical=bool(row.get("identical")),
            first_difference=as_text(row.get("first_difference")) or "none",
            max_logprob_diff=_text(row.get("max_logprob_diff")),
        )
        for row in as_rows(as_mapping(contents.record("oracle")).get("results"))
    ]


def _controller(contents: RunContents) -> dict[str, str]:
    known = as_mapping(contents.run.get("controller"))
    return {name: as_text(known.get(name)) or "unknown" for name in ("host", "python", "ansible_core")}


def _binding(started: Mapping[str, Any]) -> str:
    binding = started.get("binding")
    if isinstance(binding, Mapping):
        state = "checked on the live processes" if binding.get("ok") else f"WRONG: {binding.get('seen')}"
        return f"{_text(binding.get('wanted'))} ({state})"
    node = started.get("numa_node")
    return "none" if node is None else f"NUMA node {node} (not checked)"


def _package_rows(report: Report) -> list[tuple[str, tuple[str, ...]]]:
    names = dict.fromkeys(name for engine in report.engines for name in engine.packages)
    return [(name, tuple(engine.packages.get(name, "none") for engine in report.engines)) for name in names]


def _text(value: object) -> str:
    return as_text(value) or ""
