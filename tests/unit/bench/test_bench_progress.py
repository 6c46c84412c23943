# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from ansible_collections.pdlab.pdlab.plugins.module_utils.bench_progress import (
    asked_tokens,
    progress,
    progress_line,
    read_line,
)

from tests.unit.bench.recorded import log


def test_progress_at_the_end_of_a_real_run_is_all_requests() -> None:
    assert progress(log("good")) == {"phase": "summary", "done": 12, "total": 12, "seconds": 20}


def test_progress_of_a_client_ended_in_mid_run_is_its_last_bar() -> None:
    assert progress(log("prefill_killed_ended")) == {"phase": "measuring", "done": 5, "total": 24, "seconds": 47}


def test_every_prefix_of_a_real_log_reads_without_going_back() -> None:
    order = ["starting", "loading", "warm-up", "measuring", "summary"]
    last = (0, 0)
    whole = log("good")
    for end in range(0, len(whole) + 1, 7):
        seen = progress(whole[:end])
        now = (order.index(seen["phase"]), seen["done"] or 0)
        assert now >= last
        last = now
    assert last == (4, 12)


def test_the_tail_alone_is_enough_once_the_bar_runs() -> None:
    tail = log("prefill_killed_ended")[-200:]
    assert progress(tail)["done"] == 5
    assert progress(tail)["phase"] == "measuring"


def test_hours_on_the_bar_are_counted() -> None:
    assert progress("\r 50%|#####     | 5/10 [1:02:03<1:02:03, 744.6s/it]")["seconds"] == 3723


def test_an_empty_log_is_a_client_that_starts() -> None:
    assert progress("") == {"phase": "starting", "done": None, "total": None, "seconds": None}


def test_the_tokens_that_were_asked_for_are_read_from_a_real_log() -> None:
    assert asked_tokens(log("good")) == {"input": 768, "output": 384}
    assert asked_tokens("") == {"input": None, "output": None}


def test_a_progress_line_reads_well_and_can_be_taken_apart() -> None:
    line = progress_line("c16-n48", {"phase": "measuring", "done": 31, "total": 48, "seconds": 40}, 42.4)
    assert line == "pdlab-progress: benchmark c16-n48  31/48 requests  42 s"
    assert read_line(line + "\n") == {"label": "c16-n48", "phase": "measuring", "done": 31, "total": 48, "seconds": 42}
    warm = progress_line("c1-n8", {"phase": "warm-up", "done": None, "total": None, "seconds": None}, 9)
    assert read_line(warm) == {"label": "c1-n8", "phase": "warm-up", "done": None, "total": None, "seconds": 9}
    assert read_line("TASK [benchmark : Measure]") is None


def test_the_bar_of_prompts_that_are_being_made_is_no_progress_of_the_run() -> None:
    making = "benchmark_args=x\nGenerating shared-prefix prompts: 100%|####| 12/12 [00:00<00:00, 9.00it/s]\n"
    assert progress(making) == {"phase": "loading", "done": None, "total": None, "seconds": None}
    begun = making + "Starting main benchmark run...\n"
    assert progress(begun)["phase"] == "measuring" and progress(begun)["done"] is None
    running = progress(begun + "\r 50%|##   | 6/12 [00:03<00:03, 2.00it/s]")
    assert (running["phase"], running["done"], running["seconds"]) == ("measuring", 6, 3)


def test_the_tokens_that_were_drawn_are_read_in_either_of_the_clients_words() -> None:
    shared = "Total input tokens: 768\nTotal output tokens: 384\n"
    assert asked_tokens(shared) == {"input": 768, "output": 384}
    # The table at the end says it again, of what came back.
    assert asked_tokens(shared + "Total input tokens:                      700\n")["input"] == 768
