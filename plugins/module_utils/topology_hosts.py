# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts of a topology: which variables are each host's own, and what becomes of root and address."""

from __future__ import annotations

import ipaddress
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Fault, Faults
from ansible_collections.pdlab.pdlab.plugins.module_utils.shapes import INVALID
from ansible_collections.pdlab.pdlab.plugins.module_utils.target_layout import engine_python
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_variables import PER_HOST

LOOPBACK = "127.0.0.1"
# Directories that pdlab may live below but never be: `absent` removes what lies under the root.
NOT_A_ROOT = {"/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/media", "/mnt", "/opt", "/proc", "/root"}
NOT_A_ROOT |= {"/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/usr/local", "/var", "/var/lib", "/var/tmp"}

# Keys of pd_engine that say how to build one.
NOT_BESIDE_EXISTING = ("lock", "python", "overlay")


@dataclass(frozen=True)
class HostVars:
    """One host of the inventory as topology needs it.

    `local`: the controller itself. `home`: the home directory there, known for a local host only.
    `variables`: its own pd_* variables (those of PER_HOST). `origins`: key path -> `file:line`.
    """

    name: str
    local: bool = False
    ansible_host: str | None = None
    home: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)


def split(
    variables: Mapping[str, Mapping[str, Any]], origins: Mapping[str, Mapping[str, str]] | None = None
) -> tuple[dict[str, Any], list[Fault]]:
    """From every host's pd_* variables to those that hold for all, with a fault for each that differs.

    `variables` maps a host's name to its variables, `origins` to its key paths' origins.
    """
    shared: dict[str, Any] = {}
    said_by: dict[str, str] = {}
    faults = Faults()
    for host, mine in variables.items():
        for name, value in mine.items():
            if name in PER_HOST:
                continue
            if name not in shared:
                shared[name], said_by[name] = value, host
            elif shared[name] != value:
                where = (origins or {}).get(host, {}).get(name)
                problem = f"{host} and {said_by[name]} have different values, and it holds for all hosts"
                faults.add(name, problem, "set it once, in group_vars of the group pdlab", where)
    for name, host in said_by.items():
        missing = [other for other in variables if name not in variables[other]]
        if missing:
            where = (origins or {}).get(host, {}).get(name)
            problem = f"{host} has it and {missing[0]} has not, and it holds for all hosts"
            faults.add(name, problem, "set it once, in group_vars of the group pdlab", where)
    return shared, list(faults)


def resolve_hosts(hosts: Sequence[HostVars], used: Sequence[str], faults: Faults) -> dict[str, dict[str, Any]]:
    """The plan's `hosts`: {name: {"address", "root", "service_manager", "local", "user", and of the engine
    "engine_python", "engine_lock", "engine_pythonpath", "engine_env", "engine_existing"}}.

    Faults are noted for all hosts at once. `engine_existing`: pdlab did not build it.
    `used` names the hosts that run something: only they need an address, and only one of them may be a loopback.
    """
    found: dict[str, list[Fault]] = {}
    resolved: dict[str, dict[str, Any]] = {}
    for host in hosts:
        mine = Faults(host.origins)
        kept = _checked(host, mine)
        root = _root(host, kept.get("pd_root"), mine)
        existing = _existing_engine(host, kept.get("pd_engine") or {}, root or "/", mine)
        resolved[host.name] = {
            "address": _address(host, kept.get("pd_address"), host.name in used, len(used) > 1, mine),
            "root": root,
            "engine_lock": (kept.get("pd_engine") or {}).get("lock"),
            "service_manager": kept.get("pd_service_manager", "auto"),
            "engine_python": existing["python"] if existing else engine_python(root or "/"),
            "engine_pythonpath": existing["pythonpath"] if existing else [],
            "engine_env": existing["env"] if existing else {},
            "engine_existing": existing is not None,
            "local": host.local,
            "user": kept.get("pd_user"),
        }
        found[host.name] = list(mine)
    _add_once(found, faults)
    addressed = {name: str(resolved[name]["address"]) for name in used if resolved[name]["address"]}
    _check_addresses(addressed, {host.name: Faults(host.origins) for host in hosts}, faults)
    return resolved


def expand_home(path: str, host: HostVars) -> str | None:
    """`path` with a leading `~` replaced on a local host; None when it is another host's or another user's home."""
    if not path.startswith("~"):
        return path
    if not host.local or not host.home or not (path == "~" or path.startswith("~/")):
        return None
    return posixpath.normpath(posixpath.join(host.home, path[2:]))


def _checked(host: HostVars, faults: Faults) -> dict[str, Any]:
    kept = {}
    for name, value in host.variables.items():
        checked = PER_HOST[name](faults, name, value) if name in PER_HOST and value is not None else None
        if checked is not None and checked is not INVALID:
            kept[name] = checked
    return kept


def _root(host: HostVars, written: str | None, faults: Faults) -> str | None:
    if host.variables.get("pd_root") is None:
        faults.add("pd_root", "is missing", "say where pdlab lives on the target, for example `pd_root: /opt/pdlab`")
    if written is None:
        return None
    root = expand_home(written, host)
    if root is None:
        problem = f"{written!r} begins with '~', which only has a meaning on this machine"
        faults.add("pd_root", problem, "write the whole path, for example /opt/pdlab")
        return None
    root = posixpath.normpath(root)
    if root in NOT_A_ROOT or root == host.home:
        faults.add(
            "pd_root", f"{root!r} is not pdlab's own", f"give it a directory, for example {root.rstrip('/')}/pdlab"
        )
    return root


def _existing_engine(host: HostVars, engine: Mapping[str, Any], root: str, faults: Faults) -> dict[str, Any] | None:
    """The interpreter, the further folders (`~` replaced) and the environment of an engine that somebody else made.

    None without one.
    """
    existing = engine.get("existing")
    if existing is None:
        return None
    for name in NOT_BESIDE_EXISTING:
        if name in engine:
            problem = "means nothing beside pd_engine.existing: pdlab builds and changes no engine then"
            faults.add(f"pd_engine.{name}", problem, "remove one of the two")
    found: dict[str, Any] = {}
    written = [("python", [existing.get("python")]), ("pythonpath", existing.get("pythonpath", []))]
    for name, paths in written:
        found[name] = []
        for path in (path for path in paths if path is not None):
            whole = expand_home(path, host)
            if whole is None:
                problem = f"{path!r} begins with '~', which only has a meaning on this machine"
                faults.add(f"pd_engine.existing.{name}", problem, "write the whole path")
            elif whole == root or whole.startswith(root.rstrip("/") + "/"):
                problem = f"{whole} lies below pd_root, which is pdlab's own"
                faults.add(f"pd_engine.existing.{name}", problem, "name an engine outside of it, or remove `existing`")
            elif ":" in whole and name == "pythonpath":
                faults.add(
                    f"pd_engine.existing.{name}", f"{whole} has a ':', which PYTHONPATH cannot carry", "rename it"
                )
            else:
                found[name].append(whole)
    env = existing.get("env") or {}
    if "PYTHONPATH" in env:
        problem = "would hide what pd_engine.existing.pythonpath gives"
        faults.add("pd_engine.existing.env.PYTHONPATH", problem, "remove it, and add its folders there")
    return {"python": (found["python"] or [""])[0], "pythonpath": found["pythonpath"], "env": dict(env)}


def _address(host: HostVars, written: str | None, used: bool, several: bool, faults: Faults) -> str | None:
    if written is not None or host.variables.get("pd_address") is not None:
        return written
    if not several:
        return LOOPBACK
    candidate = host.ansible_host or host.name
    try:
        ipaddress.ip_address(candidate)
    except ValueError:
        if used:
            problem = f"is missing, and {candidate!r} is not an IP address"
            faults.add("pd_address", problem, "set it to the IP address at which the other hosts reach this one")
    return candidate


def _check_addresses(addressed: Mapping[str, str], origins: Mapping[str, Faults], faults: Faults) -> None:
    """Addresses that no other host could use, or that two hosts share, or of two families."""
    cure = "set pd_address to the IP address at which the other hosts reach this one"
    families: dict[int, str] = {}
    seen: dict[str, str] = {}
    for name, address in addressed.items():
        key, origin = f"pd_address of {name}", origins[name].origin("pd_address")
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            continue
        if parsed.is_unspecified:
            faults.add(key, f"{address} means every address, so nobody can be sent there", cure, origin)
        elif parsed.is_loopback and len(addressed) > 1:
            others = ", ".join(other for other in addressed if other != name)
            faults.add(key, f"{address} is a loopback address, and {others} must reach this host", cure, origin)
        elif address in seen:
            faults.add(key, f"{address} is also the address of {seen[address]}", "one host, one address", origin)
        elif families and parsed.version not in families:
            other = next(iter(families.values()))
            faults.add(key, f"{address} and {other} are of two address families", "use one family everywhere", origin)
        seen.setdefault(address, name)
        families.setdefault(parsed.version, address)


def _add_once(found: Mapping[str, list[Fault]], faults: Faults) -> None:
    """Add each host's faults; one that all hosts share (a group variable) once, the others with the host's name."""
    for name, mine in found.items():
        for fault in mine:
            everywhere = all(fault in others for others in found.values())
            key = fault.key if everywhere else f"{fault.key} of {name}"
            faults.add(key, fault.problem, fault.cure, fault.origin)
