#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: existing_engine
short_description: A Python environment with SGLang that somebody else made, checked and known by a fingerprint
version_added: 0.1.0
description:
  - Looks what an interpreter would import, with further folders in front of it (C(PYTHONPATH)), from the dist-info
    folders on its path. Nothing is imported, and nothing is installed into it.
  - Fails when a distribution that pdlab needs is not there.
  - Local distributions are unpacked into O(path)/extras, a folder that belongs on C(PYTHONPATH), too.
options:
  path:
    description: Directory below pdlab's root that keeps the fingerprint and the local distributions.
    type: path
    required: true
  python:
    description: The interpreter.
    type: path
    required: true
  pythonpath:
    description: Folders that stand in front of the interpreter's own.
    type: list
    elements: path
    default: []
  sglang:
    description: The version of sglang that must be there. Without it any version is taken.
    type: str
  needs:
    description: Distributions that must be there; of several names with C(|) between them, one is enough.
    type: list
    elements: str
    default: [sglang, nixl|nixl-cu12|nixl-cu13, sglang-router|smg]
  distributions:
    description: Directories of local Python distributions on the controller.
    type: list
    elements: path
    default: []
  distributions_sha256:
    description: Internal. Hash of the local distributions, computed by the action plug-in.
    type: str
    default: ""
  wheel_paths:
    description: Internal. Wheels of the local distributions on the target, sent by the action plug-in.
    type: list
    elements: path
  run_dir:
    description: Run folder on the controller that keeps the result.
    type: path
  record:
    description: Name under which the run folder keeps the result.
    type: str
attributes:
  check_mode:
    description: Says whether anything would be noted or unpacked and touches nothing.
    support: full
  diff_mode:
    description: Shows the distributions before and after.
    support: full
author:
  - The pdlab authors
"""

EXAMPLES = r"""
- name: The engine of this container image
  pdlab.pdlab.existing_engine:
    path: /opt/pdlab/engine
    python: /usr/bin/python3
    pythonpath: [/sgl-workspace/site]
    sglang: 0.5.17
"""

RETURN = r"""
path:
  description: Directory that keeps the fingerprint.
  type: str
  returned: always
python:
  description: The interpreter.
  type: str
  returned: always
pythonpath:
  description: Folders that servers get as C(PYTHONPATH), that of the local distributions included.
  type: list
  elements: str
  returned: always
python_version:
  description: Version of the interpreter.
  type: str
  returned: always
fingerprint:
  description: Hash over interpreter, folders, versions, and the records of the distributions that were asked for.
  type: str
  returned: always
versions:
  description: The distributions that were asked for, and their versions.
  type: dict
  returned: always
packages:
  description: All distributions that the interpreter finds, and their versions.
  type: dict
  returned: always
reason:
  description: Why something was noted, or would be.
  type: str
  returned: when changed
"""

import hashlib
import json
import os
import shutil
import zipfile
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pdlab.pdlab.plugins.module_utils.environment_files import dist_info_folders, installed
from ansible_collections.pdlab.pdlab.plugins.module_utils.processes import run_watched
from ansible_collections.pdlab.pdlab.plugins.module_utils.run_folder import write_json
from ansible_collections.pdlab.pdlab.plugins.module_utils.target_layout import EXTRAS, VENV_STAMP

LOOK = "import json, platform, sys; print(json.dumps([platform.python_version(), sys.path]))"
LOOK_LIMIT_S = 60.0
# The code that decides how a server behaves; its installed files' hashes are in its record.
FINGERPRINTED = ("sglang", "sglang-router", "smg", "nixl", "nixl-cu12", "nixl-cu13", "torch")


def look(module: AnsibleModule) -> tuple[str, list[str]]:
    """The interpreter's version and its path. Fails with what is wrong and what to do."""
    python = module.params["python"]
    missing = [folder for folder in module.params["pythonpath"] if not os.path.isdir(folder)]
    if missing:
        module.fail_json(
            msg=f"pythonpath: {', '.join(missing)}: no such folder on this host; correct pd_engine.existing"
        )
    if not os.access(python, os.X_OK):
        module.fail_json(msg=f"python: {python} is missing or cannot be run; correct pd_engine.existing.python")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(module.params["pythonpath"])}
    # In a folder without modules: Python puts the current one in front.
    done = run_watched([python, "-c", LOOK], LOOK_LIMIT_S, env=environment, cwd="/")
    try:
        version, path = json.loads((done.stdout or "").strip().splitlines()[-1])
    except (ValueError, IndexError):
        said = (done.stderr or done.stdout or "").strip().splitlines()[-5:]
        module.fail_json(msg=f"{python} does not work (exit status {done.rc}): " + "\n".join(said))
    return version, [folder for folder in path if folder and os.path.isdir(folder)]


def versions_of(needs: list[str], packages: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """What of `needs` is there, and which of them are not."""
    there, missing = {}, []
    for need in needs:
        found = {name: packages[name] for name in need.split("|") if name in packages}
        there.update(found)
        if not found:
            missing.append(need.replace("|", " or "))
    return there, missing


def fingerprint(parts: dict[str, Any], folders: list[str]) -> str:
    """One hash for what servers would run."""
    records = {}
    for name, folder in dist_info_folders(folders).items():
        if name in FINGERPRINTED:
            try:
                with open(os.path.join(folder, "RECORD"), "rb") as stream:
                    records[name] = hashlib.sha256(stream.read()).hexdigest()
            except OSError:
                records[name] = ""
    return hashlib.sha256(json.dumps({**parts, "records": records}, sort_keys=True).encode()).hexdigest()[:16]


def read_stamp(path: str) -> dict[str, Any]:
    """What was noted of the engine; empty when nothing was."""
    try:
        with open(os.path.join(path, VENV_STAMP), encoding="utf-8") as stream:
            stamp = json.load(stream)
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def reason_to_note(stamp: dict[str, Any], wanted: dict[str, Any], extras_there: bool) -> str | None:
    """Why the note must be made anew, or None."""
    if not stamp:
        return "it was not looked at before"
    if "existing" not in stamp:
        return "an environment that pdlab built stood here"
    if stamp == {**wanted, "packages": stamp.get("packages")} and stamp.get("packages") != wanted["packages"]:
        return "its distributions changed"
    if stamp != wanted:
        changed = [key for key in wanted if stamp.get(key) != wanted[key] and key != "fingerprint"]
        return f"it changed: {', '.join(changed) or 'its files'}"
    return None if extras_there or not wanted["distributions_sha256"] else "the local distributions are gone"


def note(path: str, stamp: dict[str, Any], wheels: list[str]) -> None:
    """Put note and local distributions into place, beside the old ones first."""
    fresh, old = path + ".new", path + ".old"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    for leftover in (fresh, old):
        shutil.rmtree(leftover, ignore_errors=True)
    os.makedirs(fresh)
    if wheels:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(os.path.join(fresh, EXTRAS))
    write_json(os.path.join(fresh, VENV_STAMP), stamp)
    if os.path.lexists(path):
        os.rename(path, old)
    os.rename(fresh, path)
    shutil.rmtree(old, ignore_errors=True)


def lines(packages: dict[str, str]) -> str:
    """Distributions as text for a diff."""
    return "".join(f"{name}=={version}\n" for name, version in packages.items())


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "python": {"type": "path", "required": True},
            "pythonpath": {"type": "list", "elements": "path", "default": []},
            "sglang": {"type": "str"},
            "needs": {
                "type": "list",
                "elements": "str",
                "default": ["sglang", "nixl|nixl-cu12|nixl-cu13", "sglang-router|smg"],
            },
            "distributions": {"type": "list", "elements": "path", "default": []},
            "distributions_sha256": {"type": "str", "default": "", "no_log": False},
            "wheel_paths": {"type": "list", "elements": "path"},
            "run_dir": {"type": "path"},
            "record": {"type": "str"},
        },
        supports_check_mode=True,
    )
    params = module.params
    path, extras = params["path"], os.path.join(params["path"], EXTRAS)
    version, folders = look(module)
    packages = installed(folders)
    versions, missing = versions_of(params["needs"], packages)
    if missing:
        where = ", ".join(folders)
        module.fail_json(
            msg=f"{params['python']} has no {'; no '.join(missing)} (looked in {where}). Install what is missing there, "
            "add its folder to pd_engine.existing.pythonpath, or remove pd_engine.existing: pdlab then builds an engine.",
            versions=versions,
            missing=missing,
        )
    if params["sglang"] and versions.get("sglang") not in (None, params["sglang"]):
        module.fail_json(
            msg=f"{params['python']} has sglang {versions['sglang']}, and pd_engine.existing.sglang says "
            f"{params['sglang']}; correct it: what the plan decides by the version would be wrong",
            versions=versions,
        )
    parts = {
        "existing": {"python": params["python"], "pythonpath": params["pythonpath"]},
        "python_version": version,
        "distributions_sha256": params["distributions_sha256"],
        "packages": packages,
    }
    wanted = {**parts, "fingerprint": fingerprint(parts, folders)}
    stamp = read_stamp(path)
    reason = reason_to_note(stamp, wanted, os.path.isdir(extras))
    result: dict[str, Any] = {
        "path": path,
        "python": params["python"],
        "pythonpath": [*params["pythonpath"], *([extras] if params["distributions_sha256"] else [])],
        "versions": versions,
        **{key: wanted[key] for key in ("python_version", "fingerprint", "packages", "distributions_sha256")},
        "changed": reason is not None,
    }
    if reason is not None:
        result["reason"] = reason
        result["diff"] = {"before": lines(stamp.get("packages") or {}), "after": lines(packages)}
        if not module.check_mode:
            if params["distributions_sha256"] and params["wheel_paths"] is None:
                module.exit_json(changed=False, wants_files=True)
            note(path, wanted, params["wheel_paths"] or [])
    module.exit_json(**result)


if __name__ == "__main__":
    main()
