# SPDX-License-Identifier: GPL-3.0-or-later
"""A recording of a box: a small tree of files that answers in the place of a machine.

    box.yml          what it is, from where, when, and whether it was recorded or written from documentation
    root/            files as they lie on the box: /sys/... is root/sys/...; NAME.hex holds a file of bytes
    links.json       {path: what the symbolic link there says}
    commands/        index.json lists {"argv", "rc", "stdout", "stderr"}; the last two name files beside it, or are null
    answers.json     what the kernel was asked: see ANSWERS

recorder.py makes one. To make a box with a fault, copy one and change a file.
"""

from __future__ import annotations

import json
import os
import posixpath
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.facts.source import Command, Said, Source
from ansible_collections.pdlab.pdlab.plugins.module_utils.processes import Listener, Process

BOX = "box.yml"
ROOT = "root"
LINKS = "links.json"
COMMANDS = "commands"
INDEX = f"{COMMANDS}/index.json"
ANSWERS_FILE = "answers.json"
HEX = ".hex"
# The keys of answers.json. All but `names`, `real_paths` and `running` must be there.
ANSWERS: dict[str, Any] = {
    "uname": {},  # "release", "machine", "name"
    "root": False,
    "cpus": {},  # "count", "usable"
    "limits": {},
    "clock_synchronised": None,
    "addresses": {},  # host name: what it resolves to
    "programs": {},  # name: full path
    "compiled": [],  # full paths of programs that are no scripts
    "real_paths": {},
    "directories": {},  # path: {"writable"}
    "file_systems": {},  # path: what Source.file_system says; it holds for all below
    "names": {},  # directory: entries of which no file was recorded
    "listeners": [],  # {"port", "address", "pid", "command"}
    "running": {},  # program: whether it runs
}
_OPTIONAL = {"names", "real_paths", "running"}


class Recorded(Command):
    """A command that ran on the recorded box."""

    def __init__(self, said: Said) -> None:
        self._said = said

    def result(self, timeout_s: float) -> Said:
        """What it said then."""
        return self._said


class Recording(Source):
    """A recorded box. It holds no models and no processes of pdlab's own; what was not recorded is unknown."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raise ValueError, naming the file, when `path` is no recording."""
        self.path = os.fspath(path)
        self._links: dict[str, str] = self._document(LINKS, dict)
        self._answers: dict[str, Any] = self._document(ANSWERS_FILE, dict)
        missing = sorted(set(ANSWERS) - _OPTIONAL - set(self._answers))
        if missing:
            raise ValueError(f"{self.path}/{ANSWERS_FILE} lacks {', '.join(missing)}")
        self._answers = {**ANSWERS, **self._answers}
        self._commands = {command_key(entry["argv"]): entry for entry in self._document(INDEX, list)}

    def _document(self, name: str, kind: type) -> Any:
        path = f"{self.path}/{name}"
        try:
            with open(path, encoding="utf-8") as stream:
                document = json.load(stream)
        except OSError as error:
            raise ValueError(f"{self.path} is no recording of a box: {name}: {error.strerror}") from None
        except ValueError as error:
            raise ValueError(f"{path} is no JSON: {error}") from None
        if not isinstance(document, kind):
            raise ValueError(f"{path} must hold a {'list' if kind is list else 'mapping'}")
        return document

    def _at(self, path: str) -> str:
        return f"{self.path}/{ROOT}{posixpath.normpath(path)}"

    # --- files ---------------------------------------------------------------------------------------------------

    def text(self, path: str) -> str | None:
        return super().text(self._at(path))

    def data(self, path: str) -> bytes | None:
        written = super().text(self._at(path) + HEX)
        return super().data(self._at(path)) if written is None else from_hex(written)

    def link(self, path: str) -> str | None:
        return self._links.get(path)

    def names(self, path: str) -> list[str]:
        below = posixpath.normpath(path) + "/"
        found = {name[: -len(HEX)] if name.endswith(HEX) else name for name in super().names(self._at(path))}
        found.update(link[len(below) :].partition("/")[0] for link in self._links if link.startswith(below))
        return sorted({*found, *self._answers["names"].get(path, [])})

    def exists(self, path: str) -> bool:
        return (
            path in self._answers["directories"]
            or path in self._links
            or path in self._answers["programs"].values()
            or path in self._answers["names"]
            or super().exists(self._at(path))
        )

    def is_directory(self, path: str) -> bool:
        return path in self._answers["directories"] or super().is_directory(self._at(path))

    def is_writable(self, path: str) -> bool:
        return self.is_root() or bool(self._answers["directories"].get(path, {}).get("writable"))

    def home(self) -> str:
        # Names of users are not recorded.
        return "/root" if self.is_root() else "/home/user"

    def real_path(self, path: str) -> str:
        return str(self._answers["real_paths"].get(path, path))

    def is_program(self, path: str) -> bool:
        return path in self._answers["compiled"]

    def which(self, name: str) -> str | None:
        path = self._answers["programs"].get(name)
        return str(path) if path else None

    def file_system(self, path: str) -> dict[str, int | bool] | None:
        while path not in self._answers["file_systems"] and path not in ("/", ""):
            path = posixpath.dirname(path)
        found: dict[str, int | bool] | None = self._answers["file_systems"].get(path)
        return found

    # --- commands and the kernel's answers -----------------------------------------------------------------------

    def command(self, argv: Sequence[str], env: dict[str, str] | None = None) -> Command:
        entry = self._commands.get(command_key(argv))
        if entry is None:
            return Recorded(Said(None, "", "this was not recorded"))
        return Recorded(Said(entry["rc"], self._output(entry["stdout"]), self._output(entry["stderr"])))

    def _output(self, name: str | None) -> str:
        if name is None:
            return ""
        with open(f"{self.path}/{COMMANDS}/{name}", encoding="utf-8") as stream:
            return stream.read()

    def addresses(self, name: str) -> list[str] | None:
        found: list[str] | None = self._answers["addresses"].get(name)
        return found

    def uname(self) -> dict[str, str]:
        return dict(self._answers["uname"])

    def is_root(self) -> bool:
        return bool(self._answers["root"])

    def cpus(self) -> dict[str, int | None]:
        return dict(self._answers["cpus"])

    def limits(self) -> dict[str, dict[str, int | str]]:
        return dict(self._answers["limits"])

    def clock_synchronised(self) -> bool | None:
        found: bool | None = self._answers["clock_synchronised"]
        return found

    def listeners(self, ports: Iterable[int]) -> list[Listener]:
        wanted = set(ports)
        return [Listener(**entry) for entry in self._answers["listeners"] if entry["port"] in wanted]

    def process_table(self) -> dict[int, Process]:
        return {}

    def process(self, pid: int) -> Process | None:
        return None

    def command_line(self, pid: int) -> list[str]:
        return []

    def running(self, program: str) -> bool | None:
        found: bool | None = self._answers["running"].get(program)
        return found

    def checkpoint(self, path: str) -> dict[str, Any] | None:
        return None


def about_yaml(about: dict[str, str]) -> str:
    """The text of box.yml: every value a folded YAML string, which needs no quoting."""
    lines = ["---", "# SPDX-License-Identifier: Apache-2.0"]
    for key, value in about.items():
        lines.append(f"{key}: >-")
        lines += textwrap.wrap(value, 110, initial_indent="  ", subsequent_indent="  ", break_long_words=False)
    return "\n".join(lines) + "\n"


def command_key(argv: Sequence[str]) -> tuple[str, ...]:
    """What tells recorded commands apart: the arguments without the code after `-c`, which is pdlab's own."""
    arguments = [argument for argument, before in zip(argv, ["", *argv]) if before != "-c"]  # noqa: B905 (strict= needs 3.10)
    return tuple(arguments)


def to_hex(data: bytes) -> str:
    """Bytes as lines of `offset: 16 bytes`, lines of zeros left out, and the length at the end."""
    lines = [
        f"{offset:03x}: {data[offset : offset + 16].hex(' ')}"
        for offset in range(0, len(data), 16)
        if any(data[offset : offset + 16])
    ]
    return "\n".join([*lines, f"{len(data):03x}:"]) + "\n"


def from_hex(text: str) -> bytes:
    """The reverse of to_hex. Raises ValueError."""
    rows = [line.partition(":") for line in text.split("\n") if line.strip()]
    data = bytearray(max((int(offset, 16) for offset, _colon, _row in rows), default=0))
    for offset, _colon, row in rows:
        part = bytes.fromhex(row.strip())
        data[int(offset, 16) : int(offset, 16) + len(part)] = part
    return bytes(data)
