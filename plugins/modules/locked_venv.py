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
  - An environment whose stamp names the same lock, distributions, Python and overlay, whose installed distributions
    are still the ones recorded, and whose patched files are still what the overlay made them, is left alone.
  - When only the overlay changed, the environment is copied with hard links, the old overlay is taken back there and
    the new one applied, and the copy is renamed into place. No file is ever written into, since the files are hard
    links into uv's cache.
  - A file that the overlay does not fit, or that somebody changed since, is an error that names it.
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
  overlay:
    description: >-
      Directory on the controller with unified patches for the installed distributions and a manifest C(overlay.yml)
      that says for which version each is, why, and the SHA-256 of every file before and after.
    type: path
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
  overlay_sha256:
    description: Internal. Hash of the overlay, computed by the action plug-in.
    type: str
    default: ""
  overlay_document:
    description: Internal. The overlay, sent by the action plug-in when it differs from the applied one.
    type: dict
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

- name: The same with two patches on top
  pdlab.pdlab.locked_venv:
    path: /opt/pdlab/engine
    lock: locks/cuda13.txt
    overlay: /srv/inventory/overlay
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
  description: Hash over the lock, the local distributions, the Python version and the overlay.
  type: str
  returned: when the environment exists
packages:
  description: Installed distributions and their versions.
  type: dict
  returned: when the environment exists
overlay:
  description: The applied patches, each with its distribution, version, reason and files.
  type: list
  elements: dict
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
from ansible_collections.pdlab.pdlab.plugins.module_utils import overlay as overlays
from ansible_collections.pdlab.pdlab.plugins.module_utils import venv_state
from ansible_collections.pdlab.pdlab.plugins.module_utils.environment_files import change, copy_of_links, site_packages
from ansible_collections.pdlab.pdlab.plugins.module_utils.overlay import OverlayError
from ansible_collections.pdlab.pdlab.plugins.module_utils.processes import run_watched
from ansible_collections.pdlab.pdlab.plugins.module_utils.run_folder import write_json
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
        self.applied: dict[str, Any] = self.state["overlay"]

    def wanted(self, python_version: str) -> dict[str, Any]:
        """The stamp of an environment that is what it should be."""
        parts = {
            "lock_sha256": self.params["lock_sha256"],
            "distributions_sha256": self.params["distributions_sha256"] or "",
            "python_version": python_version,
        }
        if self.params["overlay_sha256"]:
            parts["overlay_sha256"] = self.params["overlay_sha256"]
        text = json.dumps(parts, sort_keys=True)
        return {**parts, "fingerprint": hashlib.sha256(text.encode()).hexdigest()[:16]}

    def check_patched_files(self) -> None:
        """Fail with every file that is not what the applied overlay made it."""
        faults = self.state["overlay_faults"]
        if faults:
            listed = "\n".join(f"- {fault}" for fault in faults)
            self.module.fail_json(
                msg=f"the overlay of {self.path} is changed or half applied:\n{listed}\n"
                f"What to do: {overlays.REBUILD}.",
                faults=faults,
            )

    def patched(self, path: str, packages: dict[str, str], apply_it: bool = True) -> None:
        """Take the applied overlay back in an environment, then apply the wanted one. Fails before any change.

        Without `apply_it` nothing is written: it only fails where it would.
        """
        contents: dict[str, bytes | None] = {}
        read = venv_state.reader(path)
        wanted = self.params["overlay_document"] if self.params["overlay_sha256"] else {}
        try:
            if self.applied:
                contents = overlays.taken_back(self.applied, read)
            if wanted:
                between = dict(contents)
                new = overlays.applied(wanted, packages, lambda name: between[name] if name in between else read(name))
                contents = {**contents, **new}
        except OverlayError as error:
            listed = "\n".join(f"- {line}" for line in str(error).splitlines())
            self.module.fail_json(msg=f"the overlay does not fit {self.path}; nothing was changed:\n{listed}")
        if not apply_it:
            return
        owners = {
            name: patch["distribution"]
            for document in (self.applied, wanted)
            for patch in (document or {}).get("patches", [])
            for name in patch["files"]
        }
        change(site_packages(path)[0], contents, owners)
        if wanted:
            write_json(os.path.join(path, overlays.APPLIED), wanted)
        elif os.path.lexists(os.path.join(path, overlays.APPLIED)):
            os.unlink(os.path.join(path, overlays.APPLIED))

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
        """Build beside the old environment, patch, stamp, swap."""
        started = time.monotonic()
        uv = self.find_uv(python)
        fresh = self.clear_beside()
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
        packages = venv_state.distributions(fresh)
        if self.params["overlay_sha256"]:
            self.applied = {}
            self.patched(fresh, packages)
        self.swap(fresh, {**self.wanted(python_version), "packages": packages})
        return {"seconds": round(time.monotonic() - started, 2)}

    def patch(self) -> dict[str, Any]:
        """Change nothing but the overlay: in a copy beside the old environment, which is then swapped in."""
        started = time.monotonic()
        fresh = self.clear_beside()
        copy_of_links(self.path, fresh)
        self.patched(fresh, self.stamp["packages"])
        self.swap(fresh, {**self.wanted(self.stamp["python_version"]), "packages": self.stamp["packages"]})
        return {"seconds": round(time.monotonic() - started, 2)}

    def clear_beside(self) -> str:
        """Where the next environment is made, with nothing there."""
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        for leftover in (self.path + ".new", self.path + ".old"):
            shutil.rmtree(leftover, ignore_errors=True)
        return self.path + ".new"

    def swap(self, fresh: str, stamp: dict[str, Any]) -> None:
        """Stamp a complete environment and put it in the old one's place."""
        old = self.path + ".old"
        write_json(os.path.join(fresh, VENV_STAMP), stamp)
        if os.path.lexists(self.path):
            os.rename(self.path, old)
        os.rename(fresh, self.path)
        shutil.rmtree(old, ignore_errors=True)
        self.stamp = stamp


def lines(packages: dict[str, str], overlay: dict[str, Any] | None = None) -> str:
    """Distributions and patches as text for a diff."""
    patches = (overlay or {}).get("patches", [])
    return "".join(
        [f"{name}=={version}\n" for name, version in packages.items()]
        + [f"overlay {patch['patch']}: {' '.join(patch['reason'].split())}\n" for patch in patches]
    )


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
            "overlay": {"type": "path"},
            "overlay_sha256": {"type": "str", "default": "", "no_log": False},
            "overlay_document": {"type": "dict"},
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
    result: dict[str, Any] = {"path": path, "python": os.path.join(path, "bin", "python"), "changed": False}
    reason = venv_state.reason_to_build(venv.state, module.params, base_version)
    if reason is not None:
        rebuild(venv, reason, before, result)
    else:
        venv.check_patched_files()
        reason = venv_state.reason_to_patch(venv.state, module.params)
        if reason is not None:
            patch(venv, reason, before, result)
    document = module.params["overlay_document"] if result["changed"] and not module.check_mode else venv.applied
    module.exit_json(**result, **venv_state.described(venv.stamp, document))


def rebuild(venv: LockedVenv, reason: str, before: dict[str, str], result: dict[str, Any]) -> None:
    """Build from the lock. Exits in check mode, and when the action plug-in has to send files first."""
    module = venv.module
    python, python_version = venv.find_python()
    result.update(changed=True, reason=reason)
    if module.check_mode:
        module.exit_json(
            **result,
            diff={
                "before": f"fingerprint: {venv.stamp.get('fingerprint')}\n",
                "after": f"fingerprint: {venv.wanted(python_version)['fingerprint']}\nreason: {reason}\n",
            },
        )
    if module.params["lock_path"] is None:
        module.exit_json(**{**result, "changed": False}, wants_files=True)
    old = lines(before, venv.applied)
    result.update(venv.build(python, python_version))
    after = lines(venv.stamp["packages"], module.params["overlay_document"])
    result["diff"] = {"before": old, "after": after}


def patch(venv: LockedVenv, reason: str, before: dict[str, str], result: dict[str, Any]) -> None:
    """Change the overlay. Exits in check mode, and when the action plug-in has to send the new one first."""
    module = venv.module
    if module.params["overlay_sha256"] and module.params["overlay_document"] is None:
        module.exit_json(**result, reason=reason, wants_overlay=True)
    result.update(changed=True, reason=reason)
    result["diff"] = {
        "before": lines(before, venv.applied),
        "after": lines(before, module.params["overlay_document"]),
    }
    if module.check_mode:
        venv.patched(venv.path, before, apply_it=False)
        module.exit_json(**result)
    result.update(venv.patch())


if __name__ == "__main__":
    main()
