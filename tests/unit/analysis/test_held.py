# SPDX-License-Identifier: Apache-2.0
"""Curves of one run held against another: what they meet, what they miss, and what they do not speak of."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pdlab.analysis.held import hold
from pdlab.analysis.measurement import Servers
from pdlab.cli import app
from pdlab.evidence.against import against, against_lines
from pdlab.evidence.cells import counting, samples_of
from pdlab.evidence.legs import legs_of
from pdlab.store import RunFolder
from tests.unit.analysis.points import h200, point

RUN = Path(__file__).parents[3] / "docs" / "evidence" / "h200x2" / "rag-repeats"
PD = [one for one in h200() if one.arm == "pd"]
FIRST, SECOND = ([one for one in PD if one.repeat == repeat] for repeat in (0, 1))


def held(points, one):
    return {row.quantity: row for row in hold(points, one)}


def second(concurrency: int, input_len: int):
    (found,) = (
        one for one in SECOND if (one.concurrency, one.input_len, one.output_len) == (concurrency, input_len, 128)
    )
    return found


@pytest.mark.parametrize(
    ("load", "rate", "tpot"), [((16, 256), 0.129, 0.029), ((64, 256), -0.047, 0.052), ((16, 4096), 0.069, 0.057)]
)
def test_the_curves_of_one_run_on_two_h200s_meet_the_rate_and_tpot_of_its_repeat(
    load: tuple[int, int], rate: float, tpot: float
) -> None:
    rows = held(FIRST, second(*load))
    assert rows["request_s"].error == pytest.approx(rate, abs=1e-3)
    assert rows["tpot_ms"].error == pytest.approx(tpot, abs=1e-3)
    assert all(row.predicted / row.measured - 1 == pytest.approx(row.error) for row in rows.values())


def test_what_the_model_misses_is_said_not_hidden() -> None:
    # It has no queue before prefill below saturation; the engine had one.
    assert held(FIRST, second(16, 256))["ttft_ms"].error == pytest.approx(-0.771, abs=1e-3)


def test_a_lone_request_is_one_in_flight_and_not_less() -> None:
    rows = held(FIRST, second(1, 256))
    assert rows["request_s"].refused is None and abs(rows["request_s"].error) < 0.1


def test_nothing_is_predicted_outside_of_what_was_fitted() -> None:
    longer = replace(second(16, 256), input_len=9000)
    (first, *_rest) = held(FIRST, longer).values()
    assert first.predicted is None and first.error is None and "lies outside" in first.refused
    fuller = next(one for one in SECOND if one.output_len == 1024)
    assert "requests decoding on a server was measured from 0.4046 to 46.88" in held(FIRST, fuller)["tpot_ms"].refused


def test_curves_that_miss_their_own_points_predict_nothing() -> None:
    bent = [replace(one, request_s=one.request_s * 3) if one.concurrency == 16 else one for one in FIRST]
    assert "the model misses the measured rate" in held(bent, second(64, 256))["request_s"].refused


def test_of_an_open_loop_tpot_alone_is_predicted_at_the_load_that_was_there() -> None:
    line = [
        point(label=f"c{n}", request_s=n / 0.5, tpot_ms=4.0 + 0.1 * n, e2e_ms=None, concurrency=n) for n in (1, 4, 16)
    ]
    at_eight = point(label="r", concurrency=None, rate_s=16.0, request_s=16.0, tpot_ms=5.0, ttft_ms=100.0, e2e_ms=600.0)
    rows = held(line, at_eight)
    assert list(rows) == ["tpot_ms"]
    assert rows["tpot_ms"].predicted == pytest.approx(4.8, rel=0.05)


def test_colocated_servers_have_no_curve_to_hold_against() -> None:
    points = [replace(one, servers=Servers(0, 0, colocated=1)) for one in FIRST]
    assert "colocated" in held(points, second(16, 256))["request_s"].refused


def repeats_of(*wanted: int):
    return [leg for leg in legs_of(RunFolder.open(RUN)) if leg.repeat in wanted]


def test_two_repeats_of_pdlabs_own_run_predict_the_third_or_say_that_it_lies_outside() -> None:
    (third,) = against(repeats_of(1, 2), repeats_of(3))
    assert third.label == "pd-r3:r8-n72"
    assert third.predicted == pytest.approx(5.341, abs=1e-3) and third.error == pytest.approx(0.0166, abs=1e-3)
    (second_one,) = against(repeats_of(1, 3), repeats_of(2))
    assert second_one.predicted is None and "4.644 lies outside" in second_one.refused
    text = against_lines([third, second_one], "other")
    assert text[1] == "  pd-r3:r8-n72: 5.341 ms a token predicted, 5.254 measured (+2%)"
    assert text[2].startswith("  pd-r2:r8-n72: refused: TPOT over requests decoding")
    assert text[3] == "  ms a token: off by 2% in the middle and by 2% at most, 1 point"


def test_runs_of_other_models_or_without_a_common_arm_are_not_held_against_each_other() -> None:
    legs = repeats_of(1)
    with pytest.raises(ValueError, match="no prefill/decode arm in common"):
        against(legs, [leg for leg in legs if leg.arm == "tp2"])
    other = [replace(leg, report=leg.report.model_copy(update={"rehearsal": True})) for leg in repeats_of(2)]
    with pytest.raises(ValueError, match="other kind of run: measured on GPUs"):
        against(legs, other)
    assert [one.arm for one in counting(samples_of(legs))] == ["pd", "tp2"]


def test_the_command_prints_it_and_its_document_holds_it(tmp_path: Path) -> None:
    copy = tmp_path / "again"
    shutil.copytree(RUN, copy)
    run = CliRunner().invoke(app, ["explain", str(RUN), "--against", str(copy)])
    assert run.exit_code == 0, run.output
    assert "pd-r2:r8-n72: 5.312 ms a token predicted, 5.396 measured (-2%)" in run.output
    made = json.loads(CliRunner().invoke(app, ["explain", str(RUN), "--against", str(copy), "--json"]).output)
    assert [row["quantity"] for row in made["held"]] == ["tpot_ms"] * 3
    assert CliRunner().invoke(app, ["explain", str(RUN), "--against", str(RUN)]).exit_code == 2
