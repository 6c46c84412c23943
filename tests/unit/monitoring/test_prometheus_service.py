# SPDX-License-Identifier: Apache-2.0
"""The unit of pdlab's Prometheus, and when there can be none. What systemd makes of it: tests/integration."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import prometheus_service as service
from ansible_collections.pdlab.pdlab.plugins.module_utils.host.machine import Machine
from ansible_collections.pdlab.pdlab.plugins.module_utils.prometheus_host import Desired, PrometheusHost


def made_up(
    tmp_path: Path, *, systemd: bool = True, root: bool = True, program: str | None = "apt-get"
) -> PrometheusHost:
    if systemd:
        (tmp_path / "run/systemd/system").mkdir(parents=True)
    if program:
        (tmp_path / "usr/bin").mkdir(parents=True)
        (tmp_path / "usr/bin" / program).write_text("#!/bin/sh\n")
        (tmp_path / "usr/bin" / program).chmod(0o755)
    return PrometheusHost(Machine(str(tmp_path), is_root=root), "/opt/pdlab", 1, 1)


@pytest.mark.parametrize(
    ("shown", "state"),
    [
        ("ActiveState=active\nMainPID=4711", ("running", 4711)),
        ("ActiveState=activating\nMainPID=0", ("starting", None)),
        ("ActiveState=failed\nMainPID=0", ("failed", None)),
        ("ActiveState=inactive\nMainPID=0", ("stopped", None)),
    ],
)
def test_what_stands_is_read_off_the_unit_without_being_root(
    tmp_path: Path, shown: str, state: tuple[str, int | None]
) -> None:
    host = made_up(tmp_path, root=False, program="systemctl")
    assert host.standing() == ("absent", None), "there is no unit"
    (tmp_path / "usr/bin/systemctl").write_text(f"#!/bin/sh\necho '{shown}'\n")
    unit = tmp_path / service.UNIT_PATH.lstrip("/")
    unit.parent.mkdir(parents=True)
    unit.write_text(service.unit_text(service.argv("prometheus", "/opt/other", "::1", 9090, 7), "/opt/other"))
    assert host.standing() == ("absent", None), "it is another root's"
    unit.write_text(service.unit_text(service.argv("prometheus", "/opt/pdlab", "::1", 9090, 7), "/opt/pdlab"))
    assert host.standing() == state


def test_the_unit_binds_where_it_is_told_and_writes_nowhere_but_to_its_data() -> None:
    command = service.argv("/usr/bin/prometheus", "/srv/a b", "::1", 9090, 7)
    text = service.unit_text(command, "/srv/a b")
    assert '"--web.listen-address=[::1]:9090"' in text
    assert '"--config.file=/srv/a b/monitoring/pdlab-prometheus.yml"' in text
    assert '"--storage.tsdb.retention.time=7d"' in text
    assert 'ReadWritePaths="/srv/a b/monitoring/data"' in text
    assert "ProtectSystem=strict" in text
    assert "\nUser=prometheus\n" in text
    assert "pdlab.target" not in text, "it goes on while the servers are stopped"


def test_it_is_asked_where_its_own_host_finds_it() -> None:
    assert Desired({}, "0.0.0.0", 9090, 1).url == "http://127.0.0.1:9090"
    assert Desired({}, "::", 9090, 1).url == "http://[::1]:9090"
    assert Desired({}, "192.0.2.1", 9091, 1).url == "http://192.0.2.1:9091"


@pytest.mark.parametrize(
    ("lacks", "says"),
    [
        ({"systemd": False}, "systemd is not PID 1 here"),
        ({"root": False}, "it needs root"),
        ({"program": None}, "there is no apt-get"),
    ],
)
def test_a_host_that_cannot_have_it_says_why_and_what_else_there_is(
    tmp_path: Path, lacks: dict[str, bool], says: str
) -> None:
    why = made_up(tmp_path, **lacks).obstacle()  # type: ignore[arg-type]
    assert why is not None
    assert says in why
    assert "`pdlab monitoring` writes the files" in why


def test_a_debian_with_systemd_can_have_it(tmp_path: Path) -> None:
    assert made_up(tmp_path).obstacle() is None


def test_where_there_is_none_there_is_nothing_to_idle_or_to_remove(tmp_path: Path) -> None:
    host = made_up(tmp_path)
    assert (host.plan_idle(), host.plan_absent(), host.data()) == ([], [], None)
