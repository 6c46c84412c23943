# SPDX-License-Identifier: GPL-3.0-or-later
"""Services kept by supervisor (PyPI), for hosts where PID 1 is not systemd or we are not root.

One supervisord for each pdlab root, started when it is first needed, in its own session with a clean environment.
Under root/supervisor/: supervisord.conf, conf.d/NAME.conf, starts/NAME/, supervisord.log.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import http.client
import os
import pwd
import re
import resource
import signal
import socket
import stat
import time
import xmlrpc.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import processes
from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import SYSTEM_PATH
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_definition import (
    ALWAYS,
    ON_FAILURE,
    PREFIX,
    DefinitionError,
    ServiceDefinition,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_manager import (
    ABSENT,
    FAILED,
    RUNNING,
    STARTING,
    STOPPED,
    SUPERVISOR,
    ServiceError,
    ServiceManager,
    ServiceStatus,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.supervisor_program import (
    LAUNCHER,
    SHELL,
    program_text,
    restart_of,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.target_layout import under
from ansible_collections.pdlab.pdlab.plugins.module_utils.text_file import read_text, remove_file, replace_text

# supervisord first binds PATH.PID and then links it; sun_path holds 107 bytes (unix(7)).
SOCKET_PATH_BYTES = 96
CALL_TIMEOUT_S = 10.0
DAEMON_START_S = 15.0
STOP_MARGIN_S = 10.0
# supervisord looks at its programs once a second.
RESPAWN_S = 3.0
POLL_S = 0.1
# supervisor/xmlrpc.py, Faults
_BAD_NAME, _NOT_RUNNING, _ALREADY_STARTED, _ALREADY_ADDED = 10, 70, 60, 90
_SPAWN_ERROR, _STILL_RUNNING = 50, 91
# supervisor/states.py, ProcessStates
_STATES = {0: STOPPED, 10: RUNNING, 20: RUNNING, 30: STARTING, 40: STOPPED, 100: STOPPED, 200: FAILED, 1000: FAILED}
_STOPPED, _BACKOFF, _EXITED, _FATAL = 0, 30, 100, 200
# What a server needs; raised in supervisord, which its programs inherit, as far as this user may.
_LIMITS = (
    (resource.RLIMIT_MEMLOCK, resource.RLIM_INFINITY),
    (resource.RLIMIT_NOFILE, 1048576),
    (resource.RLIMIT_STACK, 67108864),
)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=CALL_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(CALL_TIMEOUT_S)
        self.sock.connect(self._path)


class _UnixTransport(xmlrpc.client.Transport):
    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def make_connection(self, host: Any) -> http.client.HTTPConnection:
        return _UnixConnection(self._path)


class SupervisorManager(ServiceManager):
    """Programs of one supervisord."""

    kind = SUPERVISOR

    def __init__(self, root: str, supervisord: str) -> None:
        if glob.escape(root) != root:
            raise ServiceError(
                f"pd_root {root!r} has one of * ? [, which supervisor takes for a pattern; use another path"
            )
        self._root = root
        self._dir = under(root, "supervisor")
        self._supervisord = supervisord
        self._conf = under(self._dir, "supervisord.conf")
        self._socket = socket_path(self._dir)

    # --- definitions ---

    def path(self, name: str) -> str:
        return under(self._dir, "conf.d", name + ".conf")

    def render(self, definition: ServiceDefinition) -> str:
        if definition.user and os.geteuid() != 0 and definition.user != pwd.getpwuid(os.geteuid()).pw_name:
            raise DefinitionError(f"{definition.name}: user: only root can run a service as {definition.user!r}")
        return self.text(definition)

    def text(self, definition: ServiceDefinition) -> str:
        """The program's file as root would write it, whoever asks."""
        return program_text(definition, self._start_token(definition.name))

    def read(self, name: str) -> str | None:
        return read_text(self.path(name))

    def write(self, definition: ServiceDefinition) -> bool:
        text = self.render(definition)
        for folder in ("conf.d", "starts", under("starts", definition.name)):
            os.makedirs(under(self._dir, folder), mode=0o755, exist_ok=True)
        if definition.user:
            account = pwd.getpwnam(definition.user)
            os.chown(os.path.dirname(self._start_token(definition.name)), account.pw_uid, account.pw_gid)
        # The environment may hold a token.
        return replace_text(self.path(definition.name), text, mode=0o600)

    def remove(self, name: str) -> bool:
        removed = remove_file(self.path(name))
        remove_file(self._start_token(name))
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(self._start_token(name)))
        if self._answers():
            if self.services():
                self._call("reloadConfig")
                self._unload(name)
            else:
                self._shut_down()
        return removed

    def services(self) -> list[str]:
        return sorted(path.stem for path in Path(self._dir, "conf.d").glob(PREFIX + "*.conf"))

    # --- what all services share: supervisord, which start and remove look after themselves ---

    def shared_files(self) -> dict[str, str]:
        return {}

    def shared_faults(self) -> list[str]:
        return []

    def write_shared(self) -> None:
        return

    def remove_shared(self) -> None:
        return

    # --- state ---

    def status(self, name: str) -> ServiceStatus:
        text = self.read(name)
        if text is None:
            return ServiceStatus(ABSENT, enabled=False)
        if not self._answers():
            left = len(self._lost())
            lost = ServiceStatus(FAILED, detail=f"supervisord is gone, and {left} processes of it are left")
            return lost if left else ServiceStatus(STOPPED)
        info = self._info(name)
        return ServiceStatus(STOPPED) if info is None else parse_status(info, self._last_exit(name), restart_of(text))

    def start(self, name: str) -> None:
        with self._lock():
            self._ensure_daemon()
        info = self._info(name)
        if info is not None and (info["pid"] or info["state"] == _BACKOFF):
            self._stop_and_wait(name, None)
        self._end_leftovers()
        with self._lock():
            self._call("reloadConfig")
            self._unload(name)
            Path(self._start_token(name)).touch()
            # Adding a group starts its program when that is autostart; asking again is then answered "started".
            with _tolerating(_ALREADY_ADDED):
                self._call("addProcessGroup", name)
            with _tolerating(_ALREADY_STARTED, _SPAWN_ERROR):
                self._call("startProcess", name, False)

    def stop(self, name: str, timeout_s: float) -> bool:
        if not self._answers():
            return self._end_lost()
        info = self._info(name)
        if info is None:
            return False
        # It takes no stop while it has exited and is about to be started again.
        soon = time.monotonic() + RESPAWN_S
        while info["state"] == _EXITED and self.status(name).state == STARTING and time.monotonic() < soon:
            time.sleep(0.1)
            info = self._info(name) or info
        ran = bool(info["pid"]) or info["state"] == _BACKOFF
        if ran:
            self._stop_and_wait(name, timeout_s)
        self._end_leftovers()
        return ran

    def _stop_and_wait(self, name: str, timeout_s: float | None) -> None:
        with _tolerating(_NOT_RUNNING):
            self._call("stopProcess", name, False)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s + STOP_MARGIN_S
        while True:
            info = self._info(name)
            if info is None or (not info["pid"] and info["state"] in (_STOPPED, _EXITED, _FATAL)):
                return
            if deadline is not None and time.monotonic() > deadline:
                raise ServiceError(
                    f"{name} (PID {info['pid']}) still runs {timeout_s:.0f} s after supervisor was asked to stop it"
                )
            processes.stop_if_controller_gone()
            time.sleep(POLL_S)

    def _unload(self, name: str) -> None:
        """Make supervisord forget a stopped program, so that adding it again reads the file anew."""
        with _tolerating(_BAD_NAME):
            self._call("removeProcessGroup", name)

    def processes_of(self, name: str) -> list[int]:
        if not self._answers():
            return [process.pid for process in self._lost()]
        return super().processes_of(name) + self._leftovers()

    def _leftovers(self) -> list[int]:
        """Return processes of lives that are over: in supervisord's session, but below no program that runs now.

        A main process that was killed can leave workers behind that still hold its ports and GPU memory.
        """
        daemon = int(self._call("getPID"))
        # The table first: a program that starts between the two reads is then known, not left over.
        table = processes.all_processes()
        if daemon not in table:
            return []
        mains = [int(info["pid"]) for info in self._call("getAllProcessInfo") if info["pid"]]
        living = {pid for main in mains for pid in processes.process_tree(main, table)} | {daemon, *mains}
        kept = {table[pid].group for pid in living if pid in table}
        session = table[daemon].session
        return [p.pid for p in table.values() if p.session == session and p.state not in "ZX" and p.group not in kept]

    def _end_leftovers(self) -> None:
        for group in {process.group for process in map(processes.read_process, self._leftovers()) if process}:
            processes.end_group(group, grace_s=3.0)

    def _info(self, name: str) -> dict[str, Any] | None:
        try:
            return dict(self._call("getProcessInfo", name))
        except xmlrpc.client.Fault as fault:
            if fault.faultCode == _BAD_NAME:
                return None
            raise ServiceError(f"supervisord would not say how {name} is: {fault.faultString}") from fault

    def _last_exit(self, name: str) -> int | None:
        """Return how the last life ended, from supervisord's log: its interface forgets it at the next start."""
        try:
            with open(under(self._dir, "supervisord.log"), "rb") as stream:
                stream.seek(max(0, stream.seek(0, os.SEEK_END) - 65536))
                return last_exit(stream.read().decode("utf-8", "replace"), name)
        except OSError:
            return None

    def _start_token(self, name: str) -> str:
        return under(self._dir, "starts", name, "now")

    # --- the daemon ---

    def _call(self, method: str, *arguments: Any) -> Any:
        proxy = xmlrpc.client.ServerProxy("http://localhost/RPC2", transport=_UnixTransport(self._socket))
        try:
            return getattr(proxy.supervisor, method)(*arguments)
        except xmlrpc.client.Fault:
            raise
        except (OSError, http.client.HTTPException, xmlrpc.client.Error) as error:
            raise ServiceError(f"supervisord at {self._socket} does not answer {method}: {error}") from error

    def _answers(self) -> bool:
        """Tell whether our supervisord runs. One that is there and does not answer in time is an error, not absent."""
        try:
            return bool(self._call("getState")["statename"] == "RUNNING")
        except xmlrpc.client.Fault:
            return False  # it is shutting down
        except ServiceError as error:
            if isinstance(error.__cause__, (FileNotFoundError, ConnectionError)):
                return False
            raise

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        os.makedirs(self._dir, mode=0o755, exist_ok=True)
        with open(under(self._dir, "lock"), "w") as stream:
            while True:
                try:
                    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    processes.stop_if_controller_gone()
                    time.sleep(POLL_S)
            yield

    def _ensure_daemon(self) -> None:
        if self._answers():
            return
        if not os.access(self._supervisord, os.X_OK):
            raise ServiceError(
                f"{self._supervisord} is missing or cannot be run, so no service can be started; install "
                "supervisor there (the engine role does) and run again"
            )
        self._end_lost()
        make_private_dir(os.path.dirname(self._socket), shared=os.path.dirname(self._socket) == self._dir)
        for folder in ("conf.d", "starts"):
            os.makedirs(under(self._dir, folder), mode=0o755, exist_ok=True)
        replace_text(self._conf, daemon_config(self._dir, self._socket), mode=0o600)
        remove_file(self._socket)
        outcome = processes.run_watched(
            [self._supervisord, "-c", self._conf],
            DAEMON_START_S,
            env={"PATH": SYSTEM_PATH, "LANG": "C.UTF-8", "PYTHONUTF8": "1", "HOME": os.path.expanduser("~")},
            cwd="/",
            before=raise_limits,
        )
        deadline = time.monotonic() + DAEMON_START_S
        while outcome.rc == 0 and time.monotonic() < deadline:
            if self._answers():
                return
            processes.stop_if_controller_gone()
            time.sleep(POLL_S)
        log = (read_text(under(self._dir, "supervisord.log")) or "").splitlines()[-5:]
        said = "\n".join([*outcome.stdout.splitlines(), *outcome.stderr.splitlines(), *log])
        raise ServiceError(f"supervisord did not start ({self._supervisord} -c {self._conf}):\n{said}")

    def _lost(self) -> list[processes.Process]:
        """Return what is left of a supervisord of this root that does not answer, the daemon itself included.

        It may have been killed, or its folder removed under it. Its programs are in its session and keep running.
        """
        table = {pid: process for pid, process in processes.all_processes().items() if process.state not in "ZX"}
        daemons = {p.pid for p in table.values() if is_daemon_of(processes.command_line(p.pid), self._conf)}
        recorded = (read_text(under(self._dir, "supervisord.pid")) or "").strip()
        # While a process of a session lives its number is not given to another; a leader that is not ours is.
        if recorded.isdigit() and int(recorded) not in table:
            daemons.add(int(recorded))
        return [p for p in table.values() if p.session in daemons and self._is_ours(p.pid)]

    def _is_ours(self, pid: int) -> bool:
        """Tell whether a process is a supervisord of this root or works in this root, as its programs do."""
        try:
            folder = os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            return False
        below = folder == self._root or folder.startswith(self._root + "/")
        return below or is_daemon_of(processes.command_line(pid), self._conf)

    def _end_lost(self) -> bool:
        """End what a lost supervisord left, it first, or it would start its programs again; return whether any was."""
        lost = self._lost()
        for process in lost:
            if process.pid == process.session:
                with contextlib.suppress(OSError):
                    os.kill(process.pid, signal.SIGKILL)
        for group in sorted({process.group for process in lost}):
            processes.end_group(group, grace_s=STOP_MARGIN_S)
        return bool(lost)

    def _shut_down(self) -> None:
        """End supervisord, which has nothing left to keep, and wait until it is gone."""
        daemon = int(self._call("getPID"))
        self._call("shutdown")
        deadline = time.monotonic() + STOP_MARGIN_S
        while processes.is_alive(daemon) and time.monotonic() < deadline:
            time.sleep(POLL_S)


@contextlib.contextmanager
def _tolerating(*codes: int) -> Iterator[None]:
    try:
        yield
    except xmlrpc.client.Fault as fault:
        if fault.faultCode not in codes:
            raise ServiceError(f"supervisord refused: {fault.faultString}") from fault


def is_daemon_of(argv: list[str], conf: str) -> bool:
    """Tell whether this command line is a supervisord that was started with this configuration."""
    return conf in argv and any(os.path.basename(item) == "supervisord" for item in argv)


def last_exit(log: str, name: str) -> int | None:
    """Return the last exit code of a program that supervisord's log tells of, negative for a signal."""
    found = re.findall(
        rf"exited: {re.escape(name)} \((?:exit status (\d+)|terminated by (SIG[A-Z0-9]+)|[^;)]*)", log, re.MULTILINE
    )
    if not found:
        return None
    code, signal_name = found[-1]
    if code:
        return int(code)
    return -signal.Signals[signal_name].value if signal_name in signal.Signals.__members__ else None


def parse_status(info: dict[str, Any], last_exit_code: int | None = None, restart: str | None = None) -> ServiceStatus:
    """Turn supervisor's getProcessInfo into a status; `last_exit_code` is what its log says of the last life.

    `restart`: when supervisord starts the program again by itself (restart_of). It does so within a second after it
    has seen the end, and until then says that the program has exited.
    """
    number, pid = int(info["state"]), int(info["pid"]) or None
    state = _STATES.get(number, FAILED)
    detail = str(info["statename"]) + (f", {info['spawnerr']}" if info["spawnerr"] else "")
    if pid is not None and processes.command_line(pid)[:3] == [SHELL, "-c", LAUNCHER]:
        # The launcher waits before it becomes the server again: there is no server process now.
        state, pid, detail = STARTING, None, "it waits before it starts again"
    # What supervisor answers is only good for a program that ended by itself, and -1 stands for any signal.
    own = int(info["exitstatus"]) if number == _EXITED and int(info["exitstatus"]) >= 0 else None
    # A life that began since does not hide how the last one ended.
    exit_code = own if own is not None else last_exit_code
    if number == _EXITED and exit_code != 0:
        state = FAILED
    if number == _EXITED and (restart == ALWAYS or (restart == ON_FAILURE and exit_code != 0)):
        state, detail = STARTING, f"{detail}, and about to be started again"
    return ServiceStatus(
        state=state,
        pid=pid,
        exit_code=exit_code,
        started_at=float(info["start"]) or None,
        detail=detail,
    )


def socket_path(directory: str) -> str:
    """Return where supervisord listens: in its own folder, or in a short private one when that path is too long."""
    path = under(directory, "supervisor.sock")
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES:
        return path
    short = hashlib.sha256(os.fsencode(directory)).hexdigest()[:12]
    base = "/run" if os.geteuid() == 0 else "/tmp"
    return f"{base}/pdlab-{os.geteuid()}-{short}/supervisor.sock"


def make_private_dir(path: str, shared: bool = False) -> None:
    """Make a folder that only this user can enter; with `shared` only make it.

    Raises ServiceError when something else is already there under that name.
    """
    os.makedirs(path, mode=0o755 if shared else 0o700, exist_ok=True)
    seen = os.lstat(path)
    if shared or (stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.geteuid() and not seen.st_mode & 0o077):
        return
    raise ServiceError(
        f"{path} is not a private folder of this user, so supervisord's socket cannot be put there; "
        "remove it or choose a shorter pd_root"
    )


def daemon_config(directory: str, socket_file: str) -> str:
    """Return supervisord's own configuration."""

    def at(name: str) -> str:
        return under(directory, name).replace("%", "%%")

    return f"""; Written by pdlab; a change made here is overwritten.
[supervisord]
logfile={at("supervisord.log")}
logfile_maxbytes=10MB
logfile_backups=2
pidfile={at("supervisord.pid")}
childlogdir={at("")}
nodaemon=false
nocleanup=true
minfds=256
minprocs=16

[unix_http_server]
file={socket_file.replace("%", "%%")}
chmod=0700

[rpcinterface:supervisor]
supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface

[supervisorctl]
serverurl=unix://{socket_file.replace("%", "%%")}

[include]
files=conf.d/{PREFIX}*.conf
"""


def raise_limits() -> None:
    """Raise this process's limits to what a server needs, or as far as this user may."""
    for which, wanted in _LIMITS:
        soft, hard = resource.getrlimit(which)
        if not _above(wanted, soft):
            continue
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(which, (wanted, wanted if _above(wanted, hard) else hard))
            continue
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(which, (hard, hard))


def _above(first: int, second: int) -> bool:
    if second == resource.RLIM_INFINITY:
        return False
    return first == resource.RLIM_INFINITY or first > second
