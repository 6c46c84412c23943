# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes a supervisor program section from a service definition.

supervisor's own `environment=` cannot hold a value with both kinds of quotes (datatypes.dict_of_key_value_pairs
strips them), and it adds to what supervisord inherited. So the command starts with `env -i NAME=VALUE …`: one
quoting rule for arguments and environment, and nothing is inherited.
"""

from __future__ import annotations

import re
import shlex

from ansible_collections.pdlab.pdlab.plugins.module_utils.service_definition import (
    ALWAYS,
    ON_FAILURE,
    DefinitionError,
    ServiceDefinition,
    refuse,
)

CARRIED_CONTROLS = "\t"
LOG_MAX_BYTES = 64 * 1024 * 1024
LOG_BACKUPS = 4
_RESTART = {ALWAYS: "true", ON_FAILURE: "unexpected"}
# supervisor restarts a program at once; a decode server needs some seconds to notice that its prefill was away.
# A start that was asked for leaves a file, which the program takes away; a start without it waits first.
LAUNCHER = 'rm "$0" 2>/dev/null || sleep "$1"; shift; exec "$@"'
SHELL = "/bin/sh"


def quote(text: str) -> str:
    """Return `text` as one word of a supervisor `command=`.

    Three readers see it in turn: configparser (a `;` or `#` after a blank starts a comment, supervisor puts the
    file's folder for the text `%(here)s` before all else), `%` expansion, and shlex. Inside single quotes an empty
    pair of quotes changes nothing for shlex and keeps the other two from seeing what they look for.
    """
    quoted = shlex.quote(text).replace("%", "%%").replace("%(", "%''(")
    return re.sub(r"(\s)([;#])", r"\1''\2", quoted)


def program_section(name: str) -> str:
    """Return the section's title."""
    return f"program:{name}"


def program_text(definition: ServiceDefinition, start_token: str) -> str:
    """Return the whole text of the program's file in conf.d.

    `start_token` is the file that a wanted start leaves for the launcher.

    Raises DefinitionError, naming every value that supervisor could not hand over unchanged.
    """
    refuse(definition, CARRIED_CONTROLS, "supervisor")
    _refuse_own(definition)
    assignments = [f"{key}={value}" for key, value in definition.environment.items()]
    command = ["/usr/bin/env", "-i", *assignments, *definition.argv]
    if not definition.is_job:
        command = [SHELL, "-c", LAUNCHER, start_token, str(definition.restart_delay_s), *command]
    pairs = [
        ("command", " ".join(quote(item) for item in command)),
        ("directory", _plain(definition.working_directory)),
        ("autostart", "false" if definition.is_job else "true"),
        ("autorestart", "false" if definition.is_job else _RESTART[definition.restart]),
        ("startsecs", "0" if definition.is_job else "1"),
        ("startretries", "0" if definition.is_job else "3"),
        ("exitcodes", "0"),
        ("stopsignal", "TERM"),
        ("stopwaitsecs", str(definition.stop_timeout_s)),
        ("stopasgroup", "true"),
        ("killasgroup", "true"),
        ("redirect_stderr", "true"),
        # supervisor expands this value twice (options.py, _processes_from_section).
        ("stdout_logfile", _plain(_plain(definition.log_path))),
        ("stdout_logfile_maxbytes", str(LOG_MAX_BYTES)),
        ("stdout_logfile_backups", str(LOG_BACKUPS)),
    ]
    if definition.user is not None:
        pairs.append(("user", definition.user))
    lines = [
        "; Written by pdlab; a change made here is overwritten.",
        f"; {definition.description}",
        f"; Engine: {definition.fingerprint}",
        f"[{program_section(definition.name)}]",
        *(f"{key}={value}" for key, value in pairs),
    ]
    return "\n".join(lines) + "\n"


def restart_of(text: str) -> str | None:
    """When the program of a file of program_text is started again by itself: ALWAYS, ON_FAILURE, or None for never."""
    found = re.search(r"^autorestart=(\w+)$", text, re.MULTILINE)
    return {word: name for name, word in _RESTART.items()}.get(found.group(1)) if found else None


def _refuse_own(definition: ServiceDefinition) -> None:
    found = []
    if definition.argv and "=" in definition.argv[0]:
        found.append(
            f"{definition.name}: argv[0]: {definition.argv[0]!r} has a '=', which env takes for a variable; "
            "choose a path without it"
        )
    for key in ("working_directory", "log_path"):
        value = getattr(definition, key)
        if re.search(r"\s[;#]", value) or "%(here)s" in value:
            found.append(
                f"{definition.name}: {key}: {value!r} has a blank before ';' or '#', or '%(here)s', which "
                "supervisor would not take as text; choose another path"
            )
    if found:
        raise DefinitionError("\n".join(found))


def _plain(text: str) -> str:
    return text.replace("%", "%%")
