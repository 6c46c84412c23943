# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes a systemd unit from a service definition.

Facts from systemd.exec(5), systemd.service(5) and systemd.syntax(7), tried on systemd 252: words in double
quotes take C escapes; `%` starts a specifier everywhere; `$` is expanded in ExecStart unless the program has
the prefix `:` (systemd 244 and later).
"""

from __future__ import annotations

from ansible_collections.pdlab.pdlab.plugins.module_utils.service_definition import (
    ALWAYS,
    ON_FAILURE,
    UNLIMITED,
    ServiceDefinition,
    refuse,
)

# Environment= drops an assignment with any other control character (env_value_is_valid in systemd).
CARRIED_CONTROLS = "\t\n"
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "%": "%%"}
_RESTART = {ALWAYS: "always", ON_FAILURE: "on-failure"}


def quote(text: str) -> str:
    """Return `text` as one quoted word of a unit file, safe in ExecStart=: and Environment=."""
    return '"' + "".join(_ESCAPES.get(character, character) for character in text) + '"'


def unit_name(name: str) -> str:
    """Return the unit's file name."""
    return name + ".service"


def unit_text(definition: ServiceDefinition) -> str:
    """Return the unit file's whole text.

    Raises DefinitionError, naming every value that systemd could not hand over unchanged.
    """
    refuse(definition, CARRIED_CONTROLS, "systemd")
    unit = [
        ("Description", _plain(definition.description)),
        ("Wants", "network-online.target"),
        ("After", " ".join(["network-online.target", *(unit_name(name) for name in definition.after)])),
        # Never give up: a server that an operator wants up is tried again after each delay.
        ("StartLimitIntervalSec", "0"),
    ]
    service = [
        ("Type", "exec"),
        ("ExecStart", ":" + " ".join(quote(item) for item in definition.argv)),
        *(("Environment", quote(f"{key}={value}")) for key, value in definition.environment.items()),
        ("WorkingDirectory", _plain(definition.working_directory)),
        ("StandardOutput", "append:" + _plain(definition.log_path)),
        ("StandardError", "inherit"),
        # mixed: SIGTERM to the server alone, which ends its workers itself; SIGKILL to whatever is left.
        ("KillMode", "mixed"),
        ("TimeoutStopSec", str(definition.stop_timeout_s)),
        ("LimitMEMLOCK", _limit(definition.limit_memlock)),
        ("LimitNOFILE", _limit(definition.limit_nofile)),
        ("LimitSTACK", _limit(definition.limit_stack)),
    ]
    if definition.user is not None:
        service.append(("User", definition.user))
    if definition.is_job:
        # Keeps the exit code readable: an inactive unit that nothing wants is forgotten with its result.
        service.append(("RemainAfterExit", "yes"))
    else:
        service.append(("Restart", _RESTART[definition.restart]))
        service.append(("RestartSec", str(definition.restart_delay_s)))
    sections = [("Unit", unit), ("Service", service)]
    if not definition.is_job:
        sections.append(("Install", [("WantedBy", "multi-user.target")]))
    lines = ["# Written by pdlab; a change made here is overwritten.", f"# Engine: {definition.fingerprint}"]
    for title, pairs in sections:
        lines += ["", f"[{title}]", *(f"{key}={value}" for key, value in pairs)]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Escape a value that systemd reads to the end of its line, without quotes."""
    return text.replace("%", "%%")


def _limit(value: int) -> str:
    return "infinity" if value == UNLIMITED else str(value)
