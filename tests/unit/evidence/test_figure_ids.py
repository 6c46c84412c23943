# SPDX-License-Identifier: Apache-2.0
"""Ids of figures: made and read back without loss, and harmless wherever they are written."""

from __future__ import annotations

import ast
import html
import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdlab.evidence import figure_ids
from pdlab.evidence.figure_ids import (
    CellFigure,
    CompareFigure,
    Figure,
    FigureIdError,
    GoodputFigure,
    PointFigure,
    RateFigure,
    RunFigure,
    TimeFigure,
    VerdictFigure,
    WinnerFigure,
    parse,
)
from pdlab.evidence.model import LimitSet, Load

ROOT = Path(__file__).resolve().parents[3]

TEXT = st.text(st.characters(exclude_categories=()), min_size=1) | st.sampled_from(figure_ids.KINDS)
NUMBER = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
LIMITS = st.builds(LimitSet, ttft_ms=st.none() | NUMBER, tpot_ms=st.none() | NUMBER, e2e_ms=st.none() | NUMBER)
LOADS = st.builds(Load, loop=st.just("closed"), concurrency=st.integers(1)) | st.builds(
    Load, loop=st.just("open"), rate_s=NUMBER
)
FIGURES = st.one_of(
    st.builds(PointFigure, TEXT, TEXT, TEXT),
    st.builds(RunFigure, TEXT, TEXT),
    st.builds(GoodputFigure, TEXT, TEXT, LIMITS),
    st.builds(CellFigure, TEXT, TEXT, LOADS, TEXT),
    st.builds(TimeFigure, TEXT, TEXT, LOADS, TEXT),
    st.builds(CompareFigure, TEXT, LOADS, TEXT, TEXT, TEXT),
    st.builds(RateFigure, TEXT, TEXT, LIMITS),
    st.builds(WinnerFigure, TEXT, LOADS, LIMITS, st.none() | TEXT),
    st.builds(VerdictFigure, TEXT, LIMITS),
)
C16 = Load(loop="closed", concurrency=16)
R4 = Load(loop="open", rate_s=4.0)
SOME = LimitSet(ttft_ms=2000, tpot_ms=6)


@given(FIGURES)
def test_a_figure_is_read_back_from_its_id_whatever_its_names_are(figure: Figure) -> None:
    assert parse(str(figure)) == figure


@given(FIGURES)
def test_an_id_is_the_same_in_an_attribute_in_a_shell_and_on_a_terminal(figure: Figure) -> None:
    text = str(figure)
    assert html.escape(text, quote=True) == text
    assert shlex.split(text) == [text]
    assert re.fullmatch(r"[A-Za-z0-9%_.][A-Za-z0-9%_.:-]*", text)


@given(FIGURES, FIGURES)
def test_two_figures_never_share_an_id(one: Figure, other: Figure) -> None:
    assert (str(one) == str(other)) == (one == other)


@given(st.text())
def test_any_other_text_is_refused_by_name_and_never_breaks(text: str) -> None:
    try:
        assert str(parse(text)) == text
    except FigureIdError as error:
        assert "is no figure's id" in str(error)
        assert "\x1b" not in str(error)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (figure_ids.point_figure("pd-r1", "c16-n48", "ttft_ms.p50"), "pd-r1:c16-n48:ttft_ms.p50"),
        (figure_ids.run_figure("pd-r0", "kv_transfer.bytes"), "run:pd-r0:kv_transfer.bytes"),
        (figure_ids.goodput_figure("pd-r0", "r4-n160", SOME), "goodput:pd-r0:r4-n160:ttft2000-tpot6"),
        (figure_ids.cell_figure("pd", "short", C16, "output_tok_s"), "cell:pd:short:c16:output_tok_s"),
        (figure_ids.time_figure("pd", "short", C16, "decode"), "time:pd:short:c16:decode"),
        (figure_ids.compare_figure("short", R4, "tpot_ms.p50", "pd", "tp2"), "compare:short:r4:tpot_ms.p50:pd:tp2"),
        (figure_ids.rate_figure("tp2", "rag", LimitSet(e2e_ms=9000.5)), "rate:tp2:rag:e2e9000.5"),
        (figure_ids.winner_figure("rag", R4, LimitSet()), "winner:rag:r4:none"),
        (figure_ids.winner_figure("rag", R4, SOME, "pd"), "winner:rag:r4:ttft2000-tpot6:pd"),
        (figure_ids.verdict_figure("short", SOME), "verdict:short:ttft2000-tpot6"),
        (figure_ids.point_figure("verdict", "-x", "a~b:c d"), "%76erdict:-x:a%7Eb%3Ac%20d"),
        (figure_ids.point_figure("-rf", "<b>", '"'), "%2Drf:%3Cb%3E:%22"),
    ],
)
def test_ids_read_as_they_are_documented(made: str, expected: str) -> None:
    assert made == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("c16-n48", "LEG:LABEL:FIELD"),
        ("cell:pd:short:16:output_tok_s", "c16"),
        ("rate:pd:short:2000", "ttft2000"),
        ("rate:pd:short:ttft1.2.3", "ttft1.2.3"),
        ("rate:pd:short:ttft2000.0", "rate:pd:short:ttft2000 is one"),
        ("pd-r0::ttft_ms.p50", "empty"),
        ("a:b:c:d:e:f:g:h", "copy one from a report"),
    ],
)
def test_a_wrong_id_is_answered_with_what_to_write(text: str, said: str) -> None:
    with pytest.raises(FigureIdError, match=re.escape(said)):
        parse(text)


def test_what_is_no_load_has_no_id() -> None:
    with pytest.raises(ValueError, match="no load"):
        figure_ids.load_word(Load(loop="closed"))
    with pytest.raises(ValueError, match="nan"):
        figure_ids.limits_word(LimitSet(ttft_ms=float("nan")))


def test_rows_of_the_evidence_get_their_ids_in_one_place() -> None:
    """Neither page nor ledger puts a row's id together itself: what one shows, the other could not find."""
    makers = {f"{kind}_figure" for kind in ("cell", "rate", "winner", "verdict", "compare")}
    for folder in ("report", "ledger", "export"):
        for path in (ROOT / "pdlab" / folder).rglob("*.py"):
            tree = ast.parse(path.read_text())
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and node.module == "pdlab.evidence.figure_ids":
                    assert not makers & {alias.name for alias in node.names}, path
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ids":
                    # A comparison that a verdict names may be of another load than the row.
                    assert node.attr not in makers - {"compare_figure"}, path
