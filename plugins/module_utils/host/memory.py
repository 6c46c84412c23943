# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host's settings were before pdlab changed them: one JSON file below pdlab's root on the target.

{"version": 1, "settings": {KEY: {"was": VALUE|null, "set": VALUE}}, "left": [KEY], "packages": [NAME]}; keys are those
of values.py, null means absent. `was` is written once and never again; `set` is the value that pdlab gave last.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.host.machine import Machine, SettingError
from ansible_collections.pdlab.pdlab.plugins.module_utils.target_layout import state_dir, under

VERSION = 1


def memory_path(root: str) -> str:
    """The file of the memory below pdlab's root."""
    return under(state_dir(root), "host.json")


@dataclass
class Memory:
    """`settings` maps a key to {"was", "set"}; `packages` are those that pdlab installed.

    `left` are the settings that were to be put back and that somebody had changed: they are not set at boot any more.
    """

    path: str
    settings: dict[str, dict[str, str | None]] = field(default_factory=dict)
    packages: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    @classmethod
    def load(cls, machine: Machine, path: str) -> Memory:
        """The memory at `path`; empty when there is none. Raises SettingError when it cannot be understood."""
        text = machine.text(path)
        if text is None:
            if os.path.lexists(machine.path(path)):
                raise SettingError(f"{path} cannot be read by this user; become root (ansible_become: true)")
            return cls(path)
        cure = f"put it right by hand, or move it away: the old values stand in it ({path})"
        try:
            data: Any = json.loads(text)
            if data["version"] != VERSION:
                raise SettingError(f"the memory has version {data['version']}, and this pdlab knows {VERSION}; {cure}")
            settings = {str(key): {"was": entry["was"], "set": entry["set"]} for key, entry in data["settings"].items()}
            return cls(path, settings, [str(name) for name in data["packages"]], [str(key) for key in data["left"]])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SettingError(f"the memory is not what pdlab writes: {error!r}; {cure}") from error

    def remember(self, key: str, was: str | None, new: str | None) -> None:
        """Note a change; what a value was is noted the first time alone."""
        first = self.settings.get(key, {"was": was})
        self.settings[key] = {"was": first["was"], "set": new}
        self.left = [other for other in self.left if other != key]

    def forget(self, keys: Iterable[str]) -> None:
        """Forget these settings."""
        for key in keys:
            self.settings.pop(key, None)
            self.left = [other for other in self.left if other != key]

    def save(self, machine: Machine) -> None:
        """Write it whole, or remove it when nothing is remembered. Raises OSError."""
        empty = not self.settings and not self.packages
        data = {"version": VERSION, "settings": self.settings, "left": self.left, "packages": self.packages}
        machine.replace(self.path, None if empty else json.dumps(data, indent=1) + "\n")
