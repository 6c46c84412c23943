# SPDX-License-Identifier: GPL-3.0-or-later
"""Services kept by systemd: system units in /etc/systemd/system, driven by systemctl, held together by one target."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

from ansible_collections.pdlab.pdlab.plugins.module_utils import processes
from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import SYSTEM_PATH
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_definition import PREFIX, ServiceDefinition
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_manager import (
    ABSENT,
    FAILED,
    RUNNING,
    STARTING,
    STOPPED,
    SYSTEMD,
    ServiceError,
    ServiceManager,
    ServiceStatus,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.systemd_shared import (
    ENABLED,
    LOGROTATE,
    logrotate_conf,
    logrotate_state,
    logrotate_text,
    shared_units,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.systemd_unit import TARGET, runtime_dir, unit_name, unit_text
from ansible_collections.pdlab.pdlab.plugins.module_utils.target_layout import under
from ansible_collections.pdlab.pdlab.plugins.module_utils.text_file import read_text, remove_file, replace_text

UNIT_DIR = "/etc/systemd/system"
# What systemd needs beyond TimeoutStopSec to kill and to clean up.
STOP_MARGIN_S = 15.0
START_TIMEOUT_S = 600.0
POLL_S = 0.05
# The sub-state in which ExecStartPre runs.
HELD_BACK = "start-pre"
_PROPERTIES = (
    "LoadState",
    "ActiveState",
    "SubState",
    "Result",
    "MainPID",
    "ExecMainPID",
    "ExecMainCode",
    "ExecMainStatus",
    "UnitFileState",
    "NeedDaemonReload",
    "Job",
)
# systemd.exec(5), Process Exit Codes.
_REFUSALS = {
    200: "the working directory cannot be entered",
    203: "the program cannot be executed; is it there, executable, and its interpreter too?",
    205: "a resource limit cannot be set",
    209: "the log file cannot be opened for writing",
    216: "there is no such group",
    217: "there is no such user",
    226: "its view of the file system cannot be made; is every folder of ReadWritePaths there?",
    233: "its folder below /run cannot be made",
}
# si_code of SIGCHLD (bits/siginfo-consts.h): how the main process ended.
_CLD_EXITED, _CLD_KILLED, _CLD_DUMPED = 1, 2, 3


class SystemdManager(ServiceManager):
    """System units of the host's pdlab directory `root`. Needs to be root, and systemd as PID 1."""

    kind = SYSTEMD

    def __init__(self, root: str, unit_dir: str = UNIT_DIR) -> None:
        self._root = root
        self._unit_dir = unit_dir
        self._written: set[str] = set()

    def path(self, name: str) -> str:
        return os.path.join(self._unit_dir, unit_name(name))

    def render(self, definition: ServiceDefinition) -> str:
        return unit_text(definition)

    def read(self, name: str) -> str | None:
        return read_text(self.path(name))

    def write(self, definition: ServiceDefinition) -> bool:
        # The environment may hold a token; systemd itself reads the file as root.
        changed = replace_text(self.path(definition.name), self.render(definition), mode=0o600)
        if changed:
            self._written.add(definition.name)
        return changed

    def remove(self, name: str) -> bool:
        if self.read(name) is None:
            return False
        self._systemctl("disable", "--quiet", unit_name(name))
        removed = remove_file(self.path(name))
        shutil.rmtree(runtime_dir(name), ignore_errors=True)
        self._systemctl("daemon-reload")
        self._systemctl("reset-failed", unit_name(name), check=False)
        self._written.discard(name)
        return removed

    def start(self, name: str) -> None:
        properties = self._show(name)
        written = name in self._written
        if written or properties["NeedDaemonReload"] == "yes" or properties["LoadState"] != "loaded":
            self._systemctl("daemon-reload")
            self._written.discard(name)
            properties = self._show(name)
        if properties["LoadState"] != "loaded":
            raise ServiceError(f"systemd cannot load {self.path(name)}: it is {properties['LoadState']}")
        if properties["UnitFileState"] == "disabled" or (written and properties["UnitFileState"] == "enabled"):
            # Anew, because an older definition may have been wanted by something else.
            self._systemctl("reenable", "--quiet", unit_name(name))
        if properties["ActiveState"] == "failed":
            self._systemctl("reset-failed", unit_name(name), check=False)
        # restart, because a job that ended well counts as active and a plain start would do nothing.
        said = self._systemctl("restart", "--no-block", unit_name(name), check=False)
        # A process that ends at once is not the manager's failure: whoever waits will see.
        status = self._until_started(name)
        refusal = refusal_of(status)
        if refusal is not None:
            self._systemctl("stop", unit_name(name), check=False)
            self._systemctl("reset-failed", unit_name(name), check=False)
            raise ServiceError(f"systemd could not start {name}: {refusal}")
        if status["ActiveState"] == "inactive" and status["Result"] == "success":
            why = said or f"something that it needs is missing; see `systemctl status {unit_name(name)}`"
            raise ServiceError(f"systemd did not start {name}: {why}")

    def stop(self, name: str, timeout_s: float) -> bool:
        before = self._show(name)
        ran = before["ActiveState"] in ("active", "activating", "deactivating", "reloading")
        if ran:
            self._systemctl("stop", unit_name(name), timeout_s=timeout_s + STOP_MARGIN_S)
        if before["ActiveState"] == "failed" or self._show(name)["ActiveState"] == "failed":
            self._systemctl("reset-failed", unit_name(name), check=False)
        if self._show(name)["ActiveState"] != "inactive":
            raise ServiceError(
                f"{name} still runs {timeout_s + STOP_MARGIN_S:.0f} s after systemd was asked to stop it"
            )
        return ran

    def status(self, name: str) -> ServiceStatus:
        if self.read(name) is None:
            return ServiceStatus(ABSENT, enabled=False)
        return parse_status(self._show(name))

    def services(self) -> list[str]:
        return sorted(path.stem for path in Path(self._unit_dir).glob(PREFIX + "*.service"))

    # --- what all services share ---

    def sharers(self) -> list[str]:
        # Not the jobs, and not what else pdlab has in this folder.
        return [name for name in self.services() if f"\nPartOf={TARGET}\n" in (self.read(name) or "")]

    def shared_files(self) -> dict[str, str]:
        units = {os.path.join(self._unit_dir, name): text for name, text in shared_units(self._root).items()}
        return {**units, logrotate_conf(self._root): logrotate_text(self._root)}

    def shared_faults(self) -> list[str]:
        wanted = self.shared_files()
        found = [f"{path} is missing or differs" for path, text in wanted.items() if read_text(path) != text]
        if found:
            return found
        shown = self._systemctl("show", *ENABLED, "--property=Id,ActiveState,UnitFileState")
        blocks = [dict(line.split("=", 1) for line in block.splitlines()) for block in shown.strip().split("\n\n")]
        states = {block["Id"]: block for block in blocks}
        for name in ENABLED:
            if states[name]["UnitFileState"] != "enabled":
                found.append(f"{name} would not be there after a reboot")
            elif states[name]["ActiveState"] != "active":
                found.append(f"{name} is not active")
        return found

    def write_shared(self) -> None:
        for path, text in self.shared_files().items():
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            replace_text(path, text, mode=0o644)
        self._systemctl("daemon-reload")
        self._systemctl("reenable", "--quiet", *ENABLED)
        # Alone: the target would otherwise start every server, also one that was stopped on purpose.
        self._systemctl("start", "--job-mode=ignore-dependencies", *ENABLED)

    def shared_doubts(self) -> list[str]:
        if os.path.exists(LOGROTATE):
            return []
        return [
            f"{LOGROTATE} is not there: a log in {under(self._root, 'logs')} is only cut when its server starts, and grows "
            "without a bound in between; apt-get install logrotate"
        ]

    def remove_shared(self) -> None:
        units = [name for name in shared_units(self._root) if os.path.exists(os.path.join(self._unit_dir, name))]
        enabled = [name for name in ENABLED if name in units]
        if enabled:
            self._systemctl("disable", "--quiet", "--now", *enabled)
        for path in self.shared_files():
            remove_file(path)
        remove_file(logrotate_state(self._root))
        self._systemctl("daemon-reload")

    def _until_started(self, name: str) -> dict[str, str]:
        """Wait while systemd starts the service, except while the service itself waits for its time."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            properties = self._show(name)
            busy = properties["Job"] not in ("", "0") and properties["SubState"] != HELD_BACK
            if not busy or time.monotonic() > deadline:
                return properties
            processes.stop_if_controller_gone()
            time.sleep(POLL_S)

    def _show(self, name: str) -> dict[str, str]:
        text = self._systemctl("show", unit_name(name), "--property=" + ",".join(_PROPERTIES))
        return dict.fromkeys(_PROPERTIES, "") | dict(line.split("=", 1) for line in text.splitlines() if "=" in line)

    def _systemctl(self, *arguments: str, timeout_s: float = 60.0, check: bool = True) -> str:
        outcome = processes.run_watched(
            ["systemctl", "--no-pager", "--no-ask-password", *arguments],
            timeout_s,
            env={"PATH": SYSTEM_PATH, "LC_ALL": "C.UTF-8"},
        )
        if check and (outcome.rc != 0 or outcome.timed_out):
            said = outcome.stderr.strip() or outcome.stdout.strip()
            late = f" (no answer in {timeout_s:.0f} s)" if outcome.timed_out else ""
            raise ServiceError(f"systemctl {' '.join(arguments)} failed{late}: {said}")
        return outcome.stdout if outcome.rc == 0 else outcome.stderr.strip()


def refusal_of(properties: dict[str, str]) -> str | None:
    """Return why systemd itself could not run the program (its exit codes 200 to 243), or None when it could."""
    if properties["ExecMainCode"] != str(_CLD_EXITED) or properties["ActiveState"] == "active":
        return None
    code = int(properties["ExecMainStatus"] or 0)
    if code not in range(200, 244):
        return None
    return f"exit code {code}: {_REFUSALS.get(code, 'see systemd.exec(5), Process Exit Codes')}"


def parse_status(properties: dict[str, str]) -> ServiceStatus:
    """Turn the properties of `systemctl show` into a status."""
    active, sub = properties["ActiveState"], properties["SubState"]
    pid = int(properties["MainPID"] or 0) or None
    exit_code = _exit_code(properties)
    detail = f"{active}/{sub}, {properties['Result']}"
    if active == "activating":
        state = STARTING
    elif active == "active":
        state = STOPPED if sub == "exited" else RUNNING
    else:
        state = FAILED if active == "failed" else STOPPED
    return ServiceStatus(
        state=state,
        pid=pid,
        exit_code=exit_code,
        started_at=processes.started_at(pid) if pid else None,
        enabled=properties["UnitFileState"] != "disabled",
        detail=detail,
        held_back=sub == HELD_BACK,
    )


def _exit_code(properties: dict[str, str]) -> int | None:
    code, status = int(properties["ExecMainCode"] or 0), int(properties["ExecMainStatus"] or 0)
    if code == _CLD_EXITED:
        return status
    if code in (_CLD_KILLED, _CLD_DUMPED):
        return -status if status in set(signal.Signals) else -signal.SIGKILL
    return None
