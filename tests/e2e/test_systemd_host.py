# SPDX-License-Identifier: Apache-2.0
"""The whole rehearsal on a real systemd host over ssh: deployed, rebooted, its parts killed and restarted, removed.

Needs root: the host is made by tests/testbed. The tests stand on each other, in this order.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..promql import EXPRESSIONS, QUERIES, as_grafana_asks, fetch_prometheus, metrics
from ..testbed.bed import Host
from ..testbed.rehearsal import rehearsal_hosts
from ..testbed.skipping import skipping_without_a_bed
from .conftest import BIN, CHECKOUT, Done, Pdlab, wait_for

UNITS = {"prefill": "pdlab-prefill-0", "decode": "pdlab-decode-0", "router": "pdlab-router"}
# Two heartbeats of 5 s are what decode needs to forget a prefill (sglang disaggregation/common/conn.py).
ABSENCE_S = 15
# The router asks its workers every 2 s and tries a worker that failed again after 10 s.
ROUTER_NOTICES_S = 15
START_LIMIT_S = 240
# These do not exist before the first failure.
COUNTED_WHEN_SOMETHING_FAILS = {
    "sglang:num_transfer_failed_reqs_total",
    "sglang:num_bootstrap_failed_reqs_total",
    "sglang:num_prefill_retries_total",
    "sglang:num_retracted_requests_total",
    "smg_router_request_errors_total",
    "smg_worker_retries_total",
    "smg_worker_retries_exhausted_total",
}


@dataclass
class Site:
    """The host, the inventory that describes it, and the commands of a user."""

    host: Host
    root: str
    inventory: Path
    driver: Pdlab

    def play(self, playbook: str, *arguments: str) -> Done:
        """Play one of the playbooks against the host."""
        return self.driver.playbook(str(CHECKOUT / playbook), "-i", str(self.inventory), *arguments)

    def post(self, body: dict[str, Any], limit_s: float) -> dict[str, Any]:
        """Send a chat request through the router. Raises OSError or ValueError."""
        request = urllib.request.Request(
            f"http://{self.host.address}:8000/v1/chat/completions",
            json.dumps({"model": "canary", "temperature": 0, **body}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=limit_s) as reply:
            return dict(json.load(reply))

    def right(self) -> bool:
        """Ask one known question."""
        question = {"role": "user", "content": "What is 17*23? Answer with the number only."}
        try:
            answer = self.post({"messages": [question], "max_tokens": 16}, 20)
        except (OSError, ValueError):
            return False
        return answer["choices"][0]["message"]["content"].strip() == "391"

    def prometheus(self, path: str, **parameters: str) -> Any:
        """Ask the host's Prometheus, and return the data of its answer."""
        url = f"http://{self.host.address}:9090/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as reply:
            return json.load(reply)["data"]

    def show(self, unit: str, name: str) -> str:
        """Return one property of a unit."""
        return self.host.run(f"systemctl show {unit} -P {name}").strip()

    def pids(self) -> dict[str, str]:
        """Return the main process of each part."""
        return {part: self.show(unit, "MainPID") for part, unit in UNITS.items()}

    def ready(self, port: int) -> bool:
        """Tell whether a server says that it serves."""
        return (
            self.host.run(f"curl -s -o /dev/null -m 5 -w %{{http_code}} http://127.0.0.1:{port}/ready", check=False)
            == "200"
        )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("systemd-host")
    changes = {
        # What verify proves is tested without systemd, too; here it would cost a third server's start.
        "pd_oracle": {"enabled": False},
        "pd_benchmark": {"sweep": "quick"},
        # All addresses: the tests ask it from this machine.
        "pd_monitoring": {"install": fetch_prometheus() is None, "address": "0.0.0.0", "interval_s": 1},
    }
    with (
        skipping_without_a_bed(),
        rehearsal_hosts(1, "pdlab-systemd-host", BIN / "uv", folder / "inventory", **changes) as made,
    ):
        yield Site(made.hosts[0], made.roots[0], made.inventory, Pdlab(folder / "root", folder / "runs"))


def test_the_whole_chain_runs_over_ssh_and_gives_right_answers(site: Site) -> None:
    done = site.play("site.yml")
    assert done.status == 0, done.text
    answers = site.driver.record("answers")["answers"]
    assert [answer["ok"] for answer in answers] == [True] * 3
    units = site.host.run("systemctl is-active pdlab.target pdlab_logs.timer " + " ".join(UNITS.values()))
    assert units.split() == ["active"] * 5


def test_every_server_runs_as_the_account_and_is_held_to_little(site: Site) -> None:
    owners = site.host.run("ps -eo user:32=,args= | grep -E '[s]glang' | cut -d' ' -f1 | sort -u")
    assert owners.split() == ["pdlab"]
    for unit in UNITS.values():
        verdict = site.host.run(f"systemd-analyze security {unit} --no-pager | tail -n 1")
        assert float(verdict.split(":")[1].split()[0]) < 5, verdict
    # None of that stands between UCX and the other unit: the KV cache goes from memory to memory, not over TCP.
    assert "cma/memory" in site.host.run(f"grep -h 'cma/memory' {site.root}/logs/prefill-0.log || true")
    # Only its home is its own.
    assert site.host.run(f"find {site.root} -user pdlab -not -path '{site.root}/home*'") == ""


def test_a_second_deployment_changes_nothing(site: Site) -> None:
    before = site.pids()
    done = site.play("site.yml", "--tags", "deploy")
    assert done.status == 0, done.text
    assert "changed=0 " in done.out
    assert site.pids() == before


def test_prometheus_asks_every_part_and_finds_every_metric_of_the_dashboard(site: Site) -> None:
    if site.host.run("systemctl is-active pdlab_prometheus", check=False).strip() != "active":
        pytest.skip("Debian's prometheus could not be fetched")
    assert site.right()
    # Cached tokens are counted by the cache that they came from: none are, before a prompt comes twice.
    for _ in range(2):
        site.post({"messages": [{"role": "user", "content": "one two three four " * 40}], "max_tokens": 4}, 60)
    cached = "sglang:cached_tokens_total"
    wait_for(lambda: bool(site.prometheus("query", query=cached)["result"]), 120, "cached tokens are counted")
    up = {one["metric"]["server"]: one["value"][1] for one in site.prometheus("query", query="up")["result"]}
    assert up == {"prefill-0": "1", "decode-0": "1", "router": "1"}
    there = set(site.prometheus("label/__name__/values"))
    wanted = {metric for expression in EXPRESSIONS for metric in metrics(expression)}
    missing = {metric for metric in wanted - there if not metric.startswith("DCGM_")}
    assert missing <= COUNTED_WHEN_SOMETHING_FAILS

    def silent() -> set[str]:
        """Metrics of panels that show nothing, save those that show failures. A rate needs two samples."""
        queries = (one for one in QUERIES if not site.prometheus("query", query=as_grafana_asks(one, "10m"))["result"])
        found = {metric for query in queries for metric in metrics(query) if not metric.startswith("DCGM_")}
        return found - COUNTED_WHEN_SOMETHING_FAILS

    wait_for(lambda: not silent(), 120, "every panel shows something")
    assert site.prometheus("alerts")["alerts"] == []


def test_all_comes_back_by_itself_after_a_reboot(site: Site) -> None:
    site.host.run("systemctl reboot", check=False)
    time.sleep(1)
    began = time.monotonic()
    wait_for(site.right, START_LIMIT_S, "a right answer after a reboot")
    print(f"reboot to right answer: {time.monotonic() - began:.1f} s")
    assert site.host.run("systemctl is-active pdlab.target").strip() == "active"
    done = site.play("playbooks/deploy.yml", "--check")
    assert done.status == 0 and "changed=0 " in done.out, done.text


@pytest.mark.parametrize(
    ("part", "port", "process"),
    # Of decode only a worker is killed, as by an error on a GPU: the rest of the server must go with it.
    [("router", None, "main"), ("decode", 30001, "scheduler"), ("prefill", 30000, "main")],
)
def test_a_killed_part_comes_back_and_answers(site: Site, part: str, port: int | None, process: str) -> None:
    before = site.pids()
    children = f"ps --ppid {before[part]} -o pid=,args= | grep {process} | head -n 1"
    victim = before[part] if process == "main" else site.host.run(children).split()[0]
    began = time.monotonic()
    site.host.run(f"kill -9 {victim}")
    if port is not None:
        wait_for(lambda: not site.ready(port), 10, "the killed server is away")
        wait_for(lambda: site.ready(port), START_LIMIT_S, "the killed server is back")
    back = time.monotonic()
    wait_for(site.right, ROUTER_NOTICES_S, "a right answer once the part is back")
    print(f"{part}: back after {back - began:.1f} s, right answer {time.monotonic() - back:.1f} s later")
    if part == "prefill":
        assert back - began > ABSENCE_S
    after = site.pids()
    assert {name for name in UNITS if after[name] != before[name]} == {part}


def test_restarting_prefill_by_hand_under_a_request_does_not_wedge_decode(site: Site) -> None:
    before = site.pids()
    outcome: list[Any] = []
    body = {"messages": [{"role": "user", "content": "Count."}], "max_tokens": 4000, "ignore_eos": True}

    def ask() -> None:
        try:
            outcome.append(site.post(body, 120)["usage"]["completion_tokens"])
        except (OSError, ValueError) as error:
            outcome.append(error)

    client = threading.Thread(target=ask)
    client.start()
    running = "curl -s http://127.0.0.1:30001/metrics | grep -E '^sglang:num_running_reqs[{ ].* 1.0$' || true"
    wait_for(lambda: site.host.run(running), 30, "decode works on the request")
    began = time.monotonic()
    site.host.run("systemctl restart pdlab-prefill-0", limit_s=180)
    wait_for(lambda: site.ready(30000), START_LIMIT_S, "prefill is back")
    back = time.monotonic()
    wait_for(site.right, ROUTER_NOTICES_S, "a right answer once prefill is back")
    print(f"restart of prefill: back after {back - began:.1f} s, right answer {time.monotonic() - back:.1f} s later")
    client.join(120)
    # Its KV cache was with decode already.
    assert outcome == [4000]
    after = site.pids()
    assert {name for name in UNITS if after[name] != before[name]} == {"prefill"}
    log = site.host.run(f"grep -c 'Lost connection with prefill instance' {site.root}/logs/decode-0.log || true")
    assert int(log) >= 1, "decode has noticed that prefill was away"


def test_the_target_stops_all_and_down_and_undo_remove_every_trace_but_first_shows_what_it_would_do(site: Site) -> None:
    began = time.monotonic()
    site.host.run("systemctl stop pdlab.target", limit_s=200)
    print(f"stop of pdlab.target: {time.monotonic() - began:.1f} s")
    states = site.host.run("systemctl is-active " + " ".join(UNITS.values()) + " || true")
    assert states.split() == ["inactive"] * 3
    units = "ls /etc/systemd/system/ | grep pdlab || true"
    there = site.host.run(units)
    preview = site.play("playbooks/down.yml", "--check", "--diff")
    assert preview.status == 0, preview.text
    assert "-[Service]" in preview.out
    assert site.host.run(units) == there
    done = site.play("playbooks/down.yml")
    assert done.status == 0, done.text
    again = site.play("playbooks/down.yml")
    assert "changed=0 " in again.out, again.text
    # Prometheus goes on, with nobody to ask, until it is undone.
    if site.host.run("systemctl is-active pdlab_prometheus", check=False).strip() == "active":
        wait_for(lambda: site.prometheus("targets")["activeTargets"] == [], 30, "nobody is asked any more")
    assert site.host.run("find /etc/systemd -name 'pdlab*' -not -name 'pdlab_prometheus*'") == ""
    undone = site.play("playbooks/host_undo.yml")
    assert undone.status == 0, undone.text
    traces = (
        "find /etc/systemd /run -name '*pdlab*' -not -name '*-testbed'; systemctl list-units --all --no-legend 'pdlab*'"
    )
    assert site.host.run(traces) == ""
