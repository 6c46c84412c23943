# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands that must be there, and the distribution's packages that bring them. Looking asks no package manager."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ansible_collections.pdlab.pdlab.plugins.module_utils.host.machine import Machine, SettingError


def locate(machine: Machine, commands: Iterable[str]) -> dict[str, str | None]:
    """Path of each command, None for one that is missing."""
    return {command: machine.which(command) for command in commands}


def missing_packages(commands: Mapping[str, str], found: Mapping[str, str | None]) -> list[str]:
    """The packages of the commands that are missing, in order."""
    return sorted({commands[command] for command, path in found.items() if path is None})


def found_as_text(found: Mapping[str, str | None]) -> str:
    """Commands and where they are, for a diff."""
    return "".join(f"{command}: {path or 'missing'}\n" for command, path in sorted(found.items()))


def install(machine: Machine, packages: list[str], timeout_s: float) -> None:
    """apt-get install, after an update when the package lists do not know a package yet.

    Raises SettingError with the end of what apt-get said.
    """
    base = ["apt-get", "-q", "-y", "-o", f"DPkg::Lock::Timeout={timeout_s:.0f}"]
    argv = [*base, "install", "--no-install-recommends", *packages]
    try:
        machine.run(argv, timeout_s)
    except SettingError:
        try:
            machine.run([*base, "update"], timeout_s)
            machine.run(argv, timeout_s)
        except SettingError as error:
            raise SettingError(f"apt-get could not install {' '.join(packages)}: {error}") from error
