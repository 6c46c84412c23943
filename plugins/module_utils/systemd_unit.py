# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes a systemd unit from a service definition.

Facts from systemd.exec(5), systemd.service(5) and systemd.syntax(7), tried on systemd 252: words in double
quotes take C escapes; `%` starts a specifier everywhere; `$` is expanded in ExecStart unless the program has
the prefix `:` (systemd 244 and later).
"""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.pdlab.pdlab.plugins.module_utils.service_definition import (
    ALWAYS,
    ON_FAILURE,
    UNLIMITED,
    ServiceDefinition,
    refuse,
)

TARGET = "pdlab.target"
# Environment= drops an assignment with any other control character (env_value_is_valid in systemd).
CARRIED_CONTROLS = "\t\n"
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "%": "%%"}
_RESTART = {ALWAYS: "always", ON_FAILURE: "on-failure"}
# Seconds since boot, which no clock adjustment moves.
_UPTIME = "cut -d. -f1 /proc/uptime"
_NOTE_END = f'{_UPTIME} >"$0"'
_STAY_AWAY = f'while [ -e "$0" ] && [ $(($({_UPTIME}) - $(cat "$0"))) -lt "$1" ]; do sleep 0.5; done'

# What an unprivileged service is held to, each with its reason. Nothing here may stand between the GPUs, UCX and
# numactl; what would is in NOT_USED.
HARDENING: tuple[tuple[str, str, str], ...] = (
    ("NoNewPrivileges", "yes", "nothing that a server starts is setuid: nvidia-modprobe runs before it, as root"),
    ("CapabilityBoundingSet", "", "numactl's bindings, registered memory and CUDA need limits, no capability"),
    ("ProtectSystem", "strict", "a server writes to its caches and nowhere else; its log is opened by systemd"),
    ("PrivateTmp", "yes", "SGLang executes /tmp/sglang_temp_file_*.sh and never removes them; this goes at each stop"),
    ("ProtectKernelTunables", "yes", "/proc/sys and /sys are only read"),
    ("ProtectKernelModules", "yes", "drivers are loaded before the server starts"),
    ("ProtectKernelLogs", "yes", "GPU faults are read by whoever looks after the box"),
    ("ProtectControlGroups", "yes", "cgroups are only read, for limits"),
    ("RestrictNamespaces", "yes", "UCX takes processes in other namespaces for unreachable; none are made"),
    ("RestrictRealtime", "yes", "no server asks for real-time scheduling"),
    ("RestrictSUIDSGID", "yes", "no server makes such a file"),
    ("LockPersonality", "yes", "no server changes its execution domain"),
    ("RestrictAddressFamilies", "AF_UNIX AF_INET AF_INET6 AF_NETLINK AF_IB", "HTTP, ZMQ, UCX, NCCL and RDMA"),
    ("SystemCallArchitectures", "native", "there is no 32-bit code in an engine"),
    ("UMask", "0077", "caches and temporary files are nobody else's"),
)
# Known settings that must stay out, and what each would break. A test holds both lists apart.
NOT_USED: dict[str, str] = {
    "DynamicUser": "compiled kernels are kept from life to life, and prefill and decode must be one user",
    "RemoveIPC": "prefill's end would remove decode's shared memory: they are one user",
    "PrivateUsers": "UCX compares namespaces before it uses CUDA IPC, CMA or shared memory",
    "PrivatePIDs": "UCX uses CUDA IPC and CMA only inside one PID namespace",
    "PrivateIPC": "UCX and NCCL share memory between processes",
    "PrivateNetwork": "prefill, decode and the router talk to each other",
    "PrivateDevices": "hides /dev/nvidia* and /dev/infiniband",
    "ProtectClock": "adds a DeviceAllow, and with one every device that it does not name is closed, GPUs too",
    "DevicePolicy": "the names of a driver's devices differ from version to version",
    "MemoryDenyWriteExecute": "CUDA, Triton and torch compile at run time",
    "ProcSubset": "hides /proc/driver/nvidia, /proc/cpuinfo and /proc/meminfo",
    "SystemCallFilter": "UCX takes file descriptors from other processes (pidfd_getfd), profilers use perf_event_open",
    "ProtectHome": "a model may lie below /home; strict has made that read-only already",
    "BindsTo": "decode must outlive a restart of its prefill, and the other way round",
}


def quote(text: str) -> str:
    """Return `text` as one quoted word of a unit file, safe in ExecStart=: and Environment=."""
    return '"' + "".join(_ESCAPES.get(character, character) for character in text) + '"'


def unit_name(name: str) -> str:
    """Return the unit's file name."""
    return name + ".service"


def runtime_dir(name: str) -> str:
    """Return the folder below /run in which a service notes when it ended."""
    return f"/run/{name}"


def unit_text(definition: ServiceDefinition) -> str:
    """Return the unit file's whole text.

    Raises DefinitionError, naming every value that systemd could not hand over unchanged.
    """
    refuse(definition, CARRIED_CONTROLS, "systemd")
    lines = ["# Written by pdlab; a change made here is overwritten.", f"# Engine: {definition.fingerprint}"]
    lines += ["", "[Unit]", *_unit(definition), "", "[Service]", *_service(definition)]
    if not definition.is_job:
        lines += ["", "[Install]", f"WantedBy={TARGET}"]
    return "\n".join(lines) + "\n"


def _unit(definition: ServiceDefinition) -> Iterable[str]:
    yield f"Description={_plain(definition.description)}"
    if not definition.is_job:
        yield f"# Stops and restarts with all others: systemctl stop {TARGET}"
        yield f"PartOf={TARGET}"
    yield "Wants=network-online.target"
    if definition.after:
        yield "# What is named first starts before this and stops after it. Servers never depend on each other."
    # After the target, which only makes a stop of it wait until all of this has stopped.
    first = [] if definition.is_job else [TARGET]
    yield "After=" + " ".join([*first, "network-online.target", *(unit_name(name) for name in definition.after)])
    if definition.mounts:
        yield "RequiresMountsFor=" + " ".join(quote(path) for path in definition.mounts)
    yield "# Never give up: a server that is wanted is tried again after each delay."
    yield "StartLimitIntervalSec=0"


def _service(definition: ServiceDefinition) -> Iterable[str]:
    yield "Type=exec"
    if definition.as_root:
        yield "# As root (+), whether it works or not (-)."
        yield "ExecStartPre=+-:" + _command(definition.as_root)
    if definition.least_absence_s:
        ended = runtime_dir(definition.name) + "/ended"
        yield f"# Decode must notice that this was away, also when it is restarted by hand: {definition.least_absence_s} s."
        yield f"RuntimeDirectory={definition.name}"
        yield "RuntimeDirectoryPreserve=yes"
        yield "ExecStopPost=:" + _command(["/bin/sh", "-c", _NOTE_END, ended])
        yield "ExecStartPre=:" + _command(["/bin/sh", "-c", _STAY_AWAY, ended, str(definition.least_absence_s)])
    yield "ExecStart=:" + _command(definition.argv)
    for key, value in definition.environment.items():
        yield "Environment=" + quote(f"{key}={value}")
    yield f"WorkingDirectory={_plain(definition.working_directory)}"
    yield f"StandardOutput=append:{_plain(definition.log_path)}"
    yield "StandardError=inherit"
    yield "# SIGTERM to the server alone, which finishes its requests and ends its workers; SIGKILL to what is left."
    yield "KillMode=mixed"
    yield f"TimeoutStopSec={definition.stop_timeout_s}"
    yield f"LimitMEMLOCK={_limit(definition.limit_memlock)}"
    yield f"LimitNOFILE={_limit(definition.limit_nofile)}"
    yield f"LimitSTACK={_limit(definition.limit_stack)}"
    if definition.is_job:
        yield "# Keeps the exit code readable: an inactive unit that nothing wants is forgotten with its result."
        yield "RemainAfterExit=yes"
    else:
        yield f"Restart={_RESTART[definition.restart]}"
        yield f"RestartSec={definition.restart_delay_s}"
    if definition.user is not None:
        yield from _unprivileged(definition)


def _unprivileged(definition: ServiceDefinition) -> Iterable[str]:
    yield "# An account of its own, and nothing that it does not need."
    yield f"User={_plain(definition.user or '')}"
    for key, value, reason in HARDENING:
        yield f"# {reason}"
        yield f"{key}={value}"
    if definition.writable:
        yield "ReadWritePaths=" + " ".join(quote(path) for path in definition.writable)


def _command(argv: Iterable[str]) -> str:
    return " ".join(quote(item) for item in argv)


def _plain(text: str) -> str:
    """Escape a value that systemd reads to the end of its line, without quotes."""
    return text.replace("%", "%%")


def _limit(value: int) -> str:
    return "infinity" if value == UNLIMITED else str(value)
