# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import systemd_manager
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_definition import (
    ALWAYS,
    NEVER,
    PREFIX,
    UNLIMITED,
    DefinitionError,
    ServiceDefinition,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.supervisor_program import LOG_BACKUPS, LOG_MAX_BYTES
from ansible_collections.pdlab.pdlab.plugins.module_utils.systemd_shared import logrotate_text, shared_units
from ansible_collections.pdlab.pdlab.plugins.module_utils.systemd_unit import HARDENING, NOT_USED, quote, unit_text
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
        "WantedBy": "pdlab.target",
        "PartOf": "pdlab.target",
        "Description": "pdlab prefill 100%%",
    }
    assert {key: values_of(text, key) for key in wanted} == {key: [value] for key, value in wanted.items()}


def test_a_job_runs_once_is_not_started_at_boot_and_keeps_its_exit_code() -> None:
    text = unit_text(replace(DEFINITION, restart=NEVER))
    assert values_of(text, "RemainAfterExit") == ["yes"]
    assert values_of(text, "Restart") == values_of(text, "WantedBy") == []


def test_a_prefill_stays_away_as_long_as_decode_needs_also_when_it_is_restarted_by_hand() -> None:
    text = unit_text(replace(DEFINITION, least_absence_s=15))
    (before,) = values_of(text, "ExecStartPre")
    (after,) = values_of(text, "ExecStopPost")
    assert before.endswith('"/run/pdlab-prefill-0/ended" "15"')
    assert after.endswith('"/run/pdlab-prefill-0/ended"')
    # What the first leaves the second must find, and a reboot must clear.
    assert values_of(text, "RuntimeDirectory") == ["pdlab-prefill-0"]
    assert values_of(text, "RuntimeDirectoryPreserve") == ["yes"]
    assert values_of(unit_text(DEFINITION), "ExecStartPre") == []


def shell_words(command: str) -> list[str]:
    return [unquote(word) for word in re.findall(r'"(?:[^"\\]|\\.)*"', command.removeprefix(":"))]


@pytest.mark.parametrize(("ended_s_ago", "least"), [(None, 0.0), (0, 1.0), (60, 0.0)])
def test_the_wait_before_a_start_is_what_is_left_of_the_absence(
    tmp_path: Path, ended_s_ago: int | None, least: float
) -> None:
    text = unit_text(replace(DEFINITION, least_absence_s=2))
    note, wait = shell_words(values_of(text, "ExecStopPost")[0]), shell_words(values_of(text, "ExecStartPre")[0])
    note[-1] = wait[-2] = str(tmp_path / "ended")
    if ended_s_ago is not None:
        subprocess.run(note, check=True)
        noted = int((tmp_path / "ended").read_text())
        (tmp_path / "ended").write_text(str(noted - ended_s_ago))
    began = time.monotonic()
    subprocess.run(wait, check=True, timeout=10)
    assert least <= time.monotonic() - began < least + 2


def test_a_server_with_an_account_is_held_to_little_and_each_line_says_why() -> None:
    text = unit_text(replace(DEFINITION, user="pdlab", writable=("/srv/pdlab/home",)))
    assert values_of(text, "User") == ["pdlab"]
    assert values_of(text, "ReadWritePaths") == ['"/srv/pdlab/home"']
    lines = text.splitlines()
    for key, value, reason in HARDENING:
        assert lines[lines.index(f"{key}={value}") - 1] == f"# {reason}"


def test_nothing_that_stands_between_a_server_and_its_gpus_or_peers_is_ever_set() -> None:
    whole = replace(
        DEFINITION,
        user="pdlab",
        writable=("/a",),
        mounts=("/b",),
        after=("pdlab-x",),
        as_root=("/c",),
        least_absence_s=1,
    )
    keys = {line.partition("=")[0] for line in unit_text(whole).splitlines() if "=" in line and line[0] != "#"}
    assert not keys & set(NOT_USED)
    assert all(reason for reason in NOT_USED.values())


def test_a_server_without_an_account_keeps_all_that_root_has() -> None:
    keys = {line.partition("=")[0] for line in unit_text(DEFINITION).splitlines()}
    assert not keys & {"User", *(key for key, _, _ in HARDENING)}


def test_roots_part_of_a_start_is_marked_so_and_may_fail() -> None:
    text = unit_text(replace(DEFINITION, as_root=("/usr/bin/nvidia-modprobe", "-u")))
    assert values_of(text, "ExecStartPre") == ['+-:"/usr/bin/nvidia-modprobe" "-u"']


def test_the_file_systems_that_a_server_needs_are_there_first() -> None:
    text = unit_text(replace(DEFINITION, mounts=("/srv/my models", "/opt/50%")))
    assert values_of(text, "RequiresMountsFor") == ['"/srv/my models" "/opt/50%%"']


def test_the_logs_are_rotated_by_size_under_the_names_that_a_start_uses() -> None:
    conf = logrotate_text("/srv/pdlab")
    assert conf.splitlines()[1] == '"/srv/pdlab/logs/*.log" {'
    settings = {line.strip() for line in conf.splitlines()}
    assert {f"size {LOG_MAX_BYTES}", f"rotate {LOG_BACKUPS}", "copytruncate", "nocompress", "nodateext"} <= settings


def test_the_target_and_the_rotation_are_started_at_boot_and_no_server_could_have_their_names() -> None:
    units = shared_units("/srv/pdlab")
    assert values_of(units["pdlab.target"], "WantedBy") == ["multi-user.target"]
    assert values_of(units["pdlab_logs.timer"], "WantedBy") == values_of(units["pdlab_logs.timer"], "PartOf")
    assert not [name for name in units if name.startswith(PREFIX)]


def test_another_engine_fingerprint_is_another_text() -> None:
    assert unit_text(DEFINITION) != unit_text(replace(DEFINITION, fingerprint="def"))


def test_services_that_come_first_are_named_as_units() -> None:
    text = unit_text(replace(DEFINITION, after=("pdlab-decode-0",)))
    assert values_of(text, "After") == ["pdlab.target network-online.target pdlab-decode-0.service"]


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


def test_a_host_without_logrotate_is_told_that_logs_have_no_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "logrotate"
    monkeypatch.setattr(systemd_manager, "LOGROTATE", str(program))
    manager = systemd_manager.SystemdManager("/srv/pdlab")
    (doubt,) = manager.shared_doubts()
    assert "/srv/pdlab/logs" in doubt and "apt-get install logrotate" in doubt
    program.touch()
    assert manager.shared_doubts() == []
