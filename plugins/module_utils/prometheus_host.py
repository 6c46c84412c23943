# SPDX-License-Identifier: GPL-3.0-or-later
"""Prometheus on a host: what is there, which steps lead to what is wanted, and whether it then does what it should."""

from __future__ import annotations

import os
import pwd
import re
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ansible_collections.pdlab.pdlab.plugins.module_utils import http_json
from ansible_collections.pdlab.pdlab.plugins.module_utils import prometheus_service as service
from ansible_collections.pdlab.pdlab.plugins.module_utils.host import packages
from ansible_collections.pdlab.pdlab.plugins.module_utils.host.machine import Machine, SettingError
from ansible_collections.pdlab.pdlab.plugins.module_utils.host.memory import Memory, memory_path
from ansible_collections.pdlab.pdlab.plugins.module_utils.processes import stop_if_controller_gone
from ansible_collections.pdlab.pdlab.plugins.module_utils.scrape_files import CONFIG, RULES, TARGETS, targets_text
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_service import reachable
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_manager import (
    ABSENT,
    FAILED,
    RUNNING,
    STARTING,
    STOPPED,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.systemd_unit import quote

POLL_S = 0.2
RELOAD_S = 5.0
LOG_LINES = "8"
# systemd's ActiveState; every other one is a stop.
_STATES = {"active": RUNNING, "reloading": RUNNING, "activating": STARTING, "failed": FAILED}
# Prometheus' own metrics that say what came of its last look at its files.
_RELOADED = re.compile(r"^prometheus_config_last_reload_(successful|success_timestamp_seconds) (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Desired:
    """The files by name, where it listens, and for how many days it keeps its data."""

    files: Mapping[str, str]
    address: str
    port: int
    retention_days: int

    @property
    def url(self) -> str:
        """Where the host itself finds it."""
        return "http://" + service.listen_address(reachable(self.address).strip("[]"), self.port)


@dataclass(frozen=True)
class Step:
    """One change: what it is, how it is made, and what it shows as a difference.

    `reads_again`: Prometheus reads its configuration and rules after it.
    """

    what: str
    make: Callable[[], None]
    diff: dict[str, str] | None = None
    reads_again: bool = False


class PrometheusHost:
    """Prometheus of the pdlab directory `root` on `machine`. `timeout_s` bounds an installation, `wait_s` a start."""

    def __init__(self, machine: Machine, root: str, timeout_s: float, wait_s: float) -> None:
        self._machine, self._root, self._timeout_s, self._wait_s = machine, root, timeout_s, wait_s
        self._folder = service.monitoring_dir(root)

    def data(self) -> str | None:
        """The folder of what it measured, None when there is none."""
        path = service.data_dir(self._root)
        return path if self._machine.is_directory(path) else None

    def version(self) -> str | None:
        """The program's version, None when there is no program."""
        if self._machine.which(service.PROGRAM) is None:
            return None
        found = re.search(r"version (\S+)", self._machine.run([service.PROGRAM, "--version"]))
        return found.group(1) if found else "unknown"

    def standing(self) -> tuple[str, int | None]:
        """What the unit does (running, starting, stopped, failed or absent), and its main process' PID.

        Another root's unit is not this one's. Needs no root.
        """
        text = self._machine.text(service.UNIT_PATH)
        if text is None or not self._is_ours(text) or not self._machine.has_systemd:
            return ABSENT, None
        shown = self._machine.run(["systemctl", "show", service.UNIT, "--property=ActiveState,MainPID"])
        properties = dict(line.partition("=")[::2] for line in shown.splitlines())
        pid = int(properties.get("MainPID") or 0) or None
        return _STATES.get(properties.get("ActiveState", ""), STOPPED), pid

    def obstacle(self) -> str | None:
        """Why it cannot be here, with what to do about that; None when it can."""
        machine = self._machine
        by_hand = "`pdlab monitoring` writes the files for a Prometheus of your own"
        if not machine.has_systemd:
            return f"systemd is not PID 1 here; {by_hand}"
        if not machine.is_root:
            return f"it needs root (ansible_become: true); {by_hand}"
        if machine.which(service.PROGRAM) is None and machine.which("apt-get") is None:
            return f"there is no apt-get to install it with; install prometheus by hand, or leave it out; {by_hand}"
        return None

    def plan_present(self, wanted: Desired) -> list[Step]:
        """The steps to a Prometheus that runs with these files. Raises SettingError when its account cannot."""
        steps = []
        self._check_way()
        program = self._machine.which(service.PROGRAM)
        if program is None:
            steps.append(Step(f"install {service.PACKAGE}", self._install, _diff("the package", "", service.PACKAGE)))
        else:
            self._account()
        if program is None or self._data_is_nobodys():
            steps.append(Step(f"make {service.data_dir(self._root)}", self._make_data))
        written = [name for name, text in wanted.files.items() if self._text(name) != text]
        steps += [self._write(name, wanted.files[name]) for name in written]
        command = service.argv(
            program or service.DEBIAN_PROGRAM, self._root, wanted.address, wanted.port, wanted.retention_days
        )
        unit = service.unit_text(command, self._root)
        now = self._machine.text(service.UNIT_PATH)
        if now is not None and not self._is_ours(now):
            raise SettingError(
                f"{service.UNIT_PATH} belongs to another pdlab on this host: undo it there first (pdlab undo), or use its "
                "pd_root"
            )
        active, enabled = self._state() if now is not None else (False, False)
        if now != unit:
            steps.append(
                Step(
                    f"write {service.UNIT}",
                    lambda: self._write_unit(unit),
                    _diff(service.UNIT_PATH, now or "", unit),
                )
            )
        if not enabled:
            steps.append(self._systemctl(f"enable {service.UNIT}", "enable", "--quiet", service.UNIT))
        if not active:
            steps.append(self._systemctl(f"start {service.UNIT}", "restart", service.UNIT))
        elif now != unit:
            steps.append(self._systemctl(f"restart {service.UNIT}", "restart", service.UNIT))
        elif {CONFIG, RULES} & set(written) or self._is_behind(wanted):
            steps.append(self._systemctl(f"reload {service.UNIT}", "reload", service.UNIT))
        return steps

    def plan_idle(self) -> list[Step]:
        """The step to a Prometheus that asks nobody; none where there is none."""
        nobody = targets_text([])
        return [self._write(TARGETS, nobody)] if self._text(TARGETS) not in (None, nobody) else []

    def plan_absent(self) -> list[Step]:
        """The steps to no Prometheus of pdlab's. What it measured stays."""
        steps = []
        unit = self._machine.text(service.UNIT_PATH)
        if unit is not None and self._is_ours(unit):
            steps.append(Step(f"remove {service.UNIT}", self._remove_unit, _diff(service.UNIT_PATH, unit, "")))
        for name in self._machine.names(self._folder):
            text = self._text(name)
            if text is not None:
                steps.append(self._remove(name, text))
        return steps

    def check(self, wanted: Desired, since: float) -> None:
        """Wait until it is ready, and has read its files after `since` (epoch, 0 for any time).

        Raises SettingError with what it said.
        """
        deadline = time.monotonic() + self._wait_s
        while True:
            ready = http_json.get(wanted.url + "/-/ready", timeout_s=5)
            if ready.ok:
                break
            state = self._machine.run(["systemctl", "show", service.UNIT, "--property=ActiveState,SubState"])
            given_up = time.monotonic() > deadline or "ActiveState=failed" in state
            # It comes back every five seconds when it dies: a port that somebody else holds never becomes free.
            if given_up or "SubState=auto-restart" in state:
                raise SettingError(f"it does not answer at {wanted.url} ({ready.describe()}){self._said()}")
            stop_if_controller_gone()
            time.sleep(POLL_S)
        # A reload takes milliseconds; what came of the one before is shown until then.
        patience = min(deadline, time.monotonic() + RELOAD_S)
        while self._read_at(wanted) < max(since, 1):
            if time.monotonic() > patience:
                raise SettingError(
                    f"it could not read its files in {self._folder}, and goes on with the old ones{self._said()}"
                )
            stop_if_controller_gone()
            time.sleep(POLL_S)

    def _read_at(self, wanted: Desired) -> float:
        """When it read its files last (epoch), 0 when it refused them then or does not answer."""
        shown = dict(_RELOADED.findall(http_json.get(wanted.url + "/metrics", timeout_s=5).text))
        return float(shown.get("success_timestamp_seconds", 0)) if shown.get("successful") == "1" else 0

    def _is_behind(self, wanted: Desired) -> bool:
        """Whether its files are newer than what it has read: a run of before ended in between."""
        paths = [os.path.join(self._folder, name) for name in (CONFIG, RULES)]
        newest = max((os.stat(path).st_mtime for path in paths if os.path.isfile(path)), default=0.0)
        return self._read_at(wanted) < newest

    def _said(self) -> str:
        lines = self._machine.run(["journalctl", "-q", "-o", "cat", "-n", LOG_LINES, "-u", service.UNIT])
        return f"; the end of its log:\n{lines.strip()}\nAll of it: journalctl -u {service.UNIT}"

    def _text(self, name: str) -> str | None:
        path = os.path.join(self._folder, name)
        return None if self._machine.is_directory(path) else self._machine.text(path)

    def _write(self, name: str, text: str) -> Step:
        path = os.path.join(self._folder, name)
        return Step(
            f"write {name}", lambda: self._machine.replace(path, text), _diff(path, self._text(name) or "", text)
        )

    def _remove(self, name: str, text: str) -> Step:
        path = os.path.join(self._folder, name)
        return Step(f"remove {name}", lambda: self._machine.replace(path, None), _diff(path, text, ""))

    def _state(self) -> tuple[bool, bool]:
        """Whether the unit runs, and whether it is started at boot."""
        shown = self._machine.run(["systemctl", "show", service.UNIT, "--property=ActiveState,UnitFileState"])
        return "ActiveState=active" in shown, "UnitFileState=enabled" in shown

    def _is_ours(self, unit: str) -> bool:
        """Whether a unit reads the files of this root, and not of another pdlab's on the same host."""
        return quote("--config.file=" + service.config_path(self._root)) in unit

    def _check_way(self) -> None:
        """Raise SettingError when only root can enter the folder: Prometheus runs as an account of its own."""
        path = self._root
        while path != "/":
            if os.path.isdir(path) and not os.stat(path).st_mode & stat.S_IXOTH:
                raise SettingError(
                    f"its account cannot enter {path}, and its files are below that: choose another pd_root, or let "
                    f"others through (chmod o+x {path})"
                )
            path = os.path.dirname(path)

    def _account(self) -> pwd.struct_passwd:
        """The package's account. Raises SettingError when there is none."""
        try:
            account = pwd.getpwnam(service.ACCOUNT)
        except KeyError:
            raise SettingError(
                f"there is a program {service.PROGRAM}, and no account {service.ACCOUNT} to run it: it is not Debian's. "
                f"Remove it and deploy again, or install Debian's: apt-get install {service.PACKAGE}"
            ) from None
        return account

    def _data_is_nobodys(self) -> bool:
        path = service.data_dir(self._root)
        return not os.path.isdir(path) or os.stat(path).st_uid != pwd.getpwnam(service.ACCOUNT).pw_uid

    def _make_data(self) -> None:
        account, path = self._account(), service.data_dir(self._root)
        os.makedirs(path, exist_ok=True)
        os.chmod(self._folder, 0o755)
        # What another installation of the package left, which had another number for the account.
        for folder, _folders, files in os.walk(path):
            for entry in (folder, *(os.path.join(folder, name) for name in files)):
                os.lchown(entry, account.pw_uid, account.pw_gid)
        os.chmod(path, 0o750)

    def _install(self) -> None:
        """Install the package, and note that: its own service is masked, since it would listen on all addresses at once."""
        machine = self._machine
        mask = not machine.exists(service.DEBIAN_MASK)
        if mask:
            os.symlink("/dev/null", machine.path(service.DEBIAN_MASK))
        try:
            packages.install(machine, [service.PACKAGE], self._timeout_s)
        finally:
            if mask:
                machine.replace(service.DEBIAN_MASK, None)
                machine.run(["systemctl", "daemon-reload"])
        if mask:
            machine.run(["systemctl", "disable", "--quiet", service.DEBIAN_UNIT])
        memory = Memory.load(machine, memory_path(self._root))
        memory.packages = sorted({*memory.packages, service.PACKAGE})
        memory.save(machine)

    def _write_unit(self, text: str) -> None:
        self._machine.replace(service.UNIT_PATH, text)
        self._machine.run(["systemctl", "daemon-reload"])

    def _remove_unit(self) -> None:
        self._machine.run(["systemctl", "disable", "--quiet", "--now", service.UNIT])
        self._machine.replace(service.UNIT_PATH, None)
        self._machine.run(["systemctl", "daemon-reload"])

    def _systemctl(self, what: str, *arguments: str) -> Step:
        def make() -> None:
            self._machine.run(["systemctl", *arguments])

        return Step(what, make, reads_again=arguments[0] in ("restart", "reload"))


def _diff(path: str, before: str, after: str) -> dict[str, str]:
    """One file's texts for a diff."""
    return {"before_header": path, "after_header": path, "before": before, "after": after}
