# SPDX-License-Identifier: GPL-3.0-or-later
"""What all pdlab services of a host share under systemd: the target that holds them, and the rotation of their logs.

Pure: texts by path. Why files and logrotate, and not the journal, is in docs/decisions/0012.
"""

from __future__ import annotations

from ansible_collections.pdlab.pdlab.plugins.module_utils.supervisor_program import LOG_BACKUPS, LOG_MAX_BYTES
from ansible_collections.pdlab.pdlab.plugins.module_utils.systemd_unit import TARGET, quote
from ansible_collections.pdlab.pdlab.plugins.module_utils.target_layout import state_dir, under

LOGROTATE = "/usr/sbin/logrotate"
# Not called pdlab-something: those are servers.
ROTATION = "pdlab_logs"
ROTATION_TIMER = ROTATION + ".timer"
# Units that are started together with the target, and enabled, so that they are there after a reboot.
ENABLED = (TARGET, ROTATION_TIMER)

_HEAD = "# Written by pdlab; a change made here is overwritten.\n"


def shared_units(root: str) -> dict[str, str]:
    """Return {unit's file name: text} for a host whose pdlab directory is `root`."""
    return {
        TARGET: _target(),
        ROTATION + ".service": _rotation_service(root),
        ROTATION_TIMER: _rotation_timer(),
    }


def logrotate_conf(root: str) -> str:
    """Return the path of the logrotate configuration."""
    return under(state_dir(root), "logrotate.conf")


def logrotate_state(root: str) -> str:
    """Return the path at which logrotate remembers when it rotated what."""
    return under(state_dir(root), "logrotate.state")


def logrotate_text(root: str) -> str:
    """Return the logrotate configuration: by size, with the names and the number that a start's rotation uses, too."""
    logs = under(root, "logs", "*.log").replace("\\", "\\\\").replace('"', '\\"')
    return (
        _HEAD
        + f'"{logs}" {{\n'
        + f"    size {LOG_MAX_BYTES}\n    rotate {LOG_BACKUPS}\n"
        + "    # A server keeps its log open for its whole life.\n    copytruncate\n"
        + "    missingok\n    notifempty\n    nocompress\n    nodateext\n}\n"
    )


def _target() -> str:
    return (
        _HEAD
        + "\n[Unit]\nDescription=pdlab: all servers and the router of this host\n"
        + "\n[Install]\nWantedBy=multi-user.target\n"
    )


def _rotation_service(root: str) -> str:
    command = [LOGROTATE, "--state", logrotate_state(root), logrotate_conf(root)]
    return (
        _HEAD
        + "\n[Unit]\nDescription=pdlab: rotation of the servers' logs\n"
        + f"ConditionPathExists={LOGROTATE}\n"
        + f"RequiresMountsFor={quote(root)}\n"
        + "\n[Service]\nType=oneshot\nExecStart=:"
        + " ".join(quote(item) for item in command)
        + "\n"
    )


def _rotation_timer() -> str:
    return (
        _HEAD
        + f"\n[Unit]\nDescription=pdlab: rotation of the servers' logs\nPartOf={TARGET}\n"
        + "\n[Timer]\n# A server that fails in a loop writes gigabytes in a night; the size decides, not the hour.\n"
        + "OnActiveSec=10min\nOnUnitActiveSec=10min\n"
        + f"\n[Install]\nWantedBy={TARGET}\n"
    )
