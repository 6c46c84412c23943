# SPDX-License-Identifier: Apache-2.0
"""One sentence for each workload and set of limits: use prefill/decode, do not, or nobody can tell. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pdlab.analysis.rate_search import HighestRate
from pdlab.evidence import next_steps
from pdlab.evidence import verdict_words as words
from pdlab.evidence.cells import Sample
from pdlab.evidence.goods import NO_LIMITS, Good, lost_rates, untimed
from pdlab.evidence.model import Arm, LimitSet, Load, VerdictRow
from pdlab.evidence.verdict_under_limits import verdict_under_limits
from pdlab.evidence.verdict_without_limits import verdict_without_limits


def verdict_of(
    workload: str,
    limits: LimitSet,
    arms: Sequence[Arm],
    samples: Sequence[Sample],
    goods: Mapping[str, Mapping[Load, Good]],
    rates: Mapping[str, HighestRate],
    *,
    refused: Sequence[str] = (),
    note: str | None = None,
) -> VerdictRow:
    """The verdict on one workload. `goods`, `rates`: of that workload under those limits, by arm.

    `note`: what it must not be taken for, said in the sentence.
    """
    row = None
    if not refused:
        if limits == NO_LIMITS:
            row = verdict_without_limits(workload, arms, samples)
        else:
            lost = {arm.name: lost_rates(samples, workload, arm.name, limits) for arm in arms}
            row = verdict_under_limits(workload, limits, arms, goods, rates, lost)
    row = row or _nothing_to_say(workload, limits, arms, samples, refused)
    out = [one.row.point for one in samples if one.row.workload == workload and not one.row.counts]
    checked = sum(point.measured and not point.counts for point in out)
    left = (
        words.left_out(checked)
        + words.left_out(sum(point.counts for point in out), "figures or a load are missing")
        + words.left_out(len(untimed(samples, workload, limits)), "the times of single requests were not kept")
    )
    beside = f" ({note})" if note else ""
    return row.model_copy(update={"sentence": f"{row.sentence}{left}{beside}."})


def with_steps(verdicts: Sequence[VerdictRow]) -> list[tuple[VerdictRow, str | None]]:
    """Each verdict and what is to be measured next, which verdicts in a row that want the same say once: the last does."""
    wanted: list[str | None] = [*(row.next_measurement for row in verdicts), None]
    return [(row, wanted[at] if wanted[at] != wanted[at + 1] else None) for at, row in enumerate(verdicts)]


def _nothing_to_say(
    workload: str, limits: LimitSet, arms: Sequence[Arm], samples: Sequence[Sample], refused: Sequence[str]
) -> VerdictRow:
    own = [one.row for one in samples if one.row.workload == workload]
    here, asked = {row.arm for row in own if row.counts}, {row.arm for row in own}
    repeats = len({row.repeat for row in own})
    measured = [arm for arm in arms if arm.name in here]
    apart = [arm.name for arm in measured if arm.disaggregated]
    others = [arm.name for arm in measured if not arm.disaggregated]
    step: str | None
    if refused:
        why, step = f"the runs are not alike: {refused[0]}", "measure all arms in one run, on the same GPUs and engine"
    elif not measured:
        why, step = "no point of it counts", next_steps.again(workload, arms, repeats)
    elif not apart or not others:
        kind = "with prefill and decode apart" if not apart else "to compare with"
        out = [arm.name for arm in arms if arm.disaggregated is not bool(apart) and arm.name in asked]
        if out:
            why = f"no point of {' or '.join(out)} counts"
            step = next_steps.again(workload, arms, repeats)
        else:
            why = f"no arm {kind} was measured on it"
            step = next_steps.a_baseline(measured, bool(apart))
    elif limits != NO_LIMITS:
        why = "the times of single requests were not kept, and limits are asked of each request"
        step = f"measure it again and keep each request's times: {next_steps.command(workload, arms, repeats)}"
    else:
        why = "the arms have no load and repeat in common"
        step = next_steps.more_repeats(workload, arms, [])
    return VerdictRow(
        workload=workload,
        limits=limits,
        answer="cannot tell",
        sentence=f"{words.opening('cannot tell')}: {why}",
        quantity="goodput_s" if limits != NO_LIMITS else "output_tok_s_per_gpu",
        effect=None,
        low=None,
        high=None,
        repeats=0,
        next_measurement=step,
    )
