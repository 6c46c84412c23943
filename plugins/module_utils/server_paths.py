# SPDX-License-Identifier: GPL-3.0-or-later
"""The paths that a server needs: whether they are there, and whether the account that it runs as can use them."""

from __future__ import annotations

import os
import pwd
import subprocess
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import ENGINE_ROLES


def path_faults(params: dict[str, Any]) -> list[str]:
    """Return a sentence for each path that is named and not there."""
    found = []
    if not os.access(params["python"], os.X_OK):
        found.append(f"python: {params['python']} is missing or cannot be run; install the engine first")
    if params["role"] in ENGINE_ROLES and not os.path.exists(params["model_path"]):
        found.append(
            f"model_path: {params['model_path']} does not exist on this host; correct the path or fetch the model"
        )
    if params["user"] and not found:
        try:
            found = account_faults(params, pwd.getpwnam(params["user"]))
        except KeyError:
            found.append(f"user: there is no account {params['user']!r} on this host; make it, or name another")
    return found


def account_faults(params: dict[str, Any], account: pwd.struct_passwd) -> list[str]:
    """Return a sentence for each path that the account cannot use as a server must."""
    wanted = [("python", params["python"], "-x", "run", "chmod a+rx, and a+x on the folders above it")]
    if params["role"] in ENGINE_ROLES:
        cure = f"chmod a+rX -R, and a+x on the folders above it, or give it to {account.pw_name}"
        # Every model has one; reading it takes entering the folder, too.
        wanted.append(("model_path", os.path.join(params["model_path"], "config.json"), "-r", "read", cure))
    wanted.append(("home", params["home"] or account.pw_dir, "-w", "write to", f"chown {account.pw_name}"))
    return [
        f"{option}: {account.pw_name} cannot {what} {path}; {cure}"
        for option, path, test, what, cure in wanted
        if not allowed(account, test, path)
    ]


def allowed(account: pwd.struct_passwd, test: str, path: str) -> bool:
    """Ask the kernel, as that account, what test(1) asks of a path: -r, -w or -x."""
    if os.geteuid() == account.pw_uid:
        return subprocess.run(["test", test, path], check=False).returncode == 0
    if os.geteuid() != 0:
        return True  # whoever cannot become it cannot ask; the service manager will refuse
    groups = os.getgrouplist(account.pw_name, account.pw_gid)
    done = subprocess.run(
        ["test", test, path], user=account.pw_uid, group=account.pw_gid, extra_groups=groups, cwd="/", check=False
    )
    return done.returncode == 0
