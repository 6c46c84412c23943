# SPDX-License-Identifier: Apache-2.0
"""report.html: one or more legs and what they show, on one page that opens offline. Pure: evidence in, HTML text out.

Nothing of the time or the place of rendering is on the page: the same folder gives the same bytes.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pdlab.evidence.figure_ids import run_figure
from pdlab.evidence.legs import Leg
from pdlab.evidence.model import Evidence, VerdictRow
from pdlab.evidence.row_ids import verdict_id
from pdlab.report import checks, figures, formatting, repeat, winners
from pdlab.report.arm_tables import WorkloadTable, workload_tables
from pdlab.report.baseline import COLUMNS, UNKNOWN, Baseline, load_baselines
from pdlab.report.charts import ArmLooks, Chart, ChartSections, Samples, chart_sections
from pdlab.report.headline import headline
from pdlab.report.loads import limit_words, load_words
from pdlab.report.next_steps import Step, around_command, next_steps
from pdlab.report.request_time import PARTS, RequestTime, request_times
from pdlab.report.run_view import LegView, engine_key, grouped, leg_view, preflight_key
from pdlab.report.topology_drawing import drawing
from pdlab.report.topology_view import topology_view
from pdlab.report.workloads import workload
from pdlab.results.latency import SAMPLES_NEEDED

# How the quantities of verdicts are called.
VERDICT_QUANTITIES = {
    "goodput_s": "requests per second that met the limits",
    "output_tok_s": "output tokens per second",
    "output_tok_s_per_gpu": "output tokens per second and GPU",
}


@dataclass(frozen=True)
class WorkloadView:
    """One workload on the page. `longest`: the longest request, ms, which the bars are drawn against."""

    table: WorkloadTable
    charts: ChartSections
    times: tuple[RequestTime, ...]
    longest: float


@dataclass(frozen=True)
class VerdictView:
    """A verdict: the answer's kind for its colour, the sentence, the effect with its id."""

    row: VerdictRow
    tone: str
    answer: str
    limits: str
    quantity: str
    effect: figures.Shown


@dataclass(frozen=True)
class ArmView:
    """One arm: its drawing and the servers of its first leg."""

    name: str
    words: str
    drawing: Markup
    leg: LegView


def render(
    legs: Sequence[Leg],
    evidence: Evidence,
    *,
    own: Leg | None = None,
    samples: Samples | None = None,
    baselines: Sequence[Baseline] | None = None,
) -> str:
    """The whole page.

    `own`: the run itself, read as one leg, when the page is about one run and not a comparison. `samples`: lines of the
    points whose queues are drawn, by point id. `baselines` are laid beside the results; None takes those of pdlab.
    """
    looks = ArmLooks(tuple(arm.name for arm in evidence.arms))
    workloads = _workloads(evidence, legs, samples or {}, looks)
    drawn = [chart for one in workloads for chart in one.charts.all]
    views = [leg_view(leg) for leg in legs]
    page = _environment().get_template("report.html.j2")
    return page.render(
        evidence=evidence,
        rehearsal=evidence.rehearsal,
        rehearsal_note=evidence.rehearsal_note or "",
        own=leg_view(own) if own else None,
        verdict=headline(own.report, evidence) if own else None,
        verdicts=[_verdict(row) for row in evidence.verdicts],
        unlike=[*evidence.refused, *(doubt.seen for doubt in evidence.doubts if doubt.id == "unlike")],
        steps=_steps(own, evidence),
        looks=looks,
        workloads=workloads,
        parts=PARTS,
        grids=winners.winner_grids(evidence),
        how_won=winners.how_won(evidence),
        rates=winners.rates(evidence),
        failed_checks=checks.failed_checks(evidence.points),
        doubts=checks.doubt_rows(evidence),
        grade_of=checks.grade_of,
        legs=views,
        single=views[0] if len(views) == 1 else None,
        arms=[_arm(place, arm.name, legs, views) for place, arm in enumerate(evidence.arms)],
        model_names=_model_names(legs),
        engine_groups=grouped(views, engine_key),
        preflights=grouped(views, preflight_key),
        typed=repeat.run_commands(own.report if own else None, legs),
        deploy_arms=repeat.arm_commands(legs),
        client_commands={leg.id: repeat.client_commands(leg) for leg in legs},
        latency_rows=figures.latency_rows,
        value=figures.point_value,
        figure_names=figures.PARTS,
        samples_needed=SAMPLES_NEEDED,
        workload=workload,
        load_words=load_words,
        limit_words=limit_words,
        run_figure=run_figure,
        done=formatting.done,
        explain_command=repeat.explain_command(own, legs),
        charts_data=Markup(_data(drawn)),  # noqa: S704 - escaped for a script element by _data
        plotly_script=Markup(_plotly()) if drawn else None,  # noqa: S704 - plotly's own file
        style=Markup(_file("style.css")),  # noqa: S704 - this package's own file
        script=Markup(_file("page.js")),  # noqa: S704 - this package's own file
        baselines=load_baselines() if baselines is None else baselines,
        baseline_columns=COLUMNS,
        unknown=UNKNOWN,
    )


def compile_templates() -> None:
    """Compile all that a page is made of: two thirds of the time that a small page takes. Once in a process."""
    for name in _environment().list_templates(extensions=["j2"]):
        _environment().get_template(name)


@functools.cache
def _environment() -> Environment:
    """Where the page's templates are found and kept once compiled."""
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
        rounded=formatting.rounded,
        seconds=formatting.seconds,
        size=formatting.size,
        moment=formatting.moment,
        capitalize_first=lambda text: text[:1].upper() + text[1:],
    )
    return environment


@functools.cache
def _plotly() -> str:
    """plotly.js as the package plotly ships it, minified and with its licence."""
    return (resources.files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")


@functools.cache
def _file(name: str) -> str:
    return (resources.files("pdlab.report") / "templates" / name).read_text(encoding="utf-8")


def _data(drawn: Sequence[Chart]) -> str:
    """The charts as JSON that cannot end its script element: no < and no & stands in it."""
    text = json.dumps({chart.id: chart.spec for chart in drawn}, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _workloads(evidence: Evidence, legs: Sequence[Leg], samples: Samples, looks: ArmLooks) -> list[WorkloadView]:
    made = []
    for number, table in enumerate(workload_tables(evidence)):
        times = tuple(request_times(table.counting, evidence.points, looks.names))
        charts = chart_sections(number, table, evidence, legs, samples, looks)
        made.append(WorkloadView(table, charts, times, max((one.ms for one in times), default=0.0)))
    return made


def _verdict(row: VerdictRow) -> VerdictView:
    tone = {"use": "good", "do not use": "bad"}.get(row.answer, "plain")
    said = formatting.times(row.effect, row.low, row.high)
    answer = "cannot tell" if row.answer == "cannot tell" else f"{row.answer} PD"
    quantity = VERDICT_QUANTITIES.get(row.quantity, row.quantity)
    effect = figures.Shown(said, verdict_id(row))
    return VerdictView(row, tone, answer, limit_words(row.limits), quantity, effect)


def _arm(place: int, name: str, legs: Sequence[Leg], views: Sequence[LegView]) -> ArmView:
    """An arm as the first of its legs that has a plan shows it."""
    own = [(leg, view) for leg, view in zip(legs, views, strict=True) if leg.arm == name]
    leg, view = next(((leg, view) for leg, view in own if leg.contents.plan), own[0])
    roles = [server.role for server in view.servers]
    counts = [(roles.count(role), role) for role in ("prefill", "decode", "colocated")]
    words = ", ".join(f"{count} {role}" for count, role in counts if count)
    svg = drawing(topology_view(leg.contents), f"topology-{place}", name)
    return ArmView(name, words, Markup(svg), view)  # noqa: S704 - drawing escapes every text


def _steps(own: Leg | None, evidence: Evidence) -> list[Step]:
    """What to do next: as the run ended, then what would settle the verdicts."""
    steps = next_steps(own.contents, own.report) if own else []
    wanted = dict.fromkeys(row.next_measurement for row in evidence.verdicts if row.next_measurement)
    return [*(_step(text) for text in wanted), *steps]


def _step(text: str) -> Step:
    """An advice as a step: a command that stands in it between backticks becomes the step's command."""
    said, command, after = around_command(text)
    return Step(text) if command is None else Step(f"{said.rstrip(' :')}{after.rstrip()}:", command)


def _model_names(legs: Sequence[Leg]) -> list[str]:
    names = (formatting.model_name(leg.contents.plan) for leg in legs)
    return list(dict.fromkeys(name for name in names if name))
