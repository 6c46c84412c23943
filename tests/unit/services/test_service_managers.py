# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import service_managers
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_log import LogMark
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_life import (
    Life,
    forget_life,
    path_of,
    read_life,
    write_life,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_manager import ServiceError
from ansible_collections.pdlab.pdlab.plugins.module_utils.supervisor_manager import (
    SupervisorManager,
    is_daemon_of,
    last_exit,
    make_private_dir,
    socket_path,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.supervisor_manager import parse_status as supervisor_status
from ansible_collections.pdlab.pdlab.plugins.module_utils.systemd_manager import parse_status as systemd_status
from ansible_collections.pdlab.pdlab.plugins.module_utils.systemd_manager import refusal_of
from ansible_collections.pdlab.pdlab.plugins.module_utils.text_file import replace_text


@pytest.mark.parametrize(
    ("asked", "systemd_is_pid_1", "user", "chosen"),
    [
        ("auto", True, 0, "systemd"),
        ("auto", True, 1000, "supervisor"),
        ("auto", False, 0, "supervisor"),
        ("supervisor", True, 0, "supervisor"),
        ("systemd", True, 0, "systemd"),
    ],
)
def test_systemd_is_chosen_where_it_is_pid_1_and_we_are_root(
    monkeypatch: pytest.MonkeyPatch, asked: str, systemd_is_pid_1: bool, user: int, chosen: str
) -> None:
    monkeypatch.setattr(service_managers.init_system, "booted_with_systemd", lambda: systemd_is_pid_1)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert service_managers.chosen_kind(asked) == chosen


@pytest.mark.parametrize(
    ("systemd_is_pid_1", "why"), [(False, "PID 1 of this host is not systemd"), (True, "needs root")]
)
def test_systemd_where_it_cannot_be_used_is_refused(
    monkeypatch: pytest.MonkeyPatch, systemd_is_pid_1: bool, why: str
) -> None:
    monkeypatch.setattr(service_managers.init_system, "booted_with_systemd", lambda: systemd_is_pid_1)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ServiceError, match=why):
        service_managers.chosen_kind("systemd")


def shown(**changes: str) -> dict[str, str]:
    """What `systemctl show` says of a running service, with changes."""
    return {
        "LoadState": "loaded",
        "ActiveState": "active",
        "SubState": "running",
        "Result": "success",
        "MainPID": str(os.getpid()),
        "ExecMainPID": str(os.getpid()),
        "ExecMainCode": "0",
        "ExecMainStatus": "0",
        "UnitFileState": "enabled",
        "NeedDaemonReload": "no",
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "state", "exit_code"),
    [
        ({}, "running", None),
        ({"ActiveState": "activating", "SubState": "start"}, "starting", None),
        ({"ActiveState": "activating", "SubState": "auto-restart", "MainPID": "0", "ExecMainCode": "2",
          "ExecMainStatus": "9"}, "starting", -9),
        ({"ActiveState": "active", "SubState": "exited", "MainPID": "0", "ExecMainCode": "1"}, "stopped", 0),
        ({"ActiveState": "failed", "SubState": "failed", "MainPID": "0", "ExecMainCode": "1",
          "ExecMainStatus": "3"}, "failed", 3),
        ({"ActiveState": "inactive", "SubState": "dead", "MainPID": "0"}, "stopped", None),
    ],
)  # fmt: skip
def test_each_state_of_systemd_has_its_word(changes: dict[str, str], state: str, exit_code: int | None) -> None:
    status = systemd_status(shown(**changes))
    assert (status.state, status.exit_code) == (state, exit_code)
    assert (status.pid is None) == ("MainPID" in changes)


def test_a_unit_that_would_not_start_at_boot_is_told() -> None:
    assert systemd_status(shown(UnitFileState="disabled")).enabled is False


@pytest.mark.parametrize(
    ("code", "refused"), [("203", True), ("217", True), ("1", False), ("3", False), ("244", False)]
)
def test_what_systemd_could_not_run_is_told_from_what_ended_by_itself(code: str, refused: bool) -> None:
    properties = shown(ActiveState="failed", MainPID="0", ExecMainCode="1", ExecMainStatus=code)
    assert (refusal_of(properties) is not None) is refused


def info(**changes: Any) -> dict[str, Any]:
    """What supervisor's getProcessInfo says of a running program, with changes."""
    return {"state": 20, "statename": "RUNNING", "pid": os.getpid(), "exitstatus": 0, "start": 1, "stop": 0,
            "spawnerr": "", **changes}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "logged", "state", "exit_code"),
    [
        ({}, None, "running", None),
        ({"state": 10, "statename": "STARTING"}, None, "running", None),
        ({"state": 10, "statename": "STARTING"}, 3, "running", 3),
        ({"state": 30, "statename": "BACKOFF", "pid": 0}, 3, "starting", 3),
        ({"state": 100, "statename": "EXITED", "pid": 0, "exitstatus": 0, "stop": 2}, 0, "stopped", 0),
        ({"state": 100, "statename": "EXITED", "pid": 0, "exitstatus": 3, "stop": 2}, 3, "failed", 3),
        ({"state": 100, "statename": "EXITED", "pid": 0, "exitstatus": -1, "stop": 2}, -9, "failed", -9),
        ({"state": 200, "statename": "FATAL", "pid": 0}, 3, "failed", 3),
        ({"state": 0, "statename": "STOPPED", "pid": 0}, None, "stopped", None),
    ],
)
def test_each_state_of_supervisor_has_its_word(
    changes: dict[str, Any], logged: int | None, state: str, exit_code: int | None
) -> None:
    status = supervisor_status(info(**changes), logged)
    assert (status.state, status.exit_code) == (state, exit_code)


@pytest.mark.parametrize(
    ("restart", "code", "state"),
    [
        ("always", 0, "starting"),
        ("always", -9, "starting"),
        ("on-failure", 3, "starting"),
        ("on-failure", 0, "stopped"),
    ],
)
def test_a_program_that_supervisor_is_about_to_start_again_is_starting(restart: str, code: int, state: str) -> None:
    exited = info(state=100, statename="EXITED", pid=0, exitstatus=max(code, -1), stop=2)
    assert supervisor_status(exited, code, restart).state == state


SUPERVISORD_LOG = """\
2026-11-29 18:00:00,1 INFO success: pdlab-x entered RUNNING state
2026-11-29 18:00:01,1 WARN exited: pdlab-x (exit status 3; not expected)
2026-11-29 18:00:02,1 WARN exited: pdlab-x-2 (exit status 7; not expected)
"""


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ("", 3),
        ("2026-11-29 18:00:03,1 WARN exited: pdlab-x (terminated by SIGKILL; not expected)\n", -9),
        ("2026-11-29 18:00:03,1 WARN exited: pdlab-x (terminated by SIGSEGV (core dumped); not expected)\n", -11),
        ("2026-11-29 18:00:03,1 INFO exited: pdlab-x (exit status 0; expected)\n", 0),
    ],
)
def test_the_last_exit_is_read_from_supervisords_log(more: str, code: int) -> None:
    assert last_exit(SUPERVISORD_LOG + more, "pdlab-x") == code


def test_no_exit_is_made_up() -> None:
    assert last_exit(SUPERVISORD_LOG, "pdlab-y") is None


def test_a_socket_path_too_long_for_the_kernel_becomes_a_short_private_one() -> None:
    long = "/srv/" + "a" * 100
    assert socket_path("/srv/pdlab/supervisor") == "/srv/pdlab/supervisor/supervisor.sock"
    assert len(socket_path(long)) < 60
    assert socket_path(long) != socket_path(long + "b")
    assert str(os.geteuid()) in socket_path(long)


def test_a_private_folder_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    make_private_dir(str(mine))
    assert mine.stat().st_mode & 0o777 == 0o700
    mine.chmod(0o755)
    with pytest.raises(ServiceError, match="not a private folder"):
        make_private_dir(str(mine))
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    with pytest.raises(ServiceError, match="not a private folder"):
        make_private_dir(str(link))


def test_a_root_that_supervisor_takes_for_a_pattern_is_refused() -> None:
    with pytest.raises(ServiceError, match="pattern"):
        SupervisorManager("/srv/[x]", "/bin/supervisord")


def test_a_supervisord_is_known_by_its_configuration() -> None:
    argv = ["/srv/pdlab/supervisor/venv/bin/python", "/srv/pdlab/supervisor/venv/bin/supervisord", "-c", "/c"]
    assert is_daemon_of(argv, "/c")
    assert not is_daemon_of(argv, "/d")
    assert not is_daemon_of(["vi", "/c"], "/c")


def test_reading_the_state_starts_nothing(tmp_path: Path) -> None:
    manager = SupervisorManager(str(tmp_path), "/no/such/supervisord")
    assert manager.status("pdlab-x").state == "absent"
    assert manager.read("pdlab-x") is None
    assert manager.services() == []
    assert list(tmp_path.iterdir()) == []


def test_a_missing_supervisord_is_named(tmp_path: Path) -> None:
    manager = SupervisorManager(str(tmp_path), "/no/such/supervisord")
    with pytest.raises(ServiceError, match="/no/such/supervisord is missing"):
        manager.start("pdlab-x")


def test_a_life_is_remembered_and_forgotten(tmp_path: Path) -> None:
    life = Life("digest", 12.5, LogMark(3, 4), None, 13.5)
    write_life(str(tmp_path), "pdlab-x", life)
    assert read_life(str(tmp_path), "pdlab-x") == life
    forget_life(str(tmp_path), "pdlab-x")
    assert read_life(str(tmp_path), "pdlab-x") is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"definition": "x"}'])
def test_a_damaged_memory_counts_as_none(tmp_path: Path, text: str) -> None:
    write_life(str(tmp_path), "pdlab-x", Life("d", 1.0, LogMark(0, 0)))
    Path(path_of(str(tmp_path), "pdlab-x")).write_text(text)
    assert read_life(str(tmp_path), "pdlab-x") is None


def test_a_text_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    assert replace_text(path, "ä\n", mode=0o600) is True
    before = os.stat(path)
    assert replace_text(path, "ä\n", mode=0o600) is False
    assert os.stat(path) == before
    assert before.st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["f"]


def test_what_an_unreaped_dead_supervisord_left_is_found(tmp_path: Path) -> None:
    """The daemon is a zombie until its parent asks for it, and must count as dead before."""
    script = (
        "import os, subprocess\nos.setsid()\n"
        "print(subprocess.Popen(['/bin/sleep', '60'], stdout=subprocess.DEVNULL, process_group=0).pid, flush=True)"
    )
    daemon = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=tmp_path)
    assert daemon.stdout is not None
    left = int(daemon.stdout.readline())
    try:
        os.waitid(os.P_PID, daemon.pid, os.WEXITED | os.WNOWAIT)
        (tmp_path / "supervisor" / "conf.d").mkdir(parents=True)
        (tmp_path / "supervisor" / "supervisord.pid").write_text(f"{daemon.pid}\n")
        (tmp_path / "supervisor" / "conf.d" / "pdlab-x.conf").write_text("")
        manager = SupervisorManager(str(tmp_path), "/no/such/supervisord")
        assert manager.processes_of("pdlab-x") == [left]
        assert "1 processes of it are left" in manager.status("pdlab-x").detail
        assert manager.stop("pdlab-x", 1) is True
        assert manager.processes_of("pdlab-x") == []
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(left, signal.SIGKILL)
        daemon.wait()


# --- whose services ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("root", "unit", "ours"),
    [
        ("/opt/pdlab", "[Service]\nWorkingDirectory=/opt/pdlab/run\n", True),
        ("/opt/pdlab", "[Service]\nWorkingDirectory=/opt/pdlab\n", True),
        ("/opt/pdlab", "[Service]\nWorkingDirectory=/opt/pdlab2/run\n", False),
        ("/opt/pdlab", "[Service]\nEnvironment=X=/opt/pdlab/run\n", False),
        ("/opt/100%", "[Service]\nWorkingDirectory=/opt/100%%/run\n", True),
        ("/opt/p.lab", "[Service]\nWorkingDirectory=/opt/pxlab/run\n", False),
    ],
)
def test_a_unit_belongs_to_the_root_that_it_works_below(root: str, unit: str, ours: bool) -> None:
    assert service_managers.works_below(unit, root) is ours


def test_every_program_below_a_root_is_found_with_its_definition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_managers.init_system, "booted_with_systemd", lambda: False)
    assert service_managers.services_of(str(tmp_path)) == {}
    folder = tmp_path / "supervisor" / "conf.d"
    folder.mkdir(parents=True)
    (folder / "pdlab-one.conf").write_text("text")
    (folder / "strangers.conf").write_text("text")
    found = service_managers.services_of(str(tmp_path))
    assert list(found) == ["pdlab-one"]
    assert (found["pdlab-one"]["manager"], found["pdlab-one"]["definition"]) == ("supervisor", "text")
