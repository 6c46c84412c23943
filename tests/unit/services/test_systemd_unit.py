# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from dataclasses import replace

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_definition import (
    ALWAYS,
    NEVER,
    UNLIMITED,
    DefinitionError,
    ServiceDefinition,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.systemd_unit import quote, unit_text
from hypothesis import given
from hypothesis import strategies as st

DEFINITION = ServiceDefinition(
    name="pdlab-prefill-0",
    description="pdlab prefill 100%",
    argv=("/srv/pdlab/engine/bin/python", "-m", "sglang.launch_server"),
    environment={"PATH": "/bin"},
    working_directory="/srv/pdlab/run",
    log_path="/srv/pdlab/logs/prefill-0.log",
    restart=ALWAYS,
    fingerprint="abc",
)
VALUES = st.text(st.characters(exclude_categories=("Cs", "Cc")) | st.sampled_from("\t\n \"'\\%$;#{}"), max_size=40)


def values_of(text: str, key: str) -> list[str]:
    return [line.partition("=")[2] for line in text.splitlines() if line.startswith(key + "=")]


def unquote(word: str) -> str:
    """Read one quoted word as systemd.syntax(7) and systemd.unit(5) say: C escapes, then specifiers."""
    assert word[0] == word[-1] == '"'
    escapes = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}
    text = re.sub(r"\\(.)", lambda match: escapes[match.group(1)], word[1:-1])
    assert not re.search(r"(?<!%)(?:%%)*%(?!%)", text), "a single % would be a specifier"
    return text.replace("%%", "%")


@given(VALUES)
def test_every_value_reads_back_unchanged_by_systemds_written_rules(value: str) -> None:
    quoted = quote(value)
    assert unquote(quoted) == value
    assert "\n" not in quoted


@given(VALUES)
def test_a_quoted_value_never_ends_its_own_quotes(value: str) -> None:
    assert re.fullmatch(r'"(?:[^"\\]|\\.)*"', quote(value))


def test_dollars_are_left_alone_because_the_prefix_switches_expansion_off() -> None:
    text = unit_text(replace(DEFINITION, argv=("/bin/echo", "${HOME} $X")))
    assert values_of(text, "ExecStart") == [':"/bin/echo" "${HOME} $X"']


def test_a_server_is_kept_up_bound_to_boot_and_killed_with_all_its_processes() -> None:
    text = unit_text(replace(DEFINITION, restart_delay_s=15, stop_timeout_s=90))
    wanted = {
        "Type": "exec",
        "KillMode": "mixed",
        "TimeoutStopSec": "90",
        "Restart": "always",
        "RestartSec": "15",
        "StartLimitIntervalSec": "0",
        "LimitMEMLOCK": "infinity",
        "LimitNOFILE": "1048576",
        "LimitSTACK": "67108864",
        "StandardOutput": "append:/srv/pdlab/logs/prefill-0.log",
        "WantedBy": "multi-user.target",
        "Description": "pdlab prefill 100%%",
    }
    assert {key: values_of(text, key) for key in wanted} == {key: [value] for key, value in wanted.items()}


def test_a_job_runs_once_is_not_started_at_boot_and_keeps_its_exit_code() -> None:
    text = unit_text(replace(DEFINITION, restart=NEVER))
    assert values_of(text, "RemainAfterExit") == ["yes"]
    assert values_of(text, "Restart") == values_of(text, "WantedBy") == []


def test_another_engine_fingerprint_is_another_text() -> None:
    assert unit_text(DEFINITION) != unit_text(replace(DEFINITION, fingerprint="def"))


def test_services_that_come_first_are_named_as_units() -> None:
    text = unit_text(replace(DEFINITION, after=("pdlab-decode-0",)))
    assert values_of(text, "After") == ["network-online.target pdlab-decode-0.service"]


def test_a_finite_memlock_limit_is_written_in_bytes() -> None:
    assert values_of(unit_text(replace(DEFINITION, limit_memlock=4096)), "LimitMEMLOCK") == ["4096"]
    assert DEFINITION.limit_memlock == UNLIMITED


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"name": "a b"}, "name"),
        ({"argv": ()}, "argv"),
        ({"argv": ("/bin/x", "a\x00b")}, "NUL"),
        ({"argv": ("/bin/x", "a\x01b")}, "argv[1]"),
        ({"environment": {"A B": "1"}}, "'A B'"),
        ({"environment": {"A": "\x1b[0m"}}, "env A"),
        ({"working_directory": "run"}, "working_directory"),
        ({"log_path": "/srv/x\n.log"}, "log_path"),
        ({"log_path": "/srv/x\\"}, "log_path"),
        ({"restart": "sometimes"}, "sometimes"),
    ],
)
def test_what_cannot_be_carried_is_refused_by_name(change: dict[str, object], named: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(named)):
        unit_text(replace(DEFINITION, **change))  # type: ignore[arg-type]


def test_all_faults_of_a_definition_come_at_once() -> None:
    with pytest.raises(DefinitionError) as error:
        unit_text(replace(DEFINITION, log_path="x", environment={"1": "", "A": "\x02"}))
    assert len(str(error.value).splitlines()) == 3
