# SPDX-License-Identifier: Apache-2.0
"""`pdlab explain ID`: every figure that a report shows leads to raw lines, from which it follows."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from pdlab.cli import app
from pdlab.exit_codes import Exit
from pdlab.ledger.explained import Explained, every_source, lines
from pdlab.ledger.figures import Ledger
from pdlab.ledger.json_place import Key, line_of
from pdlab.report import write_report
from pdlab.store import OK, RunFolder
from tests.unit.evidence import arms_run_factory as arms
from tests.unit.report import run_folder_factory as factory

NUMBER = re.compile(r"-?\d[\d,]*(?:\.(?P<digits>\d+))?")


def seeded(runs_dir: Path) -> RunFolder:
    return arms.seeded_run(
        runs_dir, repeats=2, failed=[("tp2-r1", "short-c64-n40")], doubtful=[("pd-r2", "rag-r4-n40")]
    )


def watched(runs_dir: Path) -> RunFolder:
    """The engine was asked during each point: where a request's time goes is known."""
    folder = factory.good_run(runs_dir)
    for number, (concurrency, prompts) in enumerate(factory.SWEEP):
        path = folder.path / "records" / f"point-c{concurrency}-n{prompts}.json"
        engine = {"prefill_waiting": 0.4 * number, "prefill_inflight": 0.1, "decode_running": 3.5}
        more = {"kv_transfer_ms": 4.25} if number else {}
        path.write_text(json.dumps({**json.loads(path.read_text()), "engine": {**engine, **more}}, indent=1))
    return folder


RUNS: list[Callable[[Path], RunFolder]] = [factory.good_run, factory.failed_point_run, watched, seeded, arms.h200_run]


@pytest.fixture(scope="module", params=RUNS, ids=["good", "failed_point", "watched", "arms", "h200"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run that ended and has its report."""
    folder: RunFolder = request.param(tmp_path_factory.mktemp("runs"))
    folder.finish(OK, 0)
    write_report(folder)
    return folder


@pytest.fixture(scope="module")
def ledger(run: RunFolder) -> Ledger:
    return Ledger(run)


class Figures(HTMLParser):
    """Every element of a page that carries a figure's id, with its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[tuple[str, int | None]] = []
        self.found: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        id = dict(attrs).get("data-figure")
        if id:
            self.found.append((id, ""))
        if id or (self.open and self.open[-1][0] == tag):
            self.open.append((tag, len(self.found) - 1 if id else None))

    def handle_endtag(self, tag: str) -> None:
        if self.open and self.open[-1][0] == tag:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        for _tag, index in self.open:
            if index is not None:
                id, text = self.found[index]
                self.found[index] = (id, text + data)


@functools.cache
def rows_of(path: Path) -> list[str]:
    return path.read_text().split("\n")


def assert_traced(folder: RunFolder, figure: Explained) -> None:
    """A figure follows from raw lines that are there."""
    assert figure.agrees, lines(figure)
    assert figure.intact
    sources = list(every_source(figure))
    for source in sources:
        assert source.state == "as when the run ended"
        if figure.value is not None:
            assert source.line is not None, (figure.id, source)
            text = rows_of(folder.path / source.file)
            last = re.split(r"[.\[\]]+", source.key.rstrip("]"))[-1]
            assert f'"{last}"' in text[source.line - 1] or source.key.endswith("]"), (figure.id, source)
    assert sources or figure.value is None or figure.inputs


def test_every_figure_of_the_evidence_leads_to_its_raw_lines(run: RunFolder, ledger: Ledger) -> None:
    ids = list(ledger.every_id())
    assert len(ids) > 30
    for id in ids:
        assert_traced(run, ledger.explain(id))


def test_every_figure_in_the_report_leads_to_its_raw_lines_and_is_shown_as_they_say(
    run: RunFolder, ledger: Ledger
) -> None:
    shown = Figures(run.report_path.read_text()).found
    assert len(shown) > 10
    for id, text in shown:
        figure = ledger.explain(id)
        assert_traced(run, figure)
        number = NUMBER.search(text)
        if number and isinstance(figure.value, float) and not id.startswith(("compare:", "rate:", "verdict:", "run:")):
            half = 0.5 * 10.0 ** -len(number["digits"] or "")
            assert abs(float(number[0].replace(",", "")) - figure.value) <= half * 1.001, (id, text, figure.value)


def test_what_the_report_shows_is_held_against_the_raw_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = factory.good_run(tmp_path)
    ledger = Ledger(folder)
    assert ledger.explain("pd-r0:c16-n48:output_tok_s").agrees
    # Changed after the evidence was built: as if a report had been edited.
    raw = json.loads(folder.raw_path("c16-n48").read_text())
    factory.write_raw(folder.path, "c16-n48", {**raw, "output_throughput": raw["output_throughput"] * 1.01})
    found = Ledger(folder)
    found.__dict__["legs"], found.__dict__["evidence"] = ledger.legs, ledger.evidence
    figure = found.explain("cell:pd:default:c16:output_tok_s")
    assert not figure.agrees
    assert "NOT what the report shows" in "\n".join(lines(figure))


def test_a_file_that_was_changed_since_is_called_that_and_has_a_status_of_its_own(tmp_path: Path) -> None:
    folder = factory.good_run(tmp_path)
    folder.finish(OK, 0)
    arguments = ["explain", "pd-r0:c16-n48:ttft_ms.p50", "--runs-dir", str(tmp_path)]
    before = CliRunner().invoke(app, arguments)
    assert before.exit_code == 0
    assert "bench/c16-n48.jsonl:1  ttfts, errors" in before.stdout
    raw = folder.raw_path("c16-n48")
    raw.write_text(raw.read_text() + "\n")
    after = CliRunner().invoke(app, arguments)
    assert after.exit_code == Exit.ALTERED
    assert "CHANGED since the run ended" in after.stdout


def test_the_measurement_is_the_last_whole_line_of_the_clients_file(tmp_path: Path) -> None:
    folder = factory.good_run(tmp_path)
    raw = folder.raw_path("c16-n48")
    raw.write_text('{"output_throughput": 1.0}\n' + raw.read_text() + '{"output_throughput": 2.0, "cut')
    (source,) = Ledger(folder).explain("pd-r0:c16-n48:output_tok_s").sources
    assert (source.line, source.state) == (2, "no manifest yet")


@pytest.mark.parametrize(
    ("id", "said"),
    [
        ("pd-r9:c16-n48:output_tok_s", "has no leg 'pd-r9'; it has pd-r0"),
        ("pd-r0:c17:output_tok_s", "no point 'c17'; it has c1-n8, c16-n48, c64-n96"),
        ("pd-r0:c16-n48:tok_s", "no figure 'tok_s'; it has output_tok_s"),
        ("cell:pd:default:c17:output_tok_s", "there is cell:pd:default:c1:"),
        ("compare:default:c16:output_tok_s:pd:tp4", "there is none"),
        ("run:pd-r0:mood", "no figure 'mood'; it has seconds"),
        ("pd-r0:label:x", "no point 'label'"),
        ("no-id:x", "LEG:LABEL:FIELD"),
    ],
)
def test_an_id_that_names_nothing_is_answered_with_what_there_is(tmp_path: Path, id: str, said: str) -> None:
    factory.good_run(tmp_path)
    done = CliRunner().invoke(app, ["explain", id, "--runs-dir", str(tmp_path)])
    assert done.exit_code == Exit.USAGE
    # No emoji for :label:, no styles for [x].
    assert said in done.stderr


def test_a_run_may_be_named_before_or_after_the_id_and_two_ids_are_refused(tmp_path: Path) -> None:
    folder = factory.good_run(tmp_path)
    factory.veto_run(tmp_path, name="20260201T120000Z-1a2b3d")
    id = "run:pd-r0:kv_transfer.bytes"
    for words in ([folder.name, id], [id, folder.name], [str(folder.path), id]):
        done = CliRunner().invoke(app, ["explain", *words, "--runs-dir", str(tmp_path), "--json"])
        assert done.exit_code == 0, done.stderr
        told = Explained.model_validate(
            {k: v for k, v in json.loads(done.stdout).items() if k not in ("agrees", "intact")}
        )
        assert told.value == 41_943_040
        assert told.sources[0].file == "records/kv_transfer.json"
    for words in ([id, id], [folder.name, folder.name]):
        assert CliRunner().invoke(app, ["explain", *words, "--runs-dir", str(tmp_path)]).exit_code == Exit.USAGE


def test_a_figure_of_runs_side_by_side_leads_into_each_of_them(tmp_path: Path) -> None:
    first = factory.good_run(tmp_path)
    second = factory.good_run(tmp_path, name="20260202T120000Z-2b2b2b")
    for folder in (first, second):
        folder.finish(OK, 0)
    arguments = ["explain", first.name, second.name, "cell:pd:default:c16:output_tok_s", "--runs-dir", str(tmp_path)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.stderr
    for folder in (first, second):
        assert f"{folder.name}/bench/c16-n48.jsonl:1  output_throughput" in done.stdout
    page = tmp_path / "comparison.html"
    made = CliRunner().invoke(app, ["compare", first.name, second.name, "-o", str(page), "--runs-dir", str(tmp_path)])
    assert made.exit_code == 0, made.stderr
    ledger, shown = Ledger([first, second]), Figures(page.read_text()).found
    assert len(shown) > 30
    for id in {*ledger.every_id(), *(id for id, _text in shown)}:
        assert ledger.explain(id).agrees, id


@pytest.mark.parametrize(
    "id",
    [
        "run:pd-r0:seconds",
        "run:pd-r0:exit_code",
        "run:pd-r0:oracle.identical",
        "run:pd-r0:answers.0.got",
        "run:pd-r0:stages.deploy.seconds",
        "pd-r0:c16-n48:requested",
        "pd-r0:c16-n48:completed",
        "pd-r0:c16-n48:seed",
        "pd-r0:c16-n48:checks.completed",
        "pd-r0:c16-n48:ttft_ms.n",
        "pd-r0:c16-n48:e2e_ms.n",
        "pd-r0:c16-n48:ttft_ms.p99",
        "goodput:pd-r0:c16-n48:ttft400-tpot15",
        "goodput:pd-r0:c16-n48:none",
    ],
)
def test_other_figures_of_a_run_lead_to_their_lines_too(tmp_path: Path, id: str) -> None:
    folder = factory.good_run(tmp_path)
    folder.finish(OK, 0)
    figure = Ledger(folder).explain(id)
    assert_traced(folder, figure)
    assert (figure.value is None) == id.endswith("p99")


def test_the_parts_of_a_requests_time_lead_to_the_engines_queues(tmp_path: Path) -> None:
    ledger = Ledger(watched(tmp_path))
    parts = {id.split(":")[-1]: ledger.explain(id) for id in ledger.every_id() if id.startswith("time:pd:default:c16:")}
    assert set(parts) >= {"queue", "prefill", "transfer", "decode"}
    assert all(part.agrees for part in parts.values())
    keys = {source.key for source in every_source(parts["queue"])}
    assert {"engine.prefill_waiting", "request_throughput"} <= keys
    whole = ledger.explain("cell:pd:default:c16:e2e_ms.mean").value
    assert sum(float(str(part.value)) for part in parts.values()) == pytest.approx(whole)


def test_means_over_samples_lead_to_every_sample_that_went_into_them(tmp_path: Path) -> None:
    folder = factory.good_run(tmp_path)
    rows = [
        {
            "time": 100.0 + number,
            "phase": "measuring" if number else "before",
            "servers": {"prefill-0": {"num_queue_reqs": number}, "decode-0": {"num_running_reqs": 10 + number % 2}},
            "box": {"load_1m": number / 2},
        }
        for number in range(9)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    folder.samples_path("c16-n48").write_text(text + '{"time": 1')
    record = folder.path / "records" / "point-c16-n48.json"
    told = {
        "engine": {
            "samples": 6,
            "prefill_waiting": 4.5,
            "decode_running": 10.5,
            "token_usage": None,
            "kv_transfers": 48.0,
        },
        "box": {"load_1m": {"min": 1.0, "mean": 2.25, "max": 3.5}, "gpus": []},
        # The client's own word for when its requests ran.
        "client": {"started": 101.5, "ended": 107.5, "cpu_share": 0.25},
    }
    record.write_text(json.dumps({**json.loads(record.read_text()), **told}, indent=1))
    folder.finish(OK, 0)
    ledger = Ledger(folder)
    figure = ledger.explain("pd-r0:c16-n48:engine.prefill_waiting")
    assert_traced(folder, figure)
    assert figure.value == 4.5
    assert [source.line for source in figure.sources] == [3, 4, 5, 6, 7, 8]
    assert "bench/c16-n48.samples.jsonl:3-8  servers.*.num_queue_reqs" in "\n".join(lines(figure))
    for field in ("engine.decode_running", "engine.token_usage", "box.load_1m.max", "box.load_1m.mean"):
        assert ledger.explain(f"pd-r0:c16-n48:{field}").agrees, field
    # What is not in the samples leads to the record.
    for field in ("engine.kv_transfers", "engine.samples", "client.cpu_share"):
        figure = ledger.explain(f"pd-r0:c16-n48:{field}")
        assert_traced(folder, figure)
        assert figure.sources[0].file == "records/point-c16-n48.json"


def test_a_mean_that_its_samples_do_not_give_is_called_that(tmp_path: Path) -> None:
    folder = watched(tmp_path)
    row = {"time": 1.0, "phase": "measuring", "servers": {"prefill-0": {"num_queue_reqs": 3}}, "box": {}}
    folder.samples_path("c16-n48").write_text("".join(json.dumps(row) + "\n" for _ in range(8)))
    figure = Ledger(folder).explain("pd-r0:c16-n48:engine.prefill_waiting")
    assert (figure.value, figure.shown, figure.agrees) == (3.0, 0.4, False)


def test_a_failed_point_has_no_figures_and_the_record_that_says_so_is_named(tmp_path: Path) -> None:
    folder = factory.failed_point_run(tmp_path)
    figure = Ledger(folder).explain("pd-r0:c16-n48:output_tok_s")
    assert figure.value is None
    assert figure.agrees
    assert (figure.sources[0].file, figure.sources[0].key) == ("records/point-c16-n48.json", "ok")


def test_raw_lines_without_per_request_values_lead_to_the_clients_own_figures(tmp_path: Path) -> None:
    folder = factory.good_run(tmp_path)
    factory.write_raw(folder.path, "c64-n96", factory.client_line(64, 96, details=False))
    figure = Ledger(folder).explain("pd-r0:c64-n96:ttft_ms.p90")
    assert figure.agrees
    assert [source.key for source in figure.sources] == ["p90_ttft_ms"]
    folder.raw_path("c64-n96").unlink()
    figure = Ledger(folder).explain("pd-r0:c64-n96:ttft_ms.p90")
    assert figure.agrees
    assert [source.key for source in figure.sources] == ["result.p90_ttft_ms"]


# --- lines of keys ------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def paths(value: object, so_far: tuple[Key, ...] = ()) -> list[tuple[tuple[Key, ...], object]]:
    found: list[tuple[tuple[Key, ...], object]] = [(so_far, value)]
    if isinstance(value, dict):
        for key, item in value.items():
            found += paths(item, (*so_far, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            found += paths(item, (*so_far, index))
    return found


@given(JSON, st.sampled_from([None, 1, 4]))
def test_a_keys_line_is_the_one_in_which_its_value_begins(document: object, indent: int | None) -> None:
    text = json.dumps(document, indent=indent)
    rows = text.split("\n")
    for keys, value in paths(document):
        number = line_of(text, keys)
        assert number is not None
        begins = json.dumps(value)[:1]
        assert begins in rows[number - 1]
        if keys and isinstance(keys[-1], str) and indent:
            assert rows[number - 1].strip().startswith(json.dumps(keys[-1]) + ": " + begins)


@given(st.text(), st.lists(st.text() | st.integers(0, 3), max_size=3))
def test_no_text_breaks_the_search_for_a_key(text: str, keys: list[Key]) -> None:
    assert line_of(text, keys) is None or line_of(text, keys) <= text.count("\n") + 1  # type: ignore[operator]
