# SPDX-License-Identifier: Apache-2.0
"""Runs in which something is missing, damaged or extreme: what is left out is said, and no sentence contradicts itself."""

from __future__ import annotations

import json
import random
import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pdlab.analysis.comparison import compare
from pdlab.cli import app
from pdlab.evidence import next_steps
from pdlab.evidence import verdict_words as words
from pdlab.evidence.build import build_evidence
from pdlab.evidence.cells import samples_of
from pdlab.evidence.figure_ids import verdict_figure
from pdlab.evidence.legs import legs_of
from pdlab.evidence.model import Arm, Evidence, LimitSet
from pdlab.evidence.side_by_side import legs_side_by_side
from pdlab.evidence.what_ifs import what_ifs_of
from pdlab.explain import explain, lines
from pdlab.ledger.figures import Ledger
from pdlab.report import write_report
from pdlab.report.arm_tables import workload_tables
from pdlab.store import RunFolder
from tests.unit.evidence.arms_run_factory import RAG, ArmsRun, client_line, planned, seeded_run

Times = tuple[Sequence[float], Sequence[float], float]
PROMPTS = 20
LIMITS = LimitSet(ttft_ms=2000, tpot_ms=8)


def times(tpot_ms: float, rate: float, seed: str, spread: float = 0.02) -> Times:
    """TTFT and TPOT of each request in s, and how long the point took."""
    draw = random.Random(seed)
    own = draw.gauss(1, spread)
    return [0.1] * PROMPTS, [tpot_ms / 1000 * own] * PROMPTS, PROMPTS / rate * draw.gauss(1, 0.01)


def rag_run(
    runs_dir: Path,
    tpot_ms: Callable[[str, int, float], float],
    repeats: Sequence[int] = (1, 2, 3),
    rates: Callable[[str, int], Sequence[float]] = lambda _arm, _repeat: (2.0, 4.0, 8.0),
    skip: Sequence[str] = (),
    failed: Sequence[tuple[str, float]] = (),
) -> RunFolder:
    """pd and tp2 under TTFT <= 2000 ms, TPOT <= 8 ms. `tpot_ms` of arm, repeat, rate. `failed`: legs' points that broke."""
    run = ArmsRun(runs_dir, ("pd", "tp2"), len(repeats))
    for repeat in repeats:
        for arm in ("pd", "tp2"):
            leg = f"{arm}-r{repeat}"
            if leg in skip:
                continue
            asked = [planned(RAG, PROMPTS, repeat, rate, prefix=False) for rate in rates(arm, repeat)]
            found = [
                (
                    one,
                    client_line(
                        one, *times(tpot_ms(arm, repeat, one["rate_s"]), one["rate_s"], f"{leg}{one['label']}")
                    ),
                )
                for one in asked
            ]
            broke = {one["label"]: "took too long" for one in asked if (leg, one["rate_s"]) in failed}
            run.leg(arm, repeat, found, broke)
    return run.end()


def evidence_of(folder: RunFolder) -> Evidence:
    return build_evidence(legs_of(folder), folder.name)


def leg_path(folder: RunFolder, leg: str) -> Path:
    return next(part.path for part in folder.leg_folders() if part.name.endswith(leg))


def fast_pd(arm: str, _repeat: int, _rate: float) -> float:
    return 6.0 if arm == "pd" else 9.0


# --- what is left out is said ------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["", '{"ttfts": [0.1', "[1]\n"], ids=["empty", "cut", "no object"])
def test_a_raw_file_without_a_whole_line_is_called_damaged_and_its_points_left_out_of_limits(
    tmp_path: Path, content: str
) -> None:
    folder = rag_run(tmp_path, lambda arm, _repeat, rate: 6.0 if arm == "pd" or rate < 8 else 9.0)
    for part in folder.leg_folders():
        part.raw_path("r8-n20").write_text(content)
    found = evidence_of(folder)
    (row,) = found.verdicts
    assert "6 points are left out, since the times of single requests were not kept" in row.sentence
    assert {doubt.where for doubt in found.doubts if doubt.id == "no_request_times"} == {
        f"{leg.id}:r8-n20" for leg in found.legs
    }
    assert {doubt.where for doubt in found.doubts if doubt.id == "damaged"} == {leg.id for leg in found.legs}
    # The other rates still tell what they tell.
    assert {rate.arm: rate.kept_s for rate in found.rates} == {"pd": 4.0, "tp2": 4.0}
    assert "at 8 requests/s can be used" in (row.next_measurement or "")
    said = "\n".join(lines(explain(legs_of(folder), folder.name)))
    assert "damaged: pd-r1: bench/r8-n20.jsonl" in said and "no limits asked of: pd-r1:r8-n20" in said


def test_one_request_without_a_time_leaves_its_point_out_of_limits_alone(tmp_path: Path) -> None:
    folder = rag_run(tmp_path, fast_pd)
    raw = RunFolder(leg_path(folder, "pd-r1")).raw_path("r8-n20")
    line = json.loads(raw.read_text())
    line["ttfts"][3] = float("nan")
    raw.write_text(json.dumps(line) + "\n")
    found = evidence_of(folder)
    assert "1 point is left out, since the times of single requests were not kept" in found.verdicts[0].sentence
    assert [doubt.where for doubt in found.doubts if doubt.id == "no_request_times"] == ["pd-r1:r8-n20"]
    assert all(row.counts for row in found.points)


@pytest.mark.parametrize(
    "change",
    [{"rate_s": None}, {"rate_s": "eight"}, {"rate_s": 0}, {"rate_s": -8.0}, {"loop": "closed"}, {"input_len": -1}],
    ids=str,
)
def test_a_point_whose_load_or_lengths_are_unknown_is_left_out_and_breaks_nothing(tmp_path: Path, change: dict) -> None:
    folder = rag_run(tmp_path, fast_pd)
    record = leg_path(folder, "pd-r1") / "records" / "point-r8-n20.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), **change}))
    found = evidence_of(folder)
    assert [row.id for row in found.points if not row.counts] == ["pd-r1:r8-n20"]
    (doubt,) = (doubt for doubt in found.doubts if doubt.id == "left_out")
    assert (
        "failed" not in doubt.seen
        and "1 point is left out, since figures or a load are missing" in found.verdicts[0].sentence
    )
    said = "\n".join(lines(explain(legs_of(folder), folder.name)))
    assert not re.search(r"\b(None|nan|inf)\b", said)
    write_report(folder)


def test_an_arm_whose_points_all_failed_a_check_was_measured_and_is_to_be_measured_again(tmp_path: Path) -> None:
    points = [(f"tp2-r{repeat}", f"rag-r{rate}-n40") for repeat in (1, 2) for rate in (2, 4, 8)]
    found = evidence_of(seeded_run(tmp_path, repeats=2, arms=("pd", "tp2"), doubtful=points))
    row = next(one for one in found.verdicts if one.workload == "rag")
    assert "Cannot tell: no point of tp2 counts" in row.sentence
    assert row.next_measurement and "NAME" not in row.next_measurement
    assert "pdlab bench -i inventory/gpu --arms pd,tp2 --workload rag --repeats 2" in row.next_measurement


def test_beyond_a_rate_at_which_an_arm_broke_no_higher_rate_is_advised(tmp_path: Path) -> None:
    broke = [(f"tp2-r{repeat}", rate) for repeat in (1, 2, 3) for rate in (4.0, 8.0)]
    row = evidence_of(rag_run(tmp_path, lambda *_: 6.0, failed=broke)).verdicts[0]
    assert row.answer == "cannot tell" and "at every rate that can be used" in row.sentence
    assert row.next_measurement
    assert row.next_measurement.startswith("no point of tp2 at 4 requests/s can be used; measure it again")


# --- figures in a sentence agree with each other -----------------------------------------------------------------


def test_the_means_beside_a_ratio_are_of_the_same_repeats(tmp_path: Path) -> None:
    """pd's third repeat, which tp2 has not, is far off: it is in no figure of the sentence."""

    def tpot(arm: str, repeat: int, rate: float) -> float:
        return 9.0 if rate > 2 and (arm == "tp2" or repeat == 3) else 6.0

    folder = rag_run(tmp_path, tpot, skip=("tp2-r3",))
    (row,) = evidence_of(folder).verdicts
    seen = re.search(r"\(([\d.]+) against ([\d.]+) a second", row.sentence)
    assert seen and row.effect
    assert float(seen[1]) / float(seen[2]) == pytest.approx(row.effect, rel=0.02)
    assert row.repeats == 2


def test_a_ratio_that_is_not_that_of_the_means_beside_it_says_so() -> None:
    found = compare("x", [7.0, 7.1, 7.3], [1.0, 7.0, 7.2])
    assert words.pair_by_pair(found, 7.13, 5.07) == " in the mean, the ratio pair by pair"
    assert words.pair_by_pair(compare("x", [7.0, 7.1], [5.0, 5.2]), 7.05, 5.1) == ""


@pytest.mark.parametrize("slow", [("pd",), ("tp2",), ("pd", "tp2")], ids=" ".join)
def test_an_arm_without_a_good_request_serves_none_whichever_it_is(tmp_path: Path, slow: Sequence[str]) -> None:
    (row,) = evidence_of(rag_run(tmp_path, lambda arm, *_: 20.0 if arm in slow else 6.0)).verdicts
    wanted = {
        ("pd",): ("do not use", "tp2 serves 8.0[0-9]? good requests a second, pd none|tp2 serves [78].* pd none"),
        ("tp2",): ("use", "pd serves .* tp2 none"),
        ("pd", "tp2"): ("cannot tell", r"neither pd nor tp2 serves a good request \(3 repeats\)"),
    }[tuple(slow)]
    assert row.answer == wanted[0] and re.search(wanted[1], row.sentence)
    assert "100 %" not in row.sentence and "+0 to +0" not in row.sentence


@pytest.mark.parametrize("ratio", [1.0004, 1.004, 0.9996, 0.99951, 1 + 1e-9])
def test_an_end_that_leaves_out_no_effect_is_not_rounded_to_it(ratio: float) -> None:
    assert float(words.factor_words(ratio)) != 1 and (float(words.factor_words(ratio)) > 1) is (ratio > 1)
    assert words.factor_words(1.0) == "1"


def test_both_ends_of_an_interval_are_in_one_unit() -> None:
    said = words.support(compare("x", [2.6, 3.4], [1.0, 1.1]))
    assert re.search(r"interval [\d.]+ to [\d.]+ times", said) and "%" not in said.replace("95 %", "")


# --- figures are worked out again as they were judged ------------------------------------------------------------


def test_a_verdict_can_be_worked_out_again_where_one_repeat_searched_further_rates(tmp_path: Path) -> None:
    """The search runs in the last repeat: its rates are no arm's best load, however good they are."""
    folder = rag_run(
        tmp_path,
        lambda arm, _repeat, _rate: 6.0 if arm == "pd" else 6.5,
        rates=lambda _arm, repeat: (2.0, 4.0, 8.0) if repeat == 3 else (2.0, 4.0),
    )
    found = Ledger(folder).explain(verdict_figure("rag", LIMITS))
    assert found.agrees and found.value is not None


# --- advice can be typed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "inventory", "options"),
    [
        (
            ["pdlab", "bench", "-i", "two gpus", "-e", "@a b.yml", "--arms", "x"],
            "/x",
            ["-i", "two gpus", "-e", "@a b.yml"],
        ),
        (["pdlab", "bench", "--inventory=two", "--repeats", "3"], "/x", ["-i", "two"]),
        (["pdlab", "up", "-e", "pd_arm=tp2", "-l", "box"], "/home/of/inventory/local", ["-l", "box"]),
        (["pdlab", "up"], "/home/of/two", ["-i", "/home/of/two"]),
        (["ansible-playbook"], None, []),
    ],
    ids=["as typed", "with equals", "the arm is chosen anew", "by a setting", "unknown"],
)
def test_advice_reaches_the_inventory_of_the_run_and_survives_a_shell(
    tmp_path: Path, command: list[str], inventory: str | None, options: list[str]
) -> None:
    folder = rag_run(tmp_path, fast_pd, repeats=(1,))
    for part in folder.leg_folders():
        part.update(command=command, inventory=inventory)
    found = evidence_of(folder)
    assert [arm.options for arm in found.arms] == [options, options]
    typed = re.search("`(.*?)`", found.verdicts[0].next_measurement or "")
    assert typed
    assert shlex.split(typed[1]) == [
        *["pdlab", "bench", *options, "--arms", "pd,tp2", "--workload", "rag", "--repeats", "5"],
    ]


def test_advice_is_never_broken_inside_a_word(tmp_path: Path) -> None:
    folder = rag_run(tmp_path, fast_pd, repeats=(1,))
    for part in folder.leg_folders():
        part.update(command=["pdlab", "bench", "-i", "/a-very/long-path/of-an/inventory-of/eight-gpus-and/two-nodes"])
    said = lines(explain(legs_of(folder), folder.name), 60)
    assert any("/a-very/long-path/of-an/inventory-of/eight-gpus-and/two-nodes" in line for line in said)


def test_odd_names_are_quoted_for_a_shell() -> None:
    arms = [Arm(name="a;$(id) <b>", disaggregated=True, prefill=1, decode=1, colocated=0, gpus=2)]
    typed = re.search("`(.*)`", next_steps.more_repeats("my work's", arms, []))
    assert typed and shlex.split(typed[1]) == [
        *["pdlab", "bench", "--arms", "a;$(id) <b>", "--workload", "my work's", "--repeats", "5"],
    ]


def test_no_effect_shown_is_not_called_level() -> None:
    """Differences around 0 with a wide spread show nothing; level has to be shown."""
    said = next_steps.more_repeats("rag", [], [5.0, -5.1, 4.9, -4.9])
    assert "hardly settle" in said and "level" not in said


# --- tables hold any number --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("name", ["tp2", "tensor-parallel-over-both-gpus-of-this-box"])
def test_columns_never_run_into_each_other_and_no_table_is_wider_than_the_terminal(
    tmp_path: Path, scale: float, name: str
) -> None:
    """Times `scale` times as long, rates as much lower."""
    run = ArmsRun(tmp_path, ("pd", name), 1)
    for arm in ("pd", name):
        asked = planned({**RAG, "limits": [{"ttft_ms": 1e12}]}, 4, 1, 8.0 / scale, prefix=False)
        line = client_line(asked, [0.1 * scale] * 4, [0.006 * scale] * 4, 0.5 * scale)
        run.leg(arm, 1, [(asked, line)], plan_of="tp2" if arm == name else arm)
    folder = run.end()
    said = lines(explain(legs_of(folder), folder.name))
    assert max(map(len, said)) <= 80
    tables = [line for line in said if re.search(r"(\S+\s+){5}cannot say$", line)]
    assert len(tables) == 2
    for line in tables:
        load, runs, rate, tokens, *_times, _cannot, _say = line.split()
        assert runs == "1" and load.endswith("/s")
        assert float(rate.replace(",", "")) == pytest.approx(8 / scale, rel=0.06)
        assert float(tokens.replace(",", "")) == pytest.approx(8 * 64 / scale, rel=0.06)


# --- one measurement is one repeat, one claim has one interval ---------------------------------------------------


def test_a_copy_of_a_run_is_no_repeat_of_it(tmp_path: Path) -> None:
    folder = rag_run(tmp_path, fast_pd, repeats=(1, 2))
    copy = RunFolder(Path(shutil.copytree(folder.path, tmp_path / "kept" / "elsewhere")))
    legs = legs_side_by_side([folder, copy])
    assert [leg.id for leg in legs] == [leg.id for leg in legs_side_by_side([folder])]
    assert {row.repeats for row in build_evidence(legs, "compared").verdicts} == {2}


@pytest.mark.parametrize(
    ("a", "b"),
    [([2.0, 2.0, 2.0], [1.0, 1.5, 1.99]), ([1.0, 50.0, 1.5], [0.5, 26.0, 0.8]), ([7.3, 7.5, 7.1], [7.7, 8.2, 7.3])],
    ids=["unlike sizes", "one large pair", "close"],
)
def test_the_interval_beside_a_claim_is_never_one_that_says_the_opposite(
    a: Sequence[float], b: Sequence[float]
) -> None:
    found = compare("x", a, b)
    said = words.support(found)
    assert found.ratio_low and found.ratio_high and found.low is not None and found.high is not None
    if "no effect shown" in said:
        shown = (found.low, found.high, 0.0) if "difference" in said else (found.ratio_low, found.ratio_high, 1.0)
        assert shown[0] <= shown[2] <= shown[1]


def test_a_table_claims_what_difference_and_ratio_both_show(tmp_path: Path) -> None:
    """TPOT of tp2 in one repeat is far off: the intervals of difference and ratio part."""
    for tpots in ((9.0, 9.2, 30.0), (6.2, 9.0, 9.1), (6.01, 6.02, 6.9)):
        folder = rag_run(
            tmp_path / f"{tpots}", lambda arm, repeat, _rate, of=tpots: 6.0 if arm == "pd" else of[repeat - 1]
        )
        found = evidence_of(folder)
        for row in found.comparisons:
            if row.claim in ("higher", "lower") and row.ratio_low and row.ratio_high:
                assert not row.ratio_low <= 1 <= row.ratio_high
            assert row.low is not None and row.high is not None
            if row.claim in ("higher", "lower"):
                assert not row.low <= 0 <= row.high
        for table in workload_tables(found):
            for claim in (claim for group in table.groups for claim in group.claims):
                ends = re.search(r"\(([\d.,]+) to ([\d.,]+)\)", claim.ratio.text)
                if claim.claim == "no effect shown" and "×" in claim.ratio.text and ends:
                    assert float(ends[1]) <= 1 <= float(ends[2])


def test_every_figure_of_a_run_with_damaged_lines_is_worked_out_as_it_is_shown(tmp_path: Path) -> None:
    folder = rag_run(tmp_path, lambda arm, *_: 6.0 if arm == "pd" else 7.9, repeats=(1, 2))
    RunFolder(leg_path(folder, "pd-r1")).raw_path("r8-n20").write_text("")
    raw = RunFolder(leg_path(folder, "tp2-r2")).raw_path("r4-n20")
    line = json.loads(raw.read_text())
    line["ttfts"][0] = float("inf")
    raw.write_text(json.dumps(line) + "\n")
    ledger = Ledger(folder)
    wrong = [id for id in ledger.every_id() if not ledger.explain(id).agrees]
    assert not wrong


# --- questions about a finished run ------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["prefill=2,prefill=3", "prefill=²", "output_len=99999999999", "prefill=2"])
def test_a_what_if_that_cannot_be_answered_is_refused_in_words(tmp_path: Path, change: str) -> None:
    """Of an open loop alone there is no closed-loop load to change."""
    folder = rag_run(tmp_path, fast_pd, repeats=(1,))
    with pytest.raises(ValueError, match=r"--what-if .*(stands there twice|must be a whole number|no arm of prefill)"):
        explain(legs_of(folder), "odd", None, [change])


def test_a_what_if_that_changes_nothing_gives_what_was(tmp_path: Path) -> None:
    made = what_ifs_of(samples_of(legs_of(seeded_run(tmp_path, repeats=1, arms=("pd", "tp2")))), "prefill=1")
    assert [one.prediction.rate_ratio for one in made if one.prediction] == [1.0]


def test_a_limit_without_an_end_is_refused(tmp_path: Path) -> None:
    folder = rag_run(tmp_path, fast_pd, repeats=(1,))
    done = CliRunner().invoke(app, ["explain", str(folder.path), "--tpot-ms", "inf"])
    assert done.exit_code == 2 and "--tpot-ms: give a number of ms" in done.output
