# SPDX-License-Identifier: Apache-2.0
"""The module prometheus on a host with a real systemd and Debian's real package, and what promtool says of our files.

The package is fetched on this machine and installed by apt on the host, which has no network.
"""

from __future__ import annotations

import json
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ..promql import FILES, QUERIES, as_grafana_asks, fetch_prometheus
from .conftest import CHECKOUT, ON_HOST, Answer, Host, Target

ROOT = "/srv/pdlab"
RECORDED = CHECKOUT / "tests" / "unit" / "data" / "engine-0.5.23"
PORT = 9390
UNIT = "pdlab_prometheus.service"


def server(name: str, role: str, port: int) -> dict[str, Any]:
    return {"name": name, "role": role, "host": "box", "address": "127.0.0.1", "port": port}


def plan(*servers: dict[str, Any], interval_s: int = 1) -> dict[str, Any]:
    monitoring = {"interval_s": interval_s, "gpu_exporter_port": None}
    return {"servers": list(servers), "router": None, "hosts": {}, "monitoring": monitoring}


PREFILL, DECODE = server("prefill-0", "prefill", 30100), server("decode-0", "decode", 30101)


class HostUnderTest:
    """The host, and the module's ways to be called there."""

    def __init__(self, host: Host, target: Target) -> None:
        self.host, self.target = host, target

    def call(self, *flags: str, **options: Any) -> Answer:
        return self.target.run("pdlab.pdlab.prometheus", {"root": ROOT, **options}, *flags)

    def present(self, *flags: str, **options: Any) -> Answer:
        wanted = {"plan": plan(PREFILL, DECODE), "rules": str(FILES / "pdlab-rules.yml"), "port": PORT, **options}
        return self.call(*flags, **wanted)

    def ask(self, query: str) -> dict[str, float]:
        """An instant query's results by their label `server`."""
        url = f"http://127.0.0.1:{PORT}/api/v1/query?query={urllib.parse.quote(query)}"
        fetch = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=10).read().decode())"
        found = json.loads(self.host.run(f"python3 -c '{fetch}' '{url}'"))["data"]["result"]
        return {one["metric"].get("server", ""): float(one["value"][1]) for one in found}

    def main_pid(self) -> str:
        return self.host.run(f"systemctl show -p MainPID --value {UNIT}").strip()

    def state(self) -> str:
        return self.host.run(
            f"systemctl is-active {UNIT} prometheus.service; systemctl is-enabled {UNIT} prometheus.service",
            check=False,
        )


def until(what: Any, limit_s: float = 20) -> None:
    """Wait until `what` is true."""
    deadline = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < deadline, what
        time.sleep(0.3)


@pytest.fixture(scope="module")
def package() -> None:
    """Debian's package and what it needs, where the hosts find it."""
    why = fetch_prometheus()
    if why is not None:
        pytest.skip(why)


@pytest.fixture
def box(host: Host, systemd_target: Target, package: None) -> Iterator[HostUnderTest]:
    """The host with two stand-in servers that answer with recorded metrics; no Prometheus of pdlab's is left there."""
    # Containers forbid packages to start services; a real host does not.
    host.run("rm -f /usr/sbin/policy-rc.d")
    for role, port in (("prefill", PREFILL["port"]), ("decode", DECODE["port"])):
        host.put(RECORDED / f"metrics-{role}.txt", f"{ON_HOST}/metrics/metrics-{role}.txt")
        host.run(
            f"systemd-run -q --unit=standin-{role} -E STANDIN_METRICS={ON_HOST}/metrics/metrics-{role}.txt"
            f" -E PYTHONPATH={ON_HOST}/standin python3 -m sglang.launch_server --host 127.0.0.1 --port {port}"
        )
    under_test = HostUnderTest(host, systemd_target)
    yield under_test
    under_test.call(state="absent")
    host.run("systemctl stop standin-prefill standin-decode; systemctl reset-failed", check=False)


def test_prometheus_is_installed_asks_what_is_deployed_and_is_undone(box: HostUnderTest) -> None:
    listening = "ss -ltnH | awk '{print $4}' | sort -u"
    before = box.host.run(listening)
    said = box.present("--check", "--diff")
    assert said["actions"][0] == "install prometheus"
    assert "127.0.0.1:30100" in said["output"]
    assert box.host.run("which prometheus; ls /srv/pdlab/monitoring", check=False) == "", "check mode touches nothing"

    done = box.present()
    assert not done.failed, done.data
    assert done["actions"] == said["actions"]
    assert done["version"][0].isdigit()
    assert (said["service"]["state"], done["unit"]) == ("absent", UNIT)
    assert done["service"] == {"state": "running", "pid": int(box.main_pid())}
    assert box.state().split() == ["active", "inactive", "enabled", "disabled"], "Debian's own never ran"
    assert box.host.run("journalctl -q -u prometheus.service") == ""
    memory = json.loads(box.host.run(f"cat {ROOT}/state/host.json"))
    assert memory["packages"] == ["prometheus"], "pdlab undo names what it installed"
    until(lambda: box.ask('up{job="pdlab"}') == {"prefill-0": 1, "decode-0": 1})
    assert box.ask('sglang:kv_transfer_total_mb_count{role="prefill", host="box", arm="pd"}')["prefill-0"] > 0
    new = set(box.host.run(listening).split()) - set(before.split())
    assert new == {f"127.0.0.1:{PORT}"}, "only on the loopback address"
    again = box.present("--diff")
    assert (again["changed"], again["actions"], again.data.get("diff", [])) == (False, [], [])

    gone = box.call(state="absent")
    assert (gone.failed, gone["changed"], gone["data"]) == (False, True, f"{ROOT}/monitoring/data")
    assert box.host.run("ls /srv/pdlab/monitoring; ls /etc/systemd/system | grep prometheus || true").split() == [
        "data"
    ]
    assert box.call(state="absent")["changed"] is False


def test_new_targets_and_new_rules_do_not_restart_it(box: HostUnderTest) -> None:
    assert not box.present().failed
    pid = box.main_pid()
    until(lambda: len(box.ask("up")) == 2)

    fewer = box.present(plan=plan(DECODE))
    assert fewer["actions"] == ["write pdlab-targets.json"]
    until(lambda: list(box.ask("up")) == ["decode-0"])
    slower = box.present(plan=plan(DECODE, interval_s=2))
    assert slower["actions"] == ["write pdlab-prometheus.yml", f"reload {UNIT}"]
    assert box.main_pid() == pid

    idle = box.call(state="idle")
    assert idle["actions"] == ["write pdlab-targets.json"]
    until(lambda: box.ask("up") == {})
    assert box.call(state="idle")["changed"] is False
    assert box.main_pid() == pid

    longer = box.present(retention_days=30)
    assert f"restart {UNIT}" in longer["actions"]
    assert box.main_pid() != pid


def test_a_port_that_somebody_holds_is_said_with_prometheus_own_words(box: HostUnderTest) -> None:
    taken = box.present(port=PREFILL["port"])
    assert taken.failed
    assert "address already in use" in taken["msg"]


def test_rules_that_prometheus_refuses_are_said_with_its_own_words_and_it_goes_on(
    box: HostUnderTest, tmp_path: Path
) -> None:
    assert not box.present().failed
    pid = box.main_pid()
    wrong = tmp_path / "rules.yml"
    wrong.write_text("groups: [{name: x, rules: [{alert: A, expr: 'sum('}]}]\n")
    refused = box.present(rules=str(wrong))
    assert refused.failed
    assert "could not read its files" in refused["msg"]
    assert "parse error" in refused["msg"]
    assert box.main_pid() == pid
    # The files are right again and nobody told it: as when a run ends in between.
    box.host.put(FILES / "pdlab-rules.yml", f"{ROOT}/monitoring/pdlab-rules.yml")
    again = box.present()
    assert (again.failed, again["actions"]) == (False, [f"reload {UNIT}"])
    assert box.present()["changed"] is False
    assert box.main_pid() == pid


def test_an_admins_own_prometheus_stays_as_it_is(box: HostUnderTest) -> None:
    assert not box.present().failed
    box.call(state="absent")
    box.host.run("systemctl enable -q --now prometheus.service")
    theirs = "cat /etc/prometheus/prometheus.yml /etc/default/prometheus; systemctl show -p MainPID prometheus.service"
    before = box.host.run(theirs)
    assert not box.present().failed
    until(lambda: box.ask('up{job="pdlab"}') == {"prefill-0": 1, "decode-0": 1})
    assert box.state().split() == ["active", "active", "enabled", "enabled"]
    box.call(state="absent")
    assert box.host.run(theirs) == before
    box.host.run("systemctl disable -q --now prometheus.service")


def test_another_pdlabs_prometheus_is_neither_taken_over_nor_removed(box: HostUnderTest) -> None:
    assert not box.present().failed
    pid = box.main_pid()
    other = box.present(root="/srv/other")
    assert other.failed
    assert "belongs to another pdlab" in other["msg"]
    assert box.call(root="/srv/other", state="absent")["changed"] is False
    assert box.main_pid() == pid


def test_a_root_that_others_cannot_enter_is_refused_before_anything_is_made(box: HostUnderTest) -> None:
    refused = box.present(root="/root/pdlab")
    assert refused.failed
    assert "chmod o+x /root" in refused["msg"]


def test_promtool_finds_nothing_wrong_with_our_files_and_the_alerts_fire_when_they_should(
    box: HostUnderTest, tmp_path: Path
) -> None:
    assert not box.present().failed
    checked = box.host.run(f"promtool check config {ROOT}/monitoring/pdlab-prometheus.yml")
    assert "SUCCESS" in checked
    box.host.put(FILES / "pdlab-rules.yml", f"{ON_HOST}/rules/pdlab-rules.yml")
    box.host.put(CHECKOUT / "tests" / "integration" / "alerts.yml", f"{ON_HOST}/rules/alerts.yml")
    assert "SUCCESS" in box.host.run(f"promtool test rules {ON_HOST}/rules/alerts.yml")
    # promtool has no check of bare queries, so each of the dashboard's becomes a rule.
    assert len(QUERIES) > 50
    rules = [
        {"record": f"panel:{number}", "expr": as_grafana_asks(query, "1m")} for number, query in enumerate(QUERIES)
    ]
    (tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    box.host.put(tmp_path / "panels.yml", f"{ON_HOST}/rules/panels.yml")
    assert f"{len(QUERIES)} rules found" in box.host.run(f"promtool check rules {ON_HOST}/rules/panels.yml")
