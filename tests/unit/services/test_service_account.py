# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import server_environment
from ansible_collections.pdlab.pdlab.plugins.modules import service_account

ME = pwd.getpwuid(os.geteuid())


def test_a_home_is_right_only_when_it_is_the_accounts_own_and_closed_to_others(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert not service_account.home_is(str(home), ME.pw_uid)
    service_account.make_home(str(home), ME)
    assert service_account.home_is(str(home), ME.pw_uid)
    assert not service_account.home_is(str(home), ME.pw_uid + 1)
    home.chmod(0o755)
    assert not service_account.home_is(str(home), ME.pw_uid)


def test_a_link_in_the_homes_place_is_not_taken_for_it(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "home").symlink_to(tmp_path / "elsewhere")
    assert not service_account.home_is(str(tmp_path / "home"), ME.pw_uid)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_caches_that_root_left_are_handed_over_and_links_are_not_followed(tmp_path: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    outside = tmp_path / "outside"
    outside.write_text("root's own")
    cache = tmp_path / "home" / ".cache" / "triton"
    cache.mkdir(parents=True)
    (cache / "kernel").write_text("x")
    (cache / "link").symlink_to(outside)
    service_account.make_home(str(tmp_path / "home"), nobody)
    assert {path.lstat().st_uid for path in (tmp_path / "home").rglob("*")} == {nobody.pw_uid}
    assert outside.stat().st_uid == 0


def test_what_is_compiled_goes_to_the_accounts_home_and_nowhere_else() -> None:
    server = {
        "role": "decode",
        "python": "/e/bin/python",
        "home": "/srv/pdlab/home",
        "address": "127.0.0.1",
        "device": "cpu",
    }
    own = server_environment({**server, "user": "pdlab"})
    added = set(own) - set(server_environment(server))
    assert added == {"PYTHONPYCACHEPREFIX", "TORCHINDUCTOR_CACHE_DIR"}
    assert all(own[name].startswith("/srv/pdlab/home/") for name in added)
