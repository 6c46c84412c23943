#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: service_account
short_description: The unprivileged account that servers run as, and its home below pdlab's root
version_added: 0.1.0
description:
  - Makes a system account without a password and without a shell when there is none of that name. One that is there is
    left as it is.
  - The folder C(home) below O(root) is the account's own. It holds the servers' caches, and is the only folder that
    they may write to. What lies in it is handed over when it belonged to somebody else.
  - A system account, because systemd-logind removes the shared memory of a person's account when the person logs out.
options:
  name:
    description: Name of the account.
    type: str
    required: true
  root:
    description: Directory under which pdlab keeps everything on the target.
    type: path
    required: true
  state:
    description: V(absent) removes an account that this module made, and its home.
    type: str
    choices: [present, absent]
    default: present
attributes:
  check_mode:
    description: Says what would be done and touches nothing.
    support: full
  diff_mode:
    description: Shows the account and its home before and after.
    support: full
author:
  - The pdlab authors
"""

EXAMPLES = r"""
- name: The servers have an account of their own
  pdlab.pdlab.service_account:
    name: pdlab
    root: /opt/pdlab
"""

RETURN = r"""
name:
  description: Name of the account.
  type: str
  returned: always
uid:
  description: Its number, null while there is none.
  type: int
  returned: always
home:
  description: The folder of its own below the root.
  type: path
  returned: always
"""

import os
import pwd
import shutil
import stat

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import SYSTEM_PATH
from ansible_collections.pdlab.pdlab.plugins.module_utils.processes import run_watched
from ansible_collections.pdlab.pdlab.plugins.module_utils.target_layout import account_home

# By this an account that was made here is known again.
COMMENT = "pdlab servers"
HOME_MODE = 0o700
TIMEOUT_S = 60.0
# login.defs(5), SYS_UID_MAX; systemd-logind counts the same way.
LAST_SYSTEM_UID = 999


def find(name: str) -> pwd.struct_passwd | None:
    """Return the account, or None."""
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def home_is(home: str, uid: int) -> bool:
    """Tell whether the folder is there, belongs to that account, and is nobody else's."""
    try:
        seen = os.lstat(home)
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == uid and stat.S_IMODE(seen.st_mode) == HOME_MODE


def make_home(home: str, account: pwd.struct_passwd) -> None:
    """Make the folder, or hand it over with all that lies in it. Raises OSError."""
    os.makedirs(home, mode=HOME_MODE, exist_ok=True)
    if os.lstat(home).st_uid != account.pw_uid:
        for folder, folders, files in os.walk(home):
            for entry in (*folders, *files):
                os.lchown(os.path.join(folder, entry), account.pw_uid, account.pw_gid)
    os.lchown(home, account.pw_uid, account.pw_gid)
    os.chmod(home, HOME_MODE)


def described(account: bool, home: bool, name: str, path: str) -> str:
    """Say what is there, for a diff."""
    return (f"account {name}\n" if account else "") + (f"{path} of {name}, mode 0700\n" if home else "")


class Accounts:
    """One run of the module."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.name: str = module.params["name"]
        self.home = account_home(module.params["root"])

    def present(self) -> None:
        """Reach the state present, and exit."""
        account = find(self.name)
        ready = account is not None and home_is(self.home, account.pw_uid)
        if account is not None and account.pw_uid > LAST_SYSTEM_UID:
            self.module.warn(
                f"{self.name} is a person's account (number {account.pw_uid}): systemd-logind removes the servers' shared "
                "memory when it logs out. Name another account, or set RemoveIPC=no in /etc/systemd/logind.conf."
            )
        if ready or self.module.check_mode:
            self.leave(account is not None, ready, True)
        if account is None:
            looks = ["--home-dir", self.home, "--shell", "/usr/sbin/nologin", "--comment", COMMENT]
            self.command(["useradd", "--system", "--user-group", "--no-create-home", *looks, self.name])
        made = pwd.getpwnam(self.name)
        make_home(self.home, made)
        self.leave(account is not None, ready, True)

    def absent(self) -> None:
        """Reach the state absent, and exit."""
        account = find(self.name)
        ours = account is not None and account.pw_gecos == COMMENT
        home = os.path.isdir(self.home)
        if not self.module.check_mode:
            if ours:
                self.command(["userdel", self.name])
            if home:
                shutil.rmtree(self.home)
        self.leave(ours, home, False)

    def leave(self, account: bool, home: bool, wanted: bool) -> None:
        """Exit with what was there and what is there now."""
        now = find(self.name)
        before = described(account, home, self.name, self.home)
        after = described(wanted, wanted, self.name, self.home)
        self.module.exit_json(
            changed=before != after,
            name=self.name,
            uid=now.pw_uid if now else None,
            home=self.home,
            diff={"before": before, "after": after},
        )

    def command(self, argv: list[str]) -> None:
        """Run one of the account tools, or fail with what it said."""
        if os.geteuid() != 0:
            self.module.fail_json(
                msg=f"account {self.name}: only root can do that ({argv[0]}); use become, or leave pd_user out"
            )
        done = run_watched(argv, timeout_s=TIMEOUT_S, env={"PATH": SYSTEM_PATH, "LC_ALL": "C.UTF-8"})
        if done.rc != 0:
            self.module.fail_json(msg=f"account {self.name}: {argv[0]} failed: {(done.stderr or done.stdout).strip()}")


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "root": {"type": "path", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        supports_check_mode=True,
    )
    accounts = Accounts(module)
    try:
        if module.params["state"] == "present":
            accounts.present()
        else:
            accounts.absent()
    except OSError as error:
        module.fail_json(msg=f"account {module.params['name']}: {error}")


if __name__ == "__main__":
    main()
