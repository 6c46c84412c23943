# SPDX-License-Identifier: Apache-2.0
"""The lock file: what a deployment consists of, to make it again and to say what differs.

It holds the text of the engine's requirements (with hashes) and of its patches, so that it does not depend on what a
later pdlab ships, and of every server the command line and environment. What looks like a secret is kept as a hash.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import yaml
from ansible_collections.pdlab.pdlab.plugins.module_utils.overlay import MANIFEST, digest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pdlab import __version__
from pdlab.exit_codes import Exit
from pdlab.loose import as_mapping
from pdlab.runner import Outcome

SCHEMA_VERSION: Literal[1] = 1
DEFAULT_NAME = "pdlab.lock.yml"
_SECRET = re.compile(r"(^|[_-])(token|key|secret|password|passwd|credentials?)s?($|[_-])", re.IGNORECASE)
_HEAD = """# SPDX-License-Identifier: Apache-2.0
# Written by `pdlab lock`. `pdlab rebuild --locked FILE` makes this deployment again and says what differs.
"""


class LockError(Exception):
    """A lock that cannot be read, written, made or kept to; the message says what to do."""

    def __init__(self, message: str, status: Exit = Exit.ERROR) -> None:
        super().__init__(message)
        self.status = status


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelLock(_Model):
    """The checkpoint."""

    source: str
    served_name: str
    repo: str | None = None
    revision: str | None = None


class EngineLock(_Model):
    """The engine of one host. `requirements` and `overlay` name an entry of the lock's tables; null for none."""

    python_version: str | None
    existing: dict[str, Any] | None = Field(None, description="Interpreter and folders of an engine that was there")
    requirements: str | None = None
    overlay: str | None = None
    distributions_sha256: str | None = None
    fingerprint: str | None
    packages: dict[str, str]


class FilesLock(_Model):
    """The model's files on one host."""

    path: str
    fingerprint: str | None
    files: int
    bytes: int


class ServiceLock(_Model):
    """A server or the router: its whole command line and environment."""

    role: str
    unit: str
    argv: list[str]
    environment: dict[str, str]


class HostLock(_Model):
    """What is on one host."""

    root: str
    engine: EngineLock
    model: FilesLock
    services: dict[str, ServiceLock]


class LockFile(_Model):
    """The whole document."""

    schema_version: Literal[1]
    pdlab: str
    made: str
    device: str
    model: ModelLock
    hosts: dict[str, HostLock]
    overlays: dict[str, dict[str, Any]] = Field({}, description="Overlays by their SHA-256, with the patches' texts")
    requirements: dict[str, str] = Field({}, description="Requirements with hashes, by their SHA-256")


@dataclass(frozen=True)
class Difference:
    """One thing that is not what the lock says. `what` is a path such as `box1: service prefill-0: --page-size`."""

    what: str
    locked: str
    found: str

    def __str__(self) -> str:
        return f"{self.what}: locked {self.locked}, found {self.found}"


# --- making one ----------------------------------------------------------------------------------------------------


def lock_of(outcome: Outcome) -> LockFile:
    """From the results of the playbook `lock`. Raises LockError when a host was not looked at."""
    plans = outcome.of_action("topology")
    if not plans:
        raise LockError("the inventory was not read")
    plan = as_mapping(plans[0].result.get("plan"))
    sources = {result.host: result.result for result in outcome.of_action("engine_sources")}
    seen = {result.host: result.result for result in outcome.of_action("box_state")}
    hosts = {
        name: _host(name, plan, as_mapping(sources.get(name)), as_mapping(seen.get(name)))
        for name in as_mapping(plan.get("hosts"))
        if name in sources
    }
    model = as_mapping(plan.get("model"))
    return LockFile(
        schema_version=SCHEMA_VERSION,
        pdlab=__version__,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        device=str(plan.get("device")),
        model=ModelLock.model_validate({key: model.get(key) for key in ModelLock.model_fields}),
        hosts=hosts,
        overlays={
            str(item["overlay_sha256"]): dict(item["overlay_document"])
            for item in sources.values()
            if item["overlay_document"]
        },
        requirements={
            str(item["lock_sha256"]): str(item["requirements"]) for item in sources.values() if item["lock_sha256"]
        },
    )


def _host(name: str, plan: Mapping[str, Any], sources: Mapping[str, Any], seen: Mapping[str, Any]) -> HostLock:
    engine, model = as_mapping(seen.get("engine")), as_mapping(seen.get("model"))
    parts = [*plan["servers"], *([plan["router"]] if plan["router"] else [])]
    return HostLock(
        root=plan["hosts"][name]["root"],
        engine=EngineLock(
            python_version=engine.get("python_version"),
            existing=_existing(plan["hosts"][name]),
            requirements=sources.get("lock_sha256") or None,
            overlay=sources.get("overlay_sha256") or None,
            distributions_sha256=sources.get("distributions_sha256") or None,
            fingerprint=engine.get("fingerprint"),
            packages=dict(as_mapping(engine.get("packages"))),
        ),
        model=FilesLock(
            path=str(model.get("path") or plan["model"]["path"]),
            fingerprint=model.get("fingerprint"),
            files=int(model.get("files") or 0),
            bytes=int(model.get("bytes") or 0),
        ),
        services={
            part["name"]: ServiceLock(
                role=part["role"],
                unit=part["unit"],
                argv=sealed_argv(part["argv"]),
                environment=sealed_environment(part["environment"]),
            )
            for part in parts
            if part["host"] == name
        },
    )


def _existing(host: Mapping[str, Any]) -> dict[str, Any] | None:
    if not host.get("engine_existing"):
        return None
    return {"python": host["engine_python"], "pythonpath": list(host["engine_pythonpath"])}


def sealed_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment whose secrets are hashes: they can be compared, and a lock file may go into a repository."""
    return {name: sealed(value) if _SECRET.search(name) else value for name, value in environment.items()}


def sealed_argv(argv: Sequence[str]) -> list[str]:
    """A command line whose secret values (those behind flags such as --api-key) are hashes."""
    found: list[str] = []
    for index, item in enumerate(argv):
        before = argv[index - 1] if index else ""
        secret = before.startswith("--") and "=" not in before and _SECRET.search(before.lstrip("-"))
        name, equals, value = item.partition("=")
        if secret and not item.startswith("--"):
            found.append(sealed(item))
        elif equals and name.startswith("--") and _SECRET.search(name.lstrip("-")):
            found.append(f"{name}={sealed(value)}")
        else:
            found.append(item)
    return found


def sealed(value: str) -> str:
    """A short hash of a secret."""
    return "sha256:" + hashlib.sha256(value.encode()).hexdigest()[:16]


# --- on disk -------------------------------------------------------------------------------------------------------


class _Dumper(yaml.SafeDumper):
    """Long texts as blocks, so that a change in a requirement or a patch is one line in a diff."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    # What a block of YAML cannot carry unchanged: other line ends, blanks at a line's end, leading blank lines.
    block = "\n" in value and not re.search(r"[\r\x85\u2028\u2029\ufeff]|[ \t](\n|\Z)|\A\s", value)
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if block else None)


_Dumper.add_representer(str, _text)


def write_lock(lock: LockFile, path: Path) -> None:
    """Write the file, whole or not at all. Raises LockError."""
    text = _HEAD + yaml.dump(lock.model_dump(mode="json"), Dumper=_Dumper, sort_keys=False, width=120)
    beside = path.with_name(path.name + ".new")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise LockError(f"the lock cannot be written to {path}: {error.strerror}; name another file with -o") from error


def read_lock(path: Path) -> LockFile:
    """Read a file, every hash in it checked. Raises LockError."""
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506 - safe, and in C where it can be
        lock = LockFile.model_validate(document)
    except OSError as error:
        raise LockError(f"{path}: {error.strerror}; `pdlab lock -o {path}` writes one", Exit.USAGE) from error
    except yaml.YAMLError as error:
        raise LockError(f"{path} is no YAML: {error}; write it anew with `pdlab lock`", Exit.USAGE) from error
    except ValidationError as error:
        listed = "\n".join(f"- {'.'.join(map(str, item['loc'])) or 'all'}: {item['msg']}" for item in error.errors())
        message = f"{path} is no lock file of this pdlab; write it anew with `pdlab lock`:\n{listed}"
        raise LockError(message, Exit.USAGE) from error
    faults = [f"requirements {name}" for name, text in lock.requirements.items() if _sha256(text) != name]
    faults += [f"overlay {name}" for name, document in lock.overlays.items() if digest(document) != name]
    for host, entry in lock.hosts.items():
        for kind, name, table in (
            ("requirements", entry.engine.requirements, set(lock.requirements)),
            ("overlay", entry.engine.overlay, set(lock.overlays)),
        ):
            faults += [f"{kind} of {host}"] if name and name not in table else []
    if faults:
        raise LockError(
            f"{path} was changed by hand: {', '.join(faults)} does not have the hash under which it stands. "
            "Take the file from your repository again, or write it anew with `pdlab lock`.",
            Exit.USAGE,
        )
    return lock


def materialize(lock: LockFile, folder: Path) -> dict[str, dict[str, str]]:
    """Write the engine's requirements and overlays as files: {host: {"lock": path, "overlay": folder or ""}}."""
    found: dict[str, dict[str, str]] = {}
    for host, entry in lock.hosts.items():
        engine = entry.engine
        if not engine.requirements:
            continue
        requirements = folder / f"requirements-{engine.requirements[:16]}.txt"
        requirements.write_text(lock.requirements[engine.requirements], encoding="utf-8", newline="")
        found[host] = {"lock": str(requirements), "overlay": ""}
        if engine.overlay:
            overlay = folder / f"overlay-{engine.overlay[:16]}"
            overlay.mkdir(exist_ok=True)
            patches = [dict(patch) for patch in lock.overlays[engine.overlay]["patches"]]
            for patch in patches:
                (overlay / patch["patch"]).write_text(patch.pop("text"), encoding="utf-8", newline="")
            (overlay / MANIFEST).write_text(yaml.safe_dump({"patches": _without_nulls(patches)}), encoding="utf-8")
            found[host]["overlay"] = str(overlay)
    return found


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(entry) for key, entry in value.items() if entry is not None}
    return [_without_nulls(entry) for entry in value] if isinstance(value, list) else value


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# --- holding one against another -------------------------------------------------------------------------------------


def notes(lock: LockFile, inventory: LockFile) -> list[str]:
    """What differs and does not stand in the way: the lock brings its own."""
    said = []
    if lock.pdlab != inventory.pdlab:
        said.append(f"the lock was written by pdlab {lock.pdlab}, this is {inventory.pdlab}")
    for host in sorted(set(lock.hosts) & set(inventory.hosts)):
        before, now = lock.hosts[host].engine, inventory.hosts[host].engine
        for name, what in (("requirements", "the engine's requirements"), ("overlay", "the overlay")):
            if getattr(before, name) != getattr(now, name):
                said.append(f"{host}: {what} of the inventory differ from the locked; the locked are used")
    return said


def against_inventory(lock: LockFile, inventory: LockFile) -> list[Difference]:
    """What the inventory says otherwise than the lock, and the lock cannot bring along."""
    found = list(_pairs("", {"device": lock.device}, {"device": inventory.device}))
    found += _pairs("model ", lock.model.model_dump(), inventory.model.model_dump())
    found += _host_names(lock, inventory)
    for host in sorted(set(lock.hosts) & set(inventory.hosts)):
        old, new = lock.hosts[host], inventory.hosts[host]
        kept = ("existing", "distributions_sha256")
        found += _pairs(
            f"{host}: ",
            {"root": old.root, "model path": old.model.path},
            {"root": new.root, "model path": new.model.path},
        )
        found += _pairs(
            f"{host}: engine ", old.engine.model_dump(include=set(kept)), new.engine.model_dump(include=set(kept))
        )
        found += _services(host, old.services, new.services)
    return found


def against_box(lock: LockFile, box: LockFile) -> list[Difference]:
    """What is on the hosts otherwise than the lock says."""
    found = against_inventory(lock, box)
    for host in sorted(set(lock.hosts) & set(box.hosts)):
        old, new = lock.hosts[host], box.hosts[host]
        kept = {"python_version", "requirements", "overlay", "fingerprint"}
        found += _pairs(f"{host}: engine ", old.engine.model_dump(include=kept), new.engine.model_dump(include=kept))
        found += _pairs(f"{host}: package ", dict(old.engine.packages), dict(new.engine.packages))
        found += _pairs(
            f"{host}: model ", old.model.model_dump(exclude={"path"}), new.model.model_dump(exclude={"path"})
        )
    return found


def _host_names(lock: LockFile, other: LockFile) -> list[Difference]:
    gone = [
        Difference(f"host {name}", "there", "not in the inventory")
        for name in sorted(set(lock.hosts) - set(other.hosts))
    ]
    return gone + [
        Difference(f"host {name}", "not there", "there") for name in sorted(set(other.hosts) - set(lock.hosts))
    ]


def _services(host: str, old: Mapping[str, ServiceLock], new: Mapping[str, ServiceLock]) -> Iterator[Difference]:
    for name in sorted(set(old) | set(new)):
        where = f"{host}: service {name}"
        if name not in new or name not in old:
            there = ("there", "not there") if name in old else ("not there", "there")
            yield Difference(where, *there)
            continue
        before, after = old[name], new[name]
        yield from _pairs(
            f"{where}: ", {"role": before.role, "unit": before.unit}, {"role": after.role, "unit": after.unit}
        )
        yield from _pairs(f"{where}: ", flags(before.argv), flags(after.argv))
        yield from _pairs(f"{where}: env ", before.environment, after.environment)


def flags(argv: Sequence[str]) -> dict[str, str]:
    """A command line by its flags: {"--page-size": "16", "program": "python -m sglang.launch_server"}."""
    found: dict[str, list[str]] = {"program": []}
    name = "program"
    for item in argv:
        if item.startswith("--") and len(found["program"]) > 0 and "=" not in item:
            name = item
            found.setdefault(name, [])
        else:
            found[name].append(item)
    return {name: " ".join(values) if values else "set" for name, values in found.items()}


def _pairs(where: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    for key in [*old, *(key for key in new if key not in old)]:
        if old.get(key) != new.get(key):
            yield Difference(f"{where}{key}", _shown(old.get(key)), _shown(new.get(key)))


def _shown(value: Any) -> str:
    return "nothing" if value is None or value == "" else str(value)
