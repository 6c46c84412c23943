# SPDX-License-Identifier: GPL-3.0-or-later
"""The Prometheus that pdlab keeps on a host: a unit of pdlab's own for Debian's program. Pure: texts and paths.

Debian's own unit, prometheus.service, and its files below /etc stay as they are: docs/decisions/0022 says why.
"""

from __future__ import annotations

from ansible_collections.pdlab.pdlab.plugins.module_utils.scrape_files import CONFIG
from ansible_collections.pdlab.pdlab.plugins.module_utils.systemd_unit import quote
from ansible_collections.pdlab.pdlab.plugins.module_utils.target_layout import under

PACKAGE = "prometheus"
PROGRAM = "prometheus"
DEBIAN_PROGRAM = "/usr/bin/prometheus"
# Debian's package makes it.
ACCOUNT = "prometheus"
# Not called pdlab-something: those are servers.
UNIT = "pdlab_prometheus.service"
UNIT_PATH = "/etc/systemd/system/" + UNIT
# Where Debian's own unit is masked while its package is installed, so that it never listens on all addresses.
DEBIAN_UNIT = "prometheus.service"
DEBIAN_MASK = "/etc/systemd/system/" + DEBIAN_UNIT

# Debian's unit has these, too. What Prometheus needs is to read its files, to write its data and to talk over TCP.
_HARDENING = (
    "NoNewPrivileges=yes",
    "CapabilityBoundingSet=",
    "ProtectSystem=strict",
    "ProtectHome=read-only",
    "PrivateTmp=yes",
    "PrivateDevices=yes",
    "ProtectKernelTunables=yes",
    "ProtectKernelModules=yes",
    "ProtectControlGroups=yes",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "LockPersonality=yes",
    "MemoryDenyWriteExecute=yes",
    "SystemCallArchitectures=native",
)


def monitoring_dir(root: str) -> str:
    """The folder of the files that Prometheus reads."""
    return under(root, "monitoring")


def data_dir(root: str) -> str:
    """The folder of what it measured, the account's own."""
    return under(root, "monitoring", "data")


def config_path(root: str) -> str:
    """The file that it is started with."""
    return under(monitoring_dir(root), CONFIG)


def listen_address(address: str, port: int) -> str:
    """Address and port as Prometheus takes them, IPv6 in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def argv(program: str, root: str, address: str, port: int, retention_days: int) -> list[str]:
    """Prometheus' command line (prometheus(1) of 2.42)."""
    return [
        program,
        f"--config.file={config_path(root)}",
        f"--storage.tsdb.path={data_dir(root)}",
        f"--storage.tsdb.retention.time={retention_days}d",
        f"--web.listen-address={listen_address(address, port)}",
    ]


def unit_text(command: list[str], root: str) -> str:
    """The unit. It is no part of pdlab.target: it goes on while the servers are stopped, and shows that they are."""
    lines = [
        "# Written by pdlab; a change made here is overwritten.",
        "[Unit]",
        "Description=pdlab: Prometheus for this deployment",
        "Wants=network-online.target",
        "After=network-online.target time-sync.target",
        f"RequiresMountsFor={quote(root)}",
        "",
        "[Service]",
        "Type=exec",
        f"User={ACCOUNT}",
        "ExecStart=:" + " ".join(quote(word) for word in command),
        "# Reads its configuration and its rules again. The list of targets it watches by itself.",
        "ExecReload=/bin/kill -HUP $MAINPID",
        "Restart=on-failure",
        "RestartSec=5",
        "TimeoutStopSec=30",
        "LimitNOFILE=32768",
        *_HARDENING,
        f"ReadWritePaths={quote(data_dir(root))}",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"
