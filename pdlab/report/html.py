# SPDX-License-Identifier: Apache-2.0
"""report.html: one run on one page that opens offline. Pure: run contents in, HTML text out."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from pdlab import results
from pdlab.loose import as_list, as_mapping, as_number, as_rows, as_text
from pdlab.report import charts, formatting
from pdlab.report.baseline import COLUMNS, UNKNOWN, Baseline, load_baselines
from pdlab.report.next_steps import endpoint, next_steps
from pdlab.report.verdicts import verdicts
from pdlab.report.workloads import workload
from pdlab.results import SAMPLES_NEEDED, Latency, Point, Report
from pdlab.store import RunContents

LATENCIES = (("TTFT", "ttft_ms"), ("TPOT", "tpot_ms"), ("ITL", "itl_ms"), ("E2E", "e2e_ms"))
FIGURES = ("mean", "p50", "p90", "p95", "p99", "max")
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
class LatencyRow:
    """One latency of one point: its figures as text."""

    name: str
    samples: int
    figures: tuple[str, ...]


def render(contents: RunContents, report: Report | None = None, baselines: Sequence[Baseline] | None = None) -> str:
    """The whole page. `baselines` are laid beside the results; None takes those that pdlab ships."""
    report = report or results.build_report(contents)
    figures = charts.charts(report.points, report.rehearsal)
    checks = verdicts(contents.host_records("preflight"))
    return _template().render(
        report=report,
        contents=contents,
        verdict=results.verdict(report),
        rehearsal_note=results.REHEARSAL_NOTE,
        steps=next_steps(contents, report),
        longest_stage=max((stage.seconds or 0 for stage in report.stages), default=0),
        preflight_bad=[verdict for verdict in checks if not verdict.ok],
        preflight_ok=[verdict for verdict in checks if verdict.ok],
        probes=[_probe(host, record) for host, record in contents.host_records("kv_probe").items()],
        oracle_cases=_oracle_cases(contents),
        oracle_reference=as_text(as_mapping(contents.record("oracle")).get("reference")),
        model_name=as_text(as_mapping(as_mapping(contents.plan).get("model")).get("served_name")),
        controller=_controller(contents),
        servers=server_views(contents),
        started=bool(contents.host_records("server")),
        endpoint=endpoint(contents.plan or {}),
        measured=[point for point in report.points if point.ok],
        failed=[point for point in report.points if not point.ok],
        latency_rows=latency_rows,
        workload=workload,
        figure_names=FIGURES,
        samples_needed=SAMPLES_NEEDED,
        done=formatting.done,
        # Made by plotly and by this package from numbers and fixed words; nothing of a run's text is in them.
        charts=[(chart, Markup(chart.html)) for chart in figures],  # noqa: S704
        plotly_script=Markup(charts.plotly_script()) if figures else None,  # noqa: S704
        baselines=load_baselines() if baselines is None else baselines,
        baseline_columns=COLUMNS,
        unknown=UNKNOWN,
        packages=_package_rows(report),
        logs={name: tail(text) for name, text in contents.logs.items()} if not report.ok else {},
    )


@functools.cache
def _template() -> Template:
    """The page's template, compiled once."""
    environment = Environment(
        loader=PackageLoader("pdlab.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        tok_s=formatting.tok_s,
        ms=formatting.ms,
        seconds=formatting.seconds,
        size=formatting.size,
        moment=formatting.moment,
        capitalize_first=lambda text: text[:1].upper() + text[1:],
    )
    return environment.get_template("report.html.j2")


def server_views(contents: RunContents) -> list[ServerView]:
    """Every server that the plan or a record names: as started when a record says so, otherwise as planned."""
    plan = contents.plan or {}
    planned = as_rows([*as_list(plan.get("servers")), plan.get("router")])
    records = contents.host_records("server")
    names = dict.fromkeys([*(str(item.get("name")) for item in planned), *records])
    by_name = {str(item.get("name")): item for item in planned}
    return [_server_view(name, by_name.get(name, {}), records.get(name)) for name in names]


def latency_rows(point: Point) -> list[LatencyRow]:
    """TTFT, TPOT, ITL and E2E of one point, n/a where the sample does not support a figure."""
    rows = []
    for name, field in LATENCIES:
        latency: Latency = getattr(point, field)
        rows.append(LatencyRow(name, latency.n, tuple(formatting.ms(getattr(latency, figure)) for figure in FIGURES)))
    return rows


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


def _package_rows(report: Report) -> list[tuple[str, list[str]]]:
    names = dict.fromkeys(name for engine in report.engines for name in engine.packages)
    return [(name, [engine.packages.get(name, "none") for engine in report.engines]) for name in names]


def _text(value: object) -> str:
    return as_text(value) or ""
