# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a recording of this machine (recording.py says what that is), with nothing but Python's standard library.

The readers of facts run once, and what they ask is written down: what a reader needs is in the recording.

    PYTHONPATH=.collections python3 -m ansible_collections.pdlab.pdlab.plugins.module_utils.facts.recorder DIR
"""

from __future__ import annotations

import copy
import dataclasses
import errno
import json
import os
import pwd
import re
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from ansible_collections.pdlab.pdlab.plugins.module_utils import processes
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts import cpu, gpu, network, pci, recording
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.box import read_facts
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.redaction import HOST, Redaction
from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.source import Command, Said, Source

# Where deployments put things. What else is mounted gets a neutral name.
PATHS = ("/", "/tmp", "/var", "/var/tmp", "/opt", "/srv", "/home", "/mnt", "/data", "/models", "/usr/local", "/dev/shm")
DISKS = ("ext4", "ext3", "xfs", "btrfs", "zfs", "f2fs", "nfs", "nfs4", "ceph", "lustre", "gpfs", "beegfs", "virtiofs")
CGROUP = "/recorded"
CONVENTIONAL_BYTES = 0x100
FIRST_USER_ID = 1000
# A driver that wakes eight GPUs for each question is slow.
TIMEOUT_S = 60.0
# Extended capabilities of PCI whose contents are kept: advanced error reporting (1) and ACS (13). Serial numbers go.
KEPT_CAPABILITIES = {0x0001: 0x48, 0x000D: 8}

_Found = TypeVar("_Found")


class _Noting(Command):
    """A command whose end is noted."""

    def __init__(self, command: Command, said: dict[tuple[str, ...], Said], argv: Sequence[str]) -> None:
        self._command, self._all, self._argv = command, said, tuple(argv)

    def result(self, timeout_s: float) -> Said:
        said = self._command.result(timeout_s)
        self._all[self._argv] = said
        return said


class Recorder(Source):
    """Another source, and a note of everything that was read of it."""

    def __init__(self, of: Source) -> None:
        self._of = of
        self.files: dict[str, str] = {}
        self.bytes: dict[str, bytes] = {}
        self.links: dict[str, str] = {}
        self.said: dict[tuple[str, ...], Said] = {}
        self.answers: dict[str, Any] = {key: copy.copy(empty) for key, empty in recording.ANSWERS.items()}

    def text(self, path: str) -> str | None:
        found = self._of.text(path)
        if found is not None:
            self.files[path] = found
        return found

    def data(self, path: str) -> bytes | None:
        found = self._of.data(path)
        if found is not None:
            self.bytes[path] = found
        return found

    def link(self, path: str) -> str | None:
        found = self._of.link(path)
        if found is not None:
            self.links[path] = found
        return found

    def names(self, path: str) -> list[str]:
        found = self._of.names(path)
        if found:
            self.answers["names"][path] = found
        return found

    def exists(self, path: str) -> bool:
        found = self._of.exists(path)
        if found and not self.is_directory(path):
            self.files.setdefault(path, "")
        return found

    def is_directory(self, path: str) -> bool:
        found = self._of.is_directory(path)
        if found:
            self.answers["directories"][path] = {"writable": self._of.is_writable(path)}
        return found

    def is_writable(self, path: str) -> bool:
        return self._of.is_writable(path)

    def real_path(self, path: str) -> str:
        found = self._of.real_path(path)
        if found != path:
            self.answers["real_paths"][path] = found
        return found

    def is_program(self, path: str) -> bool:
        found = self._of.is_program(path)
        if found:
            self.answers["compiled"].append(path)
        return found

    def which(self, name: str) -> str | None:
        found = self._of.which(name)
        if found is not None:
            self.answers["programs"][name] = found
        return found

    def command(self, argv: Sequence[str], env: dict[str, str] | None = None) -> Command:
        return _Noting(self._of.command(argv, env), self.said, recording.command_key(argv))

    def file_system(self, path: str) -> dict[str, int | bool] | None:
        return self._note("file_systems", path, self._of.file_system(path))

    def addresses(self, name: str) -> list[str] | None:
        return self._note("addresses", name, self._of.addresses(name))

    def running(self, program: str) -> bool | None:
        # Not through text(): the names of all processes are nobody's business.
        return self._note("running", program, self._of.running(program))

    def uname(self) -> dict[str, str]:
        return self._set("uname", self._of.uname())

    def is_root(self) -> bool:
        return self._set("root", self._of.is_root())

    def cpus(self) -> dict[str, int | None]:
        return self._set("cpus", self._of.cpus())

    def limits(self) -> dict[str, dict[str, int | str]]:
        return self._set("limits", self._of.limits())

    def clock_synchronised(self) -> bool | None:
        return self._set("clock_synchronised", self._of.clock_synchronised())

    def listeners(self, ports: Iterable[int]) -> list[processes.Listener]:
        found = self._of.listeners(ports)
        self.answers["listeners"] = [dataclasses.asdict(listener) for listener in found]
        return found

    def _note(self, kind: str, key: str, found: _Found) -> _Found:
        self.answers[kind][key] = found
        return found

    def _set(self, kind: str, found: _Found) -> _Found:
        self.answers[kind] = found
        return found


def record(now: float, plain: Source | None = None) -> dict[str, str]:
    """{path in the recording: its text} of this machine, or of `plain`; `now` is in seconds since the epoch."""
    plain = plain or Source()
    source = Recorder(plain)
    nodes = [int(name[4:]) for name in plain.names(cpu.NODES) if re.fullmatch(r"node\d+", name)]
    disks = {path: f"/disk-{number}" for number, path in enumerate(other_disks(plain), start=1)}
    facts = read_facts(
        source,
        {
            "ports": range(1, 65536),
            "paths": [*PATHS, *disks],
            # One more than there are, so that the refusal is recorded, too.
            "numa_nodes": [*sorted(nodes), max(nodes, default=-1) + 1],
            "timeout_s": TIMEOUT_S,
        },
    )
    for kind in ("directories", "file_systems"):
        source.answers[kind] = {disks.get(path, path): known for path, known in source.answers[kind].items()}
    users = [entry.pw_name for entry in pwd.getpwall() if entry.pw_uid >= FIRST_USER_ID]
    redaction = Redaction(source.answers["uname"]["name"], users)
    return {**written(source, redaction), recording.BOX: description(facts, now)}


def other_disks(source: Source) -> list[str]:
    """Where disks are mounted beside PATHS."""
    rows = [line.split() for line in (source.text("/proc/self/mounts") or "").splitlines()]
    return sorted({row[1] for row in rows if row[2] in DISKS and row[1] not in PATHS and source.is_directory(row[1])})


def written(source: Recorder, redaction: Redaction) -> dict[str, str]:
    """{path in the recording: its text} of all but box.yml, without personal details."""
    forget_other_devices(source)
    # The name of a session or a container; the limit in it is what counts.
    groups = re.findall(r"^\d+:[^:]*:(/.+)$", source.files.get("/proc/self/cgroup", ""), re.MULTILINE)

    def path_of(path: str) -> str:
        for group in groups:
            path = path.replace(group, CGROUP)
        return redaction.text(path)

    files = {}
    for path, text in source.files.items():
        for group in groups if path == "/proc/self/cgroup" else ():
            text = text.replace(group, CGROUP)
        files[f"{recording.ROOT}{path_of(path)}"] = _line(redaction.file(path, text))
    for path, data in source.bytes.items():
        files[f"{recording.ROOT}{path}{recording.HEX}"] = recording.to_hex(without_serial_numbers(data))
    files[recording.LINKS] = _json(redaction.document(source.links))
    files.update(_commands(source.said, redaction))
    files[recording.ANSWERS_FILE] = _json(_answers(source.answers, redaction))
    return files


def forget_other_devices(source: Recorder) -> None:
    """Drop what was only passed on the way: PCI devices of others, and interfaces that are no cards."""
    for path in [path for path in source.files if path.startswith(f"{pci.DEVICES}/") and path.endswith("/vendor")]:
        if source.files[path] != gpu.NVIDIA:
            del source.files[path]
    for path in [path for path in source.links if path.startswith(f"{network.NET}/")]:
        if path.count("/") == network.NET.count("/") + 1 and not pci.ADDRESS.search(source.links[path]):
            del source.links[path]
    # What is left of these shows by its files and links.
    for path in (pci.DEVICES, network.NET):
        source.answers["names"].pop(path, None)


def without_serial_numbers(data: bytes) -> bytes:
    """A PCI configuration space with the heads of its extended capabilities, and the contents of KEPT_CAPABILITIES."""
    kept = bytearray(len(data))
    kept[:CONVENTIONAL_BYTES] = data[:CONVENTIONAL_BYTES]
    for capability, offset in pci.extended_capabilities(data).items():
        end = offset + KEPT_CAPABILITIES.get(capability, 4)
        kept[offset:end] = data[offset:end]
    return bytes(kept)


def _commands(said: dict[tuple[str, ...], Said], redaction: Redaction) -> dict[str, str]:
    files: dict[str, str] = {}
    index: list[dict[str, Any]] = []
    for argv, answer in said.items():
        name = re.sub(r"[^\w.]+", "-", redaction.text(" ".join([os.path.basename(argv[0]), *argv[1:]]))).strip("-")
        while f"{recording.COMMANDS}/{name}.out" in files or any(entry["stdout"] == f"{name}.out" for entry in index):
            name += "-again"
        entry: dict[str, Any] = {"argv": [redaction.text(word) for word in argv], "rc": answer.rc}
        for stream, text in (("stdout", answer.stdout), ("stderr", answer.stderr)):
            entry[stream] = f"{name}.{stream[3:]}" if text else None
            if text:
                files[f"{recording.COMMANDS}/{entry[stream]}"] = redaction.output(argv, text)
        index.append(entry)
    return {**files, recording.INDEX: _json(index)}


def _answers(answers: dict[str, Any], redaction: Redaction) -> dict[str, Any]:
    host = answers["uname"]["name"]
    for listener in answers["listeners"]:
        listener["command"] = redaction.command(listener["command"])
    changed = {
        **redaction.document(answers),
        "uname": {**answers["uname"], "name": HOST, "release": redaction.release(answers["uname"]["release"])},
        "addresses": {HOST: redaction.document(answers["addresses"].get(host))},
        "compiled": sorted({redaction.text(path) for path in answers["compiled"]}),
    }
    return {key: changed[key] for key in recording.ANSWERS}


def description(facts: dict[str, Any], now: float) -> str:
    """box.yml of a recorded box."""
    gpus = [gpu["name"] for gpu in facts["gpu"]["gpus"] or []]
    counted = [f"{gpus.count(name)}x {name}" for name in dict.fromkeys(gpus)]
    container, nodes = facts["container"], len(facts["numa"] or [])
    what = [
        *(
            counted
            or [f"{len(facts['gpu']['pci_devices'])} NVIDIA GPUs without a driver" * bool(facts["gpu"]["pci_devices"])]
        ),
        f"{facts['cpu']['count']} CPUs ({facts['cpu']['model']})",
        f"{nodes} NUMA node{'s' if nodes != 1 else ''}",
        f"container: {container}" if container not in (None, "none") else "",
        (facts["distribution"] or {}).get("name", ""),
    ]
    return recording.about_yaml(
        {
            "what": ", ".join(part for part in what if part),
            "kind": "recorded",
            "from": "a machine, by pdlab record-box",
            "when": time.strftime("%Y-%m-%d", time.gmtime(now)),
        }
    )


def write_recording(files: dict[str, str], directory: str) -> None:
    """Write a recording. Raises OSError: something is there already, or a file of it would lie outside."""
    if os.path.isdir(directory) and os.listdir(directory):
        raise FileExistsError(errno.EEXIST, "is not empty", directory)
    # It may come from a host that is not to be trusted with this machine's files.
    outside = [name for name in files if name.startswith("/") or ".." in name.split("/")]
    if outside:
        raise PermissionError(errno.EPERM, "lies outside of the recording", outside[0])
    for name, text in files.items():
        path = os.path.join(directory, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text)


def _line(text: str) -> str:
    return text + "\n" if text else ""


def _json(document: Any) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Record this machine into the directory that is named."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(f"usage: python3 -m {__spec__.name if __spec__ else 'recorder'} DIR", file=sys.stderr)
        return 2
    try:
        write_recording(record(time.time()), arguments[0])
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    print(f"{arguments[0]}: recorded. Look through it before you give it away.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
