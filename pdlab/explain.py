# SPDX-License-Identifier: Apache-2.0
"""`pdlab explain`: what a finished run's numbers mean, as text. Pure: legs and their evidence in, lines out.

Verdicts first, then who wins where, then each arm: its loads, what binds them, its curves. A run of one leg also shows
each point's details; a run of arms has too many points for that, and `--json` holds them all.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from pdlab.analysis.goodput import Goodput, Limits, any_of_limits, goodput
from pdlab.analysis.held import Held
from pdlab.analysis.measurement import Measurement
from pdlab.analysis.refusal import RefusedError
from pdlab.analysis.sweep import ArmAnalysis, PointAnalysis, analyse, sweep_bounds
from pdlab.evidence.against import against_lines
from pdlab.evidence.build import build_evidence
from pdlab.evidence.cells import counting, samples_of
from pdlab.evidence.comparisons import load_words
from pdlab.evidence.goods import NO_LIMITS, limits_of, scales
from pdlab.evidence.legs import Leg
from pdlab.evidence.model import Arm, Cell, Doubt, Evidence, LimitSet, Load, PointRow, RateRow, VerdictRow, WinnerCell
from pdlab.evidence.verdicts import with_steps
from pdlab.evidence.what_ifs import WhatIf, what_ifs_of
from pdlab.report.formatting import ms, tok_s
from pdlab.report.workloads import workload

WIDTH = 80
# Doubts that are said one by one, each with its own words in front.
_LISTED = {"left_out": "left out", "unlike": "left out", "damaged": "damaged", "no_request_times": "no limits asked of"}

# Stands for a verdict's limits while it is held against another one.
LIMITS_HERE = "\0"

Place = tuple[str, int, str]
_TIMES = ("ttft", "tpot")


@dataclass(frozen=True)
class Explained:
    """A run's evidence, and the analysis of its points that count, arm by arm.

    goods: goodput of each point under each set of limits asked of it, by arm, repeat and label.
    """

    evidence: Evidence
    arms: tuple[ArmAnalysis, ...]
    goods: Mapping[Place, tuple[Goodput, ...]]
    what_ifs: tuple[WhatIf, ...] = ()
    held: tuple[Held, ...] = ()
    held_against: str | None = None


def explain(legs: Sequence[Leg], name: str, limits: Limits | None = None, changes: Sequence[str] = ()) -> Explained:
    """Everything that a run shows. Without `limits` those hold that its workloads state.

    changes: what-ifs, as in "prefill=2". Raises ValueError for one that is no change.
    """
    samples = samples_of(legs)
    asked = {
        (one.row.arm, one.row.repeat, one.row.point.label): (limits,) if limits else tuple(map(limits_of, one.limits))
        for one in samples
    }
    points = counting(samples)
    return Explained(
        build_evidence(legs, name, limits),
        analyse(points, limits),
        {place: goods for one in points if (goods := _goods(one, asked.get(place := place_of(one), ())))},
        tuple(row for change in changes for row in what_ifs_of(samples, change)),
    )


def place_of(point: Measurement) -> Place:
    """What tells a point from all others of its run."""
    return point.arm, point.repeat, point.label


def _goods(point: Measurement, limits: Sequence[Limits]) -> tuple[Goodput, ...]:
    """Goodput under each set of limits; none when the times of its requests were not kept."""
    try:
        return tuple(goodput(point, one) for one in limits)
    except RefusedError:
        return ()


def lines(explained: Explained, width: int = WIDTH) -> list[str]:
    """The run as text of at most `width` columns."""
    evidence = explained.evidence
    shown = [f"run {evidence.name}"]
    if evidence.rehearsal:
        shown += _wrapped(f"REHEARSAL: {evidence.rehearsal_note}", width)
    if not any(row.counts for row in evidence.points):
        return [*shown, "no point of this run has figures to analyse"]
    compared = compared_lines(evidence, width)
    # Of one arm alone the verdict says what to compare it with: that comes last.
    shown += compared if len(evidence.arms) > 1 else []
    for arm in evidence.arms:
        analysed = next((one for one in explained.arms if one.arm == arm.name), None)
        if analysed is not None:
            shown += _arm(arm, analysed, explained, width)
    shown += _advice(evidence, width)
    for row in explained.what_ifs:
        shown += ["", *_wrapped(row.words, width)]
    if explained.held_against:
        rows = against_lines(explained.held, explained.held_against)
        shown += [
            "",
            *(line for text in rows for line in _wrapped(text.strip(), width, text[: len(text) - len(text.lstrip())])),
        ]
    shown += [] if len(evidence.arms) > 1 else compared
    return [*shown, *_doubts(evidence, width)]


def compared_lines(evidence: Evidence, width: int = WIDTH) -> list[str]:
    """The verdicts and who wins where, at most `width` columns wide."""
    return [*_verdicts(evidence, width), *_winners(evidence, width)]


def _verdicts(evidence: Evidence, width: int) -> list[str]:
    """Each sentence once: what holds alike under several limits names them all."""
    shown: list[str] = []
    for (name, alike, _step), group in groupby(with_steps(evidence.verdicts), lambda one: _but_for_limits(one[0])):
        rows, steps = zip(*group, strict=True)
        words = alike.replace(LIMITS_HERE, any_of_limits([limits_of(row.limits) for row in rows]))
        shown += ["", *_wrapped(f"{name}: {words}", width)]
        if steps[-1]:
            shown += _wrapped(f"next: {steps[-1]}", width, "  ")
    return shown


def _but_for_limits(row: VerdictRow) -> tuple[str, str, str | None]:
    """A verdict's workload, its sentence with a mark where its limits stand, and what to measure next."""
    return row.workload, row.sentence.replace(limits_of(row.limits).words(), LIMITS_HERE), row.next_measurement


def _winners(evidence: Evidence, width: int) -> list[str]:
    """Tables of good requests a second of each arm by load, and the highest rates: one for limits that make no difference."""
    shown: list[str] = []
    per_gpu = ", winners per GPU" if set(scales(evidence.arms).values()) != {1.0} else ""
    asked = dict.fromkeys((row.workload, row.limits) for row in evidence.verdicts)
    tables = [(name, _won(name, limits, evidence, width), limits) for name, limits in asked]
    for (name, table), group in groupby(tables, lambda one: one[:2]):
        words = any_of_limits([limits_of(limits) for _name, _table, limits in group])
        what = "requests/s" if words == limits_of(NO_LIMITS).words() else f"good requests/s ({words})"
        shown += ["", *_wrapped(f"{name}, {what}{per_gpu}", width), *table] if table else []
    return shown


def _won(name: str, limits: LimitSet, evidence: Evidence, width: int) -> list[str]:
    """One workload under one set of limits: its table, and the rates below it."""
    arms = [arm.name for arm in evidence.arms]
    cells = [cell for cell in evidence.winners if (cell.workload, cell.limits) == (name, limits)]
    rates = [row for row in evidence.rates if (row.workload, row.limits) == (name, limits)]
    kept = ", ".join(f"{row.arm} {_highest(row)}" for row in rates)
    below = _wrapped(f"highest rate that keeps them: {kept}", width, "  ") if rates else []
    return [*_winners_table(arms, cells, width), *below]


def _winners_table(arms: Sequence[str], cells: Sequence[WinnerCell], width: int) -> list[str]:
    """Arms across, loads down; a line of words for each load where arms are too many or their names too long."""
    if not cells:
        return []
    rows = [
        [_load(cell.load), *(tok_s(cell.goodput[arm].mean) if arm in cell.goodput else "-" for arm in arms)]
        for cell in cells
    ]
    winners = [cell.winner or "-" for cell in cells]
    table = _aligned(["load", *arms], rows, [7, *(9 for _arm in arms)], ["winner", *winners])
    if max(map(len, table)) <= width:
        return table
    return [
        line
        for (load, *values), winner in zip(rows, winners, strict=True)
        for line in _wrapped(
            f"{load}: {', '.join(f'{arm} {value}' for arm, value in zip(arms, values, strict=True))}; winner {winner}",
            width,
            "  ",
        )
    ]


def _aligned(
    head: Sequence[str], rows: Sequence[Sequence[str]], least: Sequence[int], last: Sequence[str]
) -> list[str]:
    """Columns to the right, each at least so wide, values two blanks apart; `last` to the left, its head first."""
    wide = [max(size, len(head[at]) + 1, *(len(row[at]) + 2 for row in rows)) for at, size in enumerate(least)]
    return [
        "".join(f"{value:>{size}}" for value, size in zip(row, wide, strict=True)) + f"  {end}"
        for row, end in zip((head, *rows), last, strict=True)
    ]


def _highest(row: RateRow) -> str:
    if row.failed_s is None:
        return "not known" if row.kept_s is None else f"{row.kept_s:g}/s or more"
    if row.kept_s is None:
        return f"below {row.failed_s:g}/s"
    if row.estimate_s is None:
        return "not known: rates contradict each other"
    return f"about {row.estimate_s:.2g}/s{'' if row.settled else ' (not settled)'}"


def _load(load: Load) -> str:
    return f"{load.concurrency}" if load.loop == "closed" else f"{load.rate_s or 0:g}/s"


def _arm(arm: Arm, analysed: ArmAnalysis, explained: Explained, width: int) -> list[str]:
    shown: list[str] = []
    evidence = explained.evidence
    cells = [cell for cell in evidence.cells if cell.arm == arm.name]
    rows = {row.id: row for row in evidence.points}
    for name in dict.fromkeys(cell.workload for cell in cells):
        own = [cell for cell in cells if cell.workload == name]
        lengths = workload(rows[own[0].points[0]].point)
        shown += ["", *_wrapped(f"{arm.name}, {_servers(arm)}, {name} ({lengths})", width), *_table(own)]
        if len(evidence.legs) == 1:
            labels = {rows[one].point.label for cell in own for one in cell.points}
            shown += _details(analysed, labels, explained.goods, width)
        else:
            shown += [line for cell in own for line in _bound(cell, rows, width)]
    if len(evidence.legs) == 1:
        shown += ["", *(line for sweep in sweep_bounds(analysed) for line in _wrapped(sweep.words, width))]
    return shown + _curves(analysed, width)


def _table(cells: Iterable[Cell]) -> list[str]:
    ordered = sorted(cells, key=lambda one: (one.load.loop, one.load.concurrency or 0, one.load.rate_s or 0.0))
    rows = []
    for cell in ordered:
        means = {name: figure.mean for name, figure in cell.figures.items()}
        rates = [tok_s(means.get(name)) for name in ("request_s", "output_tok_s")]
        rows.append(
            [_load(cell.load), str(len(cell.points)), *rates, *(ms(means.get(f"{name}_ms.mean")) for name in _TIMES)]
        )
    head = ["load", "runs", "req/s", "tok/s", "TTFT ms", "TPOT ms"]
    return _aligned(head, rows, [7, 5, 9, 9, 10, 10], ["bound", *(cell.bound or "" for cell in ordered)])


def _bound(cell: Cell, rows: dict[str, PointRow], width: int) -> list[str]:
    """Why a load has its bound, in the words of its first repeat; a load that nobody can name is in the table."""
    first = rows[cell.points[0]]
    if cell.bound in (None, "cannot say") or not first.bound_words:
        return []
    return _wrapped(f"{load_words(cell.load)}: {first.bound_words}", width, "  ")


def _details(arm: ArmAnalysis, labels: set[str], goods: Mapping[Place, tuple[Goodput, ...]], width: int) -> list[str]:
    shown = []
    for one in arm.points:
        if one.point.label in labels:
            shown += [
                "",
                *_wrapped(f"{one.point.label}: {one.verdict.words}", width),
                *_of_point(one, goods.get(place_of(one.point), ()), width),
            ]
    return shown


def _of_point(one: PointAnalysis, goods: Sequence[Goodput], width: int) -> list[str]:
    shown = []
    if one.occupancy is not None:
        stages = one.occupancy
        shown.append(
            f"{stages.before_first_token:.1f} requests before their first token, {stages.decoding:.1f} decoding"
        )
    if one.verdict.settle:
        shown.append(f"to settle it: {one.verdict.settle}")
    against = [item.words for item in one.verdict.of(one.verdict.name) if item.side == "against"]
    if against:
        shown.append(f"against it: {'; '.join(against)}")
    if one.capacity and (one.point.concurrency or 0) > 1:
        cap = one.capacity
        best = f"{cap.fitted_tok_s:.0f} from the fit" if cap.fitted_tok_s else f"not known from the fit ({cap.refused})"
        shown.append(
            f"decode made {cap.ran_tok_s:.0f} tok/s; with all {cap.batch:g} requests decoding: {best}. "
            f"C/TPOT says {cap.naive_tok_s:.0f}: {cap.why_naive_misleads}"
        )
    if one.prediction:
        model = {row.name: row for row in one.prediction}["request_s"]
        shown.append(f"the closed-loop model says {model.predicted:.2f} req/s ({model.error or 0:+.0%})")
    for good in goods:
        shown.append(
            f"{good.limits.words()}: {good.good} of {good.requested} requests met it ({good.attainment:.0%}, interval "
            f"{good.low:.0%} to {good.high:.0%}), goodput {good.request_s:.2f} requests/s"
        )
    for name, why in one.refused:
        if name == "goodput":
            shown.append(f"goodput: {why}")
    flagged = "; ".join(f"{flag.seen} (wanted: {flag.wanted})" if flag.wanted else flag.seen for flag in one.flags)
    if flagged:
        shown.append(f"cannot support: {flagged}")
    return [line for text in shown for line in _wrapped(text, width, "  ")]


def _curves(arm: ArmAnalysis, width: int) -> list[str]:
    if arm.fitted is None:
        return [*_wrapped(f"no curves: {dict(arm.refused).get('fitted', '')}", width)]
    tpot = arm.fitted.tpot
    text = (
        f"TPOT(n) = {tpot.intercept:.3g} + {tpot.slope:.3g} n ms for n = {tpot.x_min:.3g} to {tpot.x_max:.3g} requests "
        f"decoding on a server, off by {tpot.worst:.0%} at most"
    )
    return [*_wrapped(text if tpot.checked else f"{text}; nothing is left to check it against", width)]


def _advice(evidence: Evidence, width: int) -> list[str]:
    rows = [f"{row.workload}, {row.arm} at {load_words(row.load)}: {row.words}" for row in evidence.advice]
    return ["", *(line for text in rows for line in _wrapped(text, width))] if rows else []


def _doubts(evidence: Evidence, width: int) -> list[str]:
    """What is left out, and what a run of arms cannot support; a run of one leg says the latter at each point."""
    out = [doubt for doubt in evidence.doubts if doubt.id in _LISTED]
    shown = [f"{_LISTED[doubt.id]}: {doubt.where}: {doubt.seen}" for doubt in out]
    shown += [f"not compared: {reason}" for reason in evidence.refused]
    if len(evidence.legs) > 1:
        kinds: dict[str, list[Doubt]] = {}
        for doubt in evidence.doubts:
            if doubt not in out:
                kinds.setdefault(doubt.id, []).append(doubt)
        for of_kind in kinds.values():
            first = of_kind[0]
            more = f", and {len(of_kind) - 1} like it" if len(of_kind) > 1 else ""
            wanted = f" (wanted: {first.wanted})" if first.wanted else ""
            shown.append(f"cannot support: {first.seen}{wanted} at {first.where}{more}")
    return ["", *(line for text in shown for line in _wrapped(text, width))] if shown else []


def _servers(arm: Arm) -> str:
    counts = ((arm.prefill, "prefill"), (arm.decode, "decode"), (arm.colocated, "colocated"))
    said = " + ".join(f"{count} {role}" for count, role in counts if count) or "servers unknown"
    return said if arm.gpus is None else f"{said} on {arm.gpus} GPU{'s' if arm.gpus != 1 else ''}"


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    # A command that is broken inside a word cannot be copied.
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_on_hyphens=False,
        break_long_words=False,
    )
