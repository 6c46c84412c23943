# SPDX-License-Identifier: Apache-2.0
"""Test hosts on which the whole rehearsal can be deployed, and the inventory that does it.

The hosts have no network beyond their bed. They see uv's cache of this machine, filled beforehand, on one mount with
pdlab's root, so that the engine's files are hard links and its environment takes seconds.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .bed import Host, hosts

CHECKOUT = Path(__file__).resolve().parents[2]
SHARED = "/var/lib/pdlab-test"
UV_THERE = "/usr/local/bin/uv"


@dataclass(frozen=True)
class RehearsalHosts:
    """`roots` are the hosts' pdlab directories as the hosts see them."""

    hosts: list[Host]
    inventory: Path
    roots: list[str]


def warm_cache(uv: Path, scratch: Path) -> None:
    """Have everything of the engine's lock in uv's cache."""
    lock = CHECKOUT / "roles/engine/files/locks/cpu.txt"
    python = scratch / "bin" / "python"
    subprocess.run([uv, "venv", "-q", "--clear", "--python", "/usr/bin/python3", scratch], check=True)
    subprocess.run([uv, "pip", "sync", "-q", "--require-hashes", "--python", python, lock], check=True)
    shutil.rmtree(scratch)


@contextmanager
def rehearsal_hosts(count: int, name: str, uv: Path, folder: Path, **changes: Any) -> Iterator[RehearsalHosts]:
    """`count` hosts and an inventory for them in `folder`; `changes` are further pd_* variables.

    `name` names the folders beside uv's cache that become the roots; they are removed before and after.
    """
    said = subprocess.run([uv, "cache", "dir"], capture_output=True, text=True, check=True).stdout
    cache = Path(said.strip())
    names = [f"{name}-{number}" for number in range(1, count + 1)]
    here = [cache.parent / each for each in names]
    for root in here:
        shutil.rmtree(root, ignore_errors=True)
    warm_cache(uv, cache.parent / f"{name}-warm")
    try:
        with hosts(count, binds=[f"{cache.parent}:{SHARED}"]) as up:
            for host in up:
                host.put(uv, UV_THERE)
                # Where uv looks, and where preflight looks for room for it.
                host.run(f"mkdir -p /etc/uv /root/.cache; ln -s {SHARED}/{cache.name} /root/.cache/uv")
                host.run("cat >/etc/uv/uv.toml", stdin="offline = true\n")
            roots = [f"{SHARED}/{each}" for each in names]
            yield RehearsalHosts(up, write_inventory(folder, up, roots, changes), roots)
    finally:
        for root in here:
            shutil.rmtree(root, ignore_errors=True)


def write_inventory(folder: Path, up: list[Host], roots: list[str], changes: Mapping[str, Any]) -> Path:
    """Write the rehearsal's own inventory, for these hosts and as a box is run: systemd, an account for the servers.

    With several hosts prefill has the first one and a decode server each of the others.
    """
    variables = yaml.safe_load((CHECKOUT / "inventory/local/group_vars/pdlab.yml").read_text())
    del variables["pd_root"]
    prefill, decode = variables["pd_servers"]
    if len(up) > 1:
        others = range(1, len(up))
        decodes = [{**decode, "name": f"decode-{number - 1}", "host": f"box{number + 1}"} for number in others]
        variables["pd_servers"] = [{**prefill, "host": "box1"}, *decodes]
    # UCX says in the server's log by which way the KV cache goes.
    variables["pd_server_env"]["UCX_PROTO_INFO"] = "y"
    variables |= {
        "pd_user": "pdlab",
        "pd_service_manager": "systemd",
        "pd_engine": {"lock": "cpu", "uv": UV_THERE},
        "pd_model": {"source": "canary"},
        "pd_router": {**variables["pd_router"], "address": "0.0.0.0"},
        **changes,
    }
    (folder / "group_vars").mkdir(parents=True)
    (folder / "group_vars" / "pdlab.yml").write_text(yaml.safe_dump(variables))
    boxes = {
        f"box{host.number}": {**host.inventory_variables(), "pd_root": root}
        for host, root in zip(up, roots, strict=True)
    }
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": {"pdlab": {"hosts": boxes}}}}))
    return folder
