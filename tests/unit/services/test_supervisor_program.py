# SPDX-License-Identifier: Apache-2.0
"""Held against supervisor's own configuration classes, which read the file exactly as supervisord does."""

from __future__ import annotations

import configparser
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_definition import (
    ALWAYS,
    NEVER,
    ON_FAILURE,
    DefinitionError,
    ServiceDefinition,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.supervisor_manager import daemon_config
from ansible_collections.pdlab.pdlab.plugins.module_utils.supervisor_program import (
    LAUNCHER,
    program_text,
    restart_of,
)
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from supervisor.options import ServerOptions  # type: ignore[import-untyped]

DEFINITION = ServiceDefinition(
    name="pdlab-prefill-0",
    description="pdlab prefill",
    argv=("/usr/bin/python3", "-m", "sglang.launch_server"),
    environment={"PATH": "/bin"},
    working_directory="/",
    log_path="/tmp/prefill-0.log",
    restart=ALWAYS,
)
TOKEN = "/srv/pdlab/supervisor/starts/pdlab-prefill-0/now"
VALUES = st.text(st.characters(exclude_categories=("Cs", "Cc")) | st.sampled_from("\t \"'\\%$;#{}(=:,"), max_size=40)


def read_by_supervisor(folder: Path, definition: ServiceDefinition) -> Any:
    """Return the ProcessConfig that supervisord would make of the definition."""
    conf_d = folder / "conf.d"
    conf_d.mkdir(exist_ok=True)
    (folder / "supervisord.conf").write_text(daemon_config(str(folder), str(folder / "s.sock")), encoding="utf-8")
    (conf_d / "pdlab-x.conf").write_text(program_text(definition, TOKEN), encoding="utf-8")
    options = ServerOptions()
    options.configfile = str(folder / "supervisord.conf")
    options.here = str(folder)
    section = options.read_config(options.configfile)
    (group,) = section.process_group_configs
    (process,) = group.process_configs
    return process


def argv_of(process: Any) -> list[str]:
    return shlex.split(process.command)


def program_of(process: Any) -> tuple[dict[str, str], list[str]]:
    """Take apart what env will make of the command: the environment and the program's argv."""
    argv = argv_of(process)
    rest = argv[argv.index("/usr/bin/env") + 2 :]
    environment = {}
    while "=" in rest[0]:
        key, _, value = rest.pop(0).partition("=")
        environment[key] = value
    return environment, rest


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(VALUES, max_size=4),
    st.dictionaries(st.from_regex(r"[A-Za-z_]\w{0,6}", fullmatch=True).filter(str.isascii), VALUES, max_size=3),
)
@example(
    ["%(here)s", "%%(here)s", "%(ENV_PATH)s", "a ;b", "a\t#c", "a ; b # c", "''", '"', "\\", "%", ""],
    {"A": "'\"", "B": ""},
)
def test_every_value_survives_supervisors_own_parser(tmp_path: Path, items: list[str], env: dict[str, str]) -> None:
    definition = replace(DEFINITION, argv=("/usr/bin/python3", *items), environment=env)
    environment, argv = program_of(read_by_supervisor(tmp_path, definition))
    assert argv == list(definition.argv)
    assert environment == env


def test_a_server_is_stopped_and_killed_as_a_group_and_its_log_is_rotated(tmp_path: Path) -> None:
    process = read_by_supervisor(tmp_path, replace(DEFINITION, stop_timeout_s=90))
    assert (process.stopasgroup, process.killasgroup, process.stopwaitsecs) == (True, True, 90)
    assert (process.redirect_stderr, process.stdout_logfile) == (True, "/tmp/prefill-0.log")
    assert process.stdout_logfile_maxbytes > 0 < process.stdout_logfile_backups
    assert process.autostart is True
    assert process.environment == {}


def test_a_restart_by_the_manager_waits_and_a_wanted_start_does_not(tmp_path: Path) -> None:
    argv = argv_of(read_by_supervisor(tmp_path, replace(DEFINITION, restart_delay_s=15)))
    assert argv[:5] == ["/bin/sh", "-c", LAUNCHER, TOKEN, "15"]


def test_the_restart_policies_are_supervisors_own(tmp_path: Path) -> None:
    assert [restart_of(program_text(replace(DEFINITION, restart=one), "/t")) for one in (ALWAYS, ON_FAILURE)] == [
        ALWAYS,
        ON_FAILURE,
    ]
    always = read_by_supervisor(tmp_path, DEFINITION).autorestart
    on_failure = read_by_supervisor(tmp_path, replace(DEFINITION, restart=ON_FAILURE)).autorestart
    assert always.__name__ == "RestartUnconditionally"
    assert on_failure.__name__ == "RestartWhenExitUnexpected"


def test_a_job_runs_once_without_the_launcher(tmp_path: Path) -> None:
    process = read_by_supervisor(tmp_path, replace(DEFINITION, restart=NEVER))
    assert argv_of(process)[0] == "/usr/bin/env"
    assert restart_of(program_text(replace(DEFINITION, restart=NEVER), TOKEN)) is None
    assert (process.autorestart, process.autostart, process.startsecs) == (False, False, 0)


def test_percent_signs_in_paths_survive(tmp_path: Path) -> None:
    odd = tmp_path / "100%s"
    odd.mkdir()
    process = read_by_supervisor(tmp_path, replace(DEFINITION, working_directory=str(odd), log_path=f"{odd}/a%b.log"))
    assert (process.directory, process.stdout_logfile) == (str(odd), f"{odd}/a%b.log")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"argv": ("/opt/a=b/python",)}, "'='"),
        ({"argv": ("/bin/x", "two\nlines")}, "argv[1]"),
        ({"environment": {"A": "two\nlines"}}, "env A"),
        ({"log_path": "/srv/a ;b.log"}, "log_path"),
        ({"working_directory": "/srv/%(here)s"}, "working_directory"),
    ],
)
def test_what_cannot_be_carried_is_refused_by_name(change: dict[str, Any], named: str) -> None:
    with pytest.raises(DefinitionError) as error:
        program_text(replace(DEFINITION, **change), TOKEN)
    assert named in str(error.value)


def test_the_file_has_one_section_and_no_line_that_runs_on(tmp_path: Path) -> None:
    parser = configparser.RawConfigParser()
    parser.read_string(program_text(DEFINITION, TOKEN))
    assert parser.sections() == ["program:pdlab-prefill-0"]
