# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_options import OF_THEM_ALL, needed_options
from ansible_collections.pdlab.pdlab.plugins.module_utils.server_paths import path_faults
from ansible_collections.pdlab.pdlab.plugins.modules import pd_server, pd_servers

BASE: dict[str, Any] = {
    "role": "prefill", "python": sys.executable, "port": 1, "model_path": "/", "served_name": "m", "bootstrap_port": 2,
    "workers": [], "user": None, "home": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, []),
        ({"role": None}, ["role: missing; say prefill, decode, colocated or router"]),
        ({"port": None}, ["port: missing; a prefill server needs it"]),
        ({"bootstrap_port": None}, ["bootstrap_port: missing; a prefill server needs it"]),
        ({"role": "decode", "bootstrap_port": None}, []),
        ({"role": "router", "model_path": None}, ["workers: missing; a router server needs it"]),
        (
            {"role": "router", "workers": [{"role": "prefill", "url": "http://x", "bootstrap_port": None}]},
            ["workers[0].bootstrap_port: missing; without it decode asks its own port for the prefill"],
        ),
        (
            {"model_path": None, "served_name": ""},
            ["model_path: missing; a prefill server needs it", "served_name: missing; a prefill server needs it"],
        ),
    ],
)
def test_what_a_role_needs_is_asked_for_all_at_once(changes: dict[str, Any], wanted: list[str]) -> None:
    assert needed_options({**BASE, **changes}) == wanted


def test_paths_that_are_not_there_are_named(tmp_path: Path) -> None:
    assert path_faults(BASE) == []
    faults = path_faults({**BASE, "python": "/no/python", "model_path": str(tmp_path / "none")})
    assert len(faults) == 2
    assert faults[0].startswith("python: /no/python")
    assert faults[1].startswith(f"model_path: {tmp_path}/none does not exist")


def test_an_account_that_is_not_there_yet_is_named_like_any_other_missing_thing() -> None:
    assert path_faults({**BASE, "user": "no-such-account", "home": "/srv/pdlab/home"}) == [
        "user: there is no account 'no-such-account' on this host; make it, or name another"
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as somebody else")
def test_what_the_account_cannot_use_is_named_with_its_cure_before_anything_is_stopped(tmp_path: Path) -> None:
    hidden = tmp_path / "model"
    hidden.mkdir(mode=0o700)
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\n")
    python.chmod(0o744)
    wanted = {**BASE, "user": "nobody", "home": str(home), "model_path": str(hidden), "python": str(python)}
    faults = path_faults(wanted)
    assert [fault.partition(":")[0] for fault in faults] == ["python", "model_path", "home"]
    assert f"nobody cannot read {hidden}/config.json; chmod a+rX -R" in faults[1]
    everywhere = {**BASE, "user": "nobody", "home": "/tmp", "python": "/usr/bin/env", "role": "router"}
    assert path_faults(everywhere) == []


# What the action plug-in takes of pd_servers' options, and does not pass on; pd_server's are its module's, too.
OF_THE_ACTION = {"seen", "run_dir", "record"}


@pytest.mark.parametrize(
    ("module", "spec", "beside"),
    [(pd_server, pd_server.ARGUMENTS, set()), (pd_servers, pd_servers.SPEC, OF_THE_ACTION)],
)
def test_the_documentation_and_the_arguments_say_the_same(module: Any, spec: Any, beside: set[str]) -> None:
    documented = yaml.safe_load(module.DOCUMENTATION)["options"]
    assert set(documented) - beside == set(spec)
    for name, one in spec.items():
        for key in ("type", "choices", "default", "required", "elements"):
            assert documented[name].get(key) == one.get(key), f"{name}.{key}"


def test_the_documented_options_of_a_routers_workers_are_those_of_the_arguments() -> None:
    documented = yaml.safe_load(pd_server.DOCUMENTATION)["options"]
    workers = pd_server.ARGUMENTS["workers"]["options"]
    assert set(documented["workers"]["suboptions"]) == set(workers)


def test_examples_and_returns_are_valid_yaml() -> None:
    assert len(yaml.safe_load(pd_server.EXAMPLES)) >= 3
    assert {"argv", "environment", "definition", "pids", "seconds_to_ready", "binding"} <= set(
        yaml.safe_load(pd_server.RETURN)
    )


class Refusing:
    """Stands where a server would that cannot be started."""

    def __init__(self, name: str, *faults: str) -> None:
        self.params = {"name": name, "peers": [{"name": "router"}]}
        self.faults = list(faults)

    def prepare(self) -> None:
        if self.faults:
            raise pd_servers.Refused(self.faults)


def test_faults_of_all_servers_are_told_once_each_and_say_whose_they_are() -> None:
    flag, peers = "b: args x: sglang 1 has no flag --x", "router: args y: sglang-router 1 has no flag --y"
    servers: Any = [Refusing("a", "python: /no", flag, peers), Refusing("b", flag, peers, "port: held"), Refusing("c")]
    with pytest.raises(pd_servers.Refused) as told:
        pd_servers.prepare_all(servers)
    # Each holds the flags of all of its peers against the table: b's would be told twice.
    assert told.value.faults == ["a: python: /no", flag, peers, "b: port: held"]


def test_what_counts_for_all_servers_is_not_said_of_one() -> None:
    own = {"name": "a", "role": "decode", "root": "/elsewhere", "wait": True}
    params = {**dict.fromkeys(OF_THEM_ALL), "root": "/srv", "servers": [own, {"role": "decode"}]}
    with pytest.raises(pd_servers.Refused) as told:
        pd_servers.described(params)
    assert told.value.faults[:2] == [
        "a: root: counts for all servers; say it beside servers",
        "a: wait: counts for all servers; say it beside servers",
    ]
    assert told.value.faults[2].startswith("servers[1]: ") and "name" in told.value.faults[2]
