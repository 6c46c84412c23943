# SPDX-License-Identifier: Apache-2.0
"""Pages of pdlab in a headless Chromium: Debian's, driven by playwright."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from pdlab.report import write_report
from pdlab.report.compare import compare, write_comparison
from pdlab.store import RunFolder
from tests.unit.evidence import arms_run_factory as arms
from tests.unit.report import run_folder_factory as factory

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDTHS = (1280, 390)
HOSTILE = """<script>window.stolen = 1</script><img src=http://192.0.2.1/x onerror="window.stolen = 1">{{ 7*7 }}"""


@dataclass
class Opened:
    """A page that was opened, and what the browser said meanwhile."""

    page: Page
    said: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


Open = Callable[..., Opened]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One browser with a new, empty profile."""
    if CHROMIUM is None:
        pytest.fail("no chromium on this machine: sudo apt-get install chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, headless=True, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Opens a file at a width, light or dark, with nothing left of pages before."""
    contexts: list[BrowserContext] = []

    def open_it(path: Path, width: int = 1280, scheme: str = "light", script: bool = True) -> Opened:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=script
        )
        contexts.append(context)
        # How long a page takes on a busy machine is not what is tested.
        context.set_default_timeout(300_000)
        opened = Opened(context.new_page())
        opened.page.on("console", lambda message: opened.said.append(f"{message.type}: {message.text}"))
        opened.page.on("pageerror", lambda error: opened.said.append(f"error: {error}"))
        opened.page.on("request", lambda request: opened.requests.append(request.url))
        opened.page.goto(path.as_uri(), wait_until="load")
        # Charts fit themselves to their places after the page is laid out.
        opened.page.wait_for_timeout(200)
        return opened

    yield open_it
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports by name: of arms with samples over time, of a rehearsal, of a failed run, of hostile text, a comparison."""
    made = {}
    runs = {
        "arms": with_samples(
            arms.seeded_run(
                tmp_path_factory.mktemp("arms"),
                doubtful=[("pd-r2", "short-c64-n40")],
                failed=[("tp2-r1", "rag-r8-n40")],
            )
        ),
        "h200": arms.h200_run(tmp_path_factory.mktemp("h200")),
        "rehearsal": factory.good_run(tmp_path_factory.mktemp("rehearsal")),
        "failed": factory.failed_point_run(tmp_path_factory.mktemp("failed")),
        "hostile": hostile_run(tmp_path_factory.mktemp("hostile")),
    }
    for name, run in runs.items():
        made[name] = write_report(run)[1]
    both = [runs["rehearsal"], runs["failed"]]
    page = tmp_path_factory.mktemp("compared") / "comparison.html"
    legs, evidence = compare(both, page, anyway=True)
    write_comparison(page, legs, evidence)
    return {**made, "comparison": page}


def with_samples(run: RunFolder) -> RunFolder:
    """The same run with what engine and box would have said over time, at each of its points."""
    for leg in run.leg_folders():
        for raw in sorted((leg.path / "bench").glob("*.jsonl")):
            label = raw.stem
            lines = [json.dumps(sample(leg.read().plan or {}, second)) for second in range(-5, 60)]
            leg.samples_path(label).write_text("\n".join(lines) + "\n")
    return run


def sample(plan: dict[str, Any], second: int) -> dict[str, Any]:
    """One second of a point that began to be measured at second 0."""
    waves = {
        name: round(4 + 3 * math.sin(second / (3 + place)), 2)
        for place, name in enumerate(
            (
                "num_queue_reqs",
                "num_prefill_bootstrap_queue_reqs",
                "num_prefill_inflight_queue_reqs",
                "num_decode_prealloc_queue_reqs",
                "num_running_reqs",
            )
        )
    }
    return {
        "time": 1769860800.0 + second,
        "phase": "warmup" if second < 0 else "measuring" if second < 55 else "after",
        "servers": {server["name"]: waves for server in plan["servers"]},
        "router": None,
        "box": {},
    }


def hostile_run(runs_dir: Path) -> RunFolder:
    """A run whose every text tries to become markup."""
    run = factory.RunMaker(runs_dir)
    run.preflight(factory.verdict_of(HOSTILE, "veto", False, HOSTILE, HOSTILE, HOSTILE, HOSTILE))
    run.stage("preflight", ok=False, why=HOSTILE)
    run.record("answers", factory.answers_record([(HOSTILE, HOSTILE, HOSTILE)]))
    run.record("server-evil", {"failed": True, "msg": HOSTILE, "name": HOSTILE, "role": HOSTILE, "argv": [HOSTILE]})
    plan = factory.plan() | {"arm": HOSTILE}
    plan["benchmark"]["name"] = HOSTILE
    for server in plan["servers"]:
        server |= {"name": HOSTILE, "role": '"><script>window.stolen = 1</script>', "host": HOSTILE}
    factory.layout.write_json(str(run.path / "plan.json"), plan)
    run.measure(1, 8)
    run.measure(16, 48, completed=3, why=[HOSTILE], error_lines=[HOSTILE])
    run.write_run(command=["pdlab", HOSTILE], inventory=HOSTILE)
    return run.end("failed", 3, HOSTILE)
