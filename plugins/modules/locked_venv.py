#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: locked_venv
short_description: A Python virtual environment that is exactly what a hash lock says
version_added: 0.1.0
description:
  - Builds the environment with uv from a lock file with hashes, beside the old one, and renames it into place when
    it is complete. A half-made environment is therefore never used, and a failed build leaves the old one working.
  - An environment whose stamp names the same lock, distributions and Python, and whose installed distributions are
    still the ones recorded, is left alone.
options:
  path:
    description: Directory of the environment.
    type: path
    required: true
  state:
    description: Whether the environment exists.
    type: str
    choices: [present, absent]
    default: present
  lock:
    description: Lock file on the controller, as written by C(uv pip compile --generate-hashes).
    type: path
  distributions:
    description: Directories of local Python distributions on the controller, installed without dependencies.
    type: list
    elements: path
    default: []
  python:
    description:
      - Interpreter to build on. When left out, the first of C(/usr/bin/python3), C(python3.13), C(python3.12),
        C(python3.11) and C(python3) that is at least O(python_minimum).
    type: path
  python_minimum:
    description: Oldest Python that the lock was made for.
    type: str
    default: "3.11"
  uv:
    description:
      - The uv binary. When left out, the one on the target's C(PATH), or one that is installed into
        O(tools) from PyPI or the wheelhouse.
    type: path
  uv_version:
    description: Version of uv to install when the target has none.
    type: str
    default: 0.13.9
  tools:
    description: Directory for uv when the target has none.
    type: path
  wheelhouse:
    description: Directory of wheels on the target. When given, no index is asked.
    type: path
  index_url:
    description: Package index to use instead of PyPI.
    type: str
  timeout_s:
    description: Time limit of the installation in seconds.
    type: int
    default: 3600
  rebuild:
    description: Build again even when the environment is what it should be.
    type: bool
    default: false
  lock_path:
    description: Internal. The lock on the target, sent by the action plug-in.
    type: path
  lock_sha256:
    description: Internal. Hash of the lock, computed by the action plug-in.
    type: str
  distributions_sha256:
    description: Internal. Hash of the local distributions, computed by the action plug-in.
    type: str
    default: ""
  wheel_paths:
    description: Internal. Wheels of the local distributions on the target, sent by the action plug-in.
    type: list
    elements: path
    default: []
  seen:
    description: What M(pdlab.pdlab.box_facts) read in this run as C(kept). An environment that is whole in it is left alone unasked.
    type: dict
  run_dir:
    description: Run folder on the controller that keeps the result.
    type: path
  record:
    description: Name under which the run folder keeps the result.
    type: str
attributes:
  check_mode:
    description: Reports what would be built and touches nothing.
    support: full
  diff_mode:
    description: Shows the distributions before and after.
    support: full
author:
  - The pdlab authors
"""

EXAMPLES = r"""
- name: The engine's environment is what the lock says
  pdlab.pdlab.locked_venv:
    path: /opt/pdlab/engine
    lock: locks/cuda13.txt

- name: The same on a box without a network
  pdlab.pdlab.locked_venv:
    path: /opt/pdlab/engine
    lock: locks/cuda13.txt
    wheelhouse: /srv/wheels
"""

RETURN = r"""
path:
  description: Directory of the environment.
  type: str
  returned: always
python:
  description: The environment's interpreter.
  type: str
  returned: when state is present
python_version:
  description: Version of that interpreter.
  type: str
  returned: when the environment exists
fingerprint:
  description: Hash over the lock, the local distributions and the Python version.
  type: str
  returned: when the environment exists
packages:
  description: Installed distributions and their versions.
  type: dict
  returned: when the environment exists
reason:
  description: Why it was, or would be, built.
  type: str
  returned: when changed
seconds:
  description: Time that the build took.
  type: float
  returned: when built
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pdlab.pdlab.plugins.module_utils import venv_state
from ansible_collections.pdlab.pdlab.plugins.module_utils.processes import run_watched
from ansible_collections.pdlab.pdlab.plugins.module_utils.target_layout import VENV_STAMP

CANDIDATES = ("/usr/bin/python3", "python3.13", "python3.12", "python3.11", "python3")


def version_of(python: str) -> str | None:
    """Full version of an interpreter, None when it cannot be run."""
    try:
        done = subprocess.run(
            [python, "-c", "import platform; print(platform.python_version())"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def at_least(version: str, minimum: str) -> bool:
    """Compare dotted version numbers."""
    return [int(x) for x in re.findall(r"\d+", version)[:2]] >= [int(x) for x in minimum.split(".")[:2]]


class LockedVenv:
    """Reads the state, says what is missing, builds."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.params = module.params
        self.path = self.params["path"]
        self.state = venv_state.read_venv(self.path)
        self.stamp: dict[str, Any] = self.state["stamp"]

    def wanted(self, python_version: str) -> dict[str, Any]:
        """The stamp of an environment that is what it should be."""
        parts = {
            "lock_sha256": self.params["lock_sha256"],
            "distributions_sha256": self.params["distributions_sha256"] or "",
            "python_version": python_version,
        }
        text = json.dumps(parts, sort_keys=True)
        return {**parts, "fingerprint": hashlib.sha256(text.encode()).hexdigest()[:16]}

    def find_python(self) -> tuple[str, str]:
        """The interpreter to build on and its version. Fails with what was looked at."""
        minimum = self.params["python_minimum"]
        named = [self.params["python"]] if self.params["python"] else CANDIDATES
        seen = []
        for candidate in named:
            path = shutil.which(candidate)
            version = version_of(path) if path else None
            if path and version and at_least(version, minimum):
                return path, version
            seen.append(f"{candidate}: {version or 'not found'}")
        self.module.fail_json(
            msg=f"no Python {minimum} or newer to build {self.path} on ({'; '.join(seen)}). "
            "Install one (Debian/Ubuntu: apt install python3) or name it with `python`."
        )
        raise AssertionError  # fail_json does not return

    def find_uv(self, python: str) -> str:
        """The uv to use; installs one into `tools` when the target has none."""
        if self.params["uv"]:
            if os.access(self.params["uv"], os.X_OK):
                return str(self.params["uv"])
            self.module.fail_json(msg=f"uv: {self.params['uv']} is not an executable file")
        tools = self.params["tools"] or os.path.join(os.path.dirname(self.path), "tools")
        own = os.path.join(tools, "bin", "uv")
        found = own if os.access(own, os.X_OK) else shutil.which("uv")
        if found:
            return found
        self.run([python, "-m", "venv", tools], "install the package python3-venv, or name a uv binary with `uv`")
        source = ["--no-index", "--find-links", self.params["wheelhouse"]] if self.params["wheelhouse"] else []
        if self.params["index_url"] and not source:
            source = ["--index-url", self.params["index_url"]]
        pin = "uv==" + self.params["uv_version"]
        pip = [os.path.join(tools, "bin", "python"), "-m", "pip", "install", "--quiet", *source, pin]
        self.run(pip, "give the target a package index (index_url) or a wheelhouse with uv in it")
        return own

    def run(self, argv: list[str], cure: str) -> None:
        """Run one command of the build; fail with its own last lines and the cure."""
        done = run_watched(argv, timeout_s=self.params["timeout_s"])
        if done.rc != 0:
            tail = "\n".join((done.stderr or done.stdout or "").strip().splitlines()[-15:])
            self.module.fail_json(
                msg=f"{os.path.basename(argv[0])} failed (exit status {done.rc}) while building {self.path}: "
                f"{tail}\nWhat to do: {cure}.",
                argv=argv,
            )

    def build(self, python: str, python_version: str) -> dict[str, Any]:
        """Build beside the old environment, stamp, swap."""
        started = time.monotonic()
        uv = self.find_uv(python)
        fresh = self.path + ".new"
        old = self.path + ".old"
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        for leftover in (fresh, old):
            shutil.rmtree(leftover, ignore_errors=True)
        self.run(
            [uv, "venv", "--quiet", "--relocatable", "--python", python, fresh],
            "check the interpreter and the free space",
        )
        target = ["--python", os.path.join(fresh, "bin", "python")]
        source = ["--no-index", "--find-links", self.params["wheelhouse"]] if self.params["wheelhouse"] else []
        if self.params["index_url"] and not source:
            source = ["--default-index", self.params["index_url"]]
        self.run(
            [uv, "pip", "sync", "--quiet", "--require-hashes", *target, *source, self.params["lock_path"]],
            "check the network or the wheelhouse (every wheel of the lock must be in it), and the free space",
        )
        if self.params["wheel_paths"]:
            self.run(
                [uv, "pip", "install", "--quiet", "--no-deps", "--no-index", *target, *self.params["wheel_paths"]],
                "report this: a local distribution did not install",
            )
        stamp = {**self.wanted(python_version), "packages": venv_state.distributions(fresh)}
        with open(os.path.join(fresh, VENV_STAMP), "w", encoding="utf-8") as stream:
            json.dump(stamp, stream, indent=1)
            stream.flush()
            os.fsync(stream.fileno())
        if os.path.lexists(self.path):
            os.rename(self.path, old)
        os.rename(fresh, self.path)
        shutil.rmtree(old, ignore_errors=True)
        self.stamp = stamp
        return {"seconds": round(time.monotonic() - started, 2)}


def lines(packages: dict[str, str]) -> str:
    """Distributions as text for a diff."""
    return "".join(f"{name}=={version}\n" for name, version in packages.items())


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "lock": {"type": "path"},
            "distributions": {"type": "list", "elements": "path", "default": []},
            "python": {"type": "path"},
            "python_minimum": {"type": "str", "default": "3.11"},
            "uv": {"type": "path"},
            "uv_version": {"type": "str", "default": "0.13.9"},
            "tools": {"type": "path"},
            "wheelhouse": {"type": "path"},
            "index_url": {"type": "str"},
            "timeout_s": {"type": "int", "default": 3600},
            "rebuild": {"type": "bool", "default": False},
            "lock_path": {"type": "path"},
            "lock_sha256": {"type": "str", "no_log": False},
            "distributions_sha256": {"type": "str", "default": "", "no_log": False},
            "wheel_paths": {"type": "list", "elements": "path", "default": []},
            "run_dir": {"type": "path"},
            "record": {"type": "str"},
            "seen": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    venv = LockedVenv(module)
    path = venv.path
    before = venv.state["packages"]
    if module.params["state"] == "absent":
        changed = any(os.path.lexists(p) for p in (path, path + ".new", path + ".old"))
        if changed and not module.check_mode:
            for directory in (path, path + ".new", path + ".old"):
                shutil.rmtree(directory, ignore_errors=True)
        module.exit_json(changed=changed, path=path, diff={"before": lines(before), "after": ""})

    if module.params["wheelhouse"] and not os.path.isdir(module.params["wheelhouse"]):
        module.fail_json(msg=f"wheelhouse: {module.params['wheelhouse']} is not a directory on this host")
    base_version = version_of(module.params["python"]) if module.params["python"] else None
    reason = venv_state.reason_to_build(venv.state, module.params, base_version)
    result = {"path": path, "python": os.path.join(path, "bin", "python"), "changed": reason is not None}
    if reason is not None:
        python, python_version = venv.find_python()
        result["reason"] = reason
        if module.check_mode:
            wanted = venv.wanted(python_version)
            module.exit_json(
                **result,
                diff={
                    "before": f"fingerprint: {venv.stamp.get('fingerprint')}\n",
                    "after": f"fingerprint: {wanted['fingerprint']}\nreason: {reason}\n",
                },
            )
        if module.params["lock_path"] is None:
            module.exit_json(**{**result, "changed": False}, wants_files=True)
        result.update(venv.build(python, python_version))
        result["diff"] = {"before": lines(before), "after": lines(venv.stamp.get("packages", {}))}
    module.exit_json(**result, **venv_state.described(venv.stamp))


if __name__ == "__main__":
    main()
