#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: model_files
short_description: A model directory that is whole, and known by a fingerprint
version_added: 0.1.0
description:
  - With O(source=local) checks that a checkpoint is complete (config, tokenizer, every shard that the index names, no
    truncated shard, quantized as declared, the SHA-256 of each listed file) and changes nothing.
  - With O(source=hub) fetches one pinned revision of a hub repository, and checks it likewise. The download is a job
    of the service manager, C(pdlab-job-model), with a lease. When nobody asks for its progress for O(lease_s) seconds
    (the controller is gone), it ends by itself. What came over stays, to the byte, and the next one goes on behind it.
  - With O(source=canary) makes the small rehearsal model on the spot, unless the one that is there is intact and was
    made by the same maker.
  - What was read of a file is remembered below O(root) with its size and modification time and is not read again as
    long as both hold. So a second run on an intact model reads no weights.
  - As a task this is one step. Its action plug-in starts the download, asks for its progress until it ends and prints
    a line of it every few seconds. It drives the hashing and the warming up in slices of time likewise. The states
    other than V(present) are what it calls on the target.
options:
  state:
    description:
      - V(present) looks, and does what can be done in one step.
      - V(started), V(polled) and V(collected) start a download, ask how far it is, and end it.
      - V(absent) ends a download that runs. Cancelling uses this. What came over stays.
    type: str
    choices: [present, started, polled, collected, absent]
    default: present
  source:
    description: Where the model comes from. Not needed for O(state=absent).
    type: str
    choices: [local, hub, canary]
  path:
    description: Directory of the model. Not needed for O(state=absent).
    type: path
  root:
    description: The directory of everything pdlab on the target. Without it nothing is remembered.
    type: path
  python:
    description: The engine's interpreter, which makes the canary and brings huggingface_hub.
    type: path
  pythonpath:
    description: Folders that stand in front of the interpreter's own, for an engine that pdlab did not build.
    type: list
    elements: path
    default: []
  maker:
    description: Fingerprint of what makes the canary; a canary of another maker is made again.
    type: str
    default: ""
  heads:
    description:
      - Attention heads of the canary, which tensor parallelism has to divide. A canary of other heads is another model,
        and O(maker) should tell them apart.
    type: int
    default: 2
  repo:
    description: The hub repository, C(owner/name).
    type: str
  revision:
    description: A full commit or a tag of it.
    type: str
  endpoint:
    description: Another address of the hub, a mirror. By default V(https://huggingface.co).
    type: str
  exclude:
    description: Files of the repository that are not fetched, as shell patterns.
    type: list
    elements: str
    default: []
  token:
    description:
      - The hub's token. It goes to the download through a FIFO, and is in no file, command line or environment.
    type: str
  margin_gib:
    description: GiB that a download leaves free.
    type: float
    default: 2.0
  quantization:
    description: How the checkpoint must be quantized.
    type: str
    choices: [modelopt_nvfp4, mxfp4, fp8, none]
  sha256:
    description: The SHA-256 of files by their names. As a task, the path of a list on the controller may be given,
      as sha256sum writes it.
    type: raw
    default: {}
  weights:
    description: The weights must be there. V(false) where the engine makes random ones (C(--load-format dummy)).
    type: bool
    default: true
  warm_up:
    description:
      - Reads what is not in the page cache, so that the servers load from memory. Left out with a warning when the
        model is larger than the memory that is available. It changes nothing that lasts, and so is never V(changed).
    type: bool
    default: false
  warmed:
    description: Files that were read already; the action plug-in hands them back.
    type: list
    elements: str
    default: []
  slice_s:
    description:
      - Seconds after which long reading pauses and says RV(unfinished). By default, and without O(root), it does not.
    type: float
  timeout_s:
    description: Time limit in seconds for making the canary.
    type: int
    default: 300
  service_manager:
    description: Who runs a download.
    type: str
    choices: [auto, systemd, supervisor]
    default: auto
  wait_s:
    description: Seconds that O(state=polled) waits at most.
    type: float
    default: 5
  lease_s:
    description: Seconds after which a download ends when nobody asked for its progress.
    type: float
    default: 60
  seen:
    description:
      - What M(pdlab.pdlab.box_facts) read in this run as C(kept). A model of which all is known there, and that nobody
        has touched, is not looked at again.
      - Used by the action plug-in alone.
    type: dict
  run_dir:
    description: Run folder on the controller that keeps the result.
    type: path
  record:
    description: Name under which the run folder keeps the result.
    type: str
attributes:
  check_mode:
    description: Says whether the canary would be made or what would be fetched, and touches nothing. Where the engine
      is there already, the hub is asked how much that is and whether it fits.
    support: full
  diff_mode:
    description: Shows the fingerprint, or the revision, before and after.
    support: full
author:
  - The pdlab authors
"""

EXAMPLES = r"""
- name: The checkpoint is whole
  pdlab.pdlab.model_files:
    source: local
    path: /srv/models/DeepSeek-V4-Flash-NVFP4
    root: /opt/pdlab
    quantization: modelopt_nvfp4

- name: The pinned revision is there
  pdlab.pdlab.model_files:
    source: hub
    repo: owner/name
    revision: 0123456789abcdef0123456789abcdef01234567
    path: /opt/pdlab/models/owner--name--0123456789ab
    root: /opt/pdlab
    python: /opt/pdlab/engine/bin/python
    token: "{{ vault_hub_token }}"

- name: The canary is there
  pdlab.pdlab.model_files:
    source: canary
    path: /opt/pdlab/models/canary
    root: /opt/pdlab
    python: /opt/pdlab/engine/bin/python
"""

RETURN = r"""
path:
  description: Directory of the model.
  type: str
  returned: when O(state=present)
fingerprint:
  description: Hash over the names, sizes and contents of the model's files (of large ones, of pieces).
  type: str
  returned: when the model exists
files:
  description: Number of files.
  type: int
  returned: when the model exists
bytes:
  description: Size of all files together.
  type: int
  returned: when the model exists
architecture:
  description: First of the architectures in config.json.
  type: str
  returned: when the model exists
quantization:
  description: C(label) (as O(quantization) has it, or the engine's own name), C(method) (the engine's) and C(source).
  type: dict
  returned: when the model exists
commit:
  description: The commit that lies there.
  type: str
  returned: when O(source=hub) and it is there
sha256_checked:
  description: Files that were compared with O(sha256) and agree.
  type: int
  returned: when the model exists
warm_up:
  description: C(cold_bytes) that were not in the page cache, C(read_bytes) of them read by this step.
  type: dict
  returned: when O(warm_up=true)
reason:
  description: Why the model was, or would be, made or fetched.
  type: str
  returned: when changed, or with RV(unfinished)
unfinished:
  description: What the action plug-in goes on with, V(download), V(checksums) or V(warm_up).
  type: str
  returned: when there is more to do
progress:
  description: How far that is.
  type: dict
  returned: when O(state=polled), or with RV(unfinished)
finished:
  description: Whether the download has ended.
  type: bool
  returned: when O(state=polled)
download:
  description: How the download went, or in check mode what it would fetch.
  type: dict
  returned: when O(state=collected), or in check mode
"""

import inspect
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pdlab.pdlab.plugins.module_utils import (
    checksums,
    download_job,
    hub_download,
    page_cache,
    processes,
    quantization,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.checkpoint import checkpoint_faults
from ansible_collections.pdlab.pdlab.plugins.module_utils.download_job import JobFiles
from ansible_collections.pdlab.pdlab.plugins.module_utils.model_inventory import (
    MANIFEST,
    Files,
    fingerprint,
    inventory,
    read_manifest,
    remember,
    remembered,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.model_state import canary_content
from ansible_collections.pdlab.pdlab.plugins.module_utils.run_folder import write_json
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_definition import DefinitionError
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_manager import ServiceError, ServiceManager
from ansible_collections.pdlab.pdlab.plugins.module_utils.service_managers import choose

PLAN_TIMEOUT_S = 60.0


class Fault(Exception):
    """The model is not what it must be; `details` goes with the message."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.details = details


# --- the canary ------------------------------------------------------------------------------------------------------


def reason_to_make(path: str, maker: str, files: Files) -> str | None:
    """Why the canary must be made, or None when the one that is there is intact."""
    if not os.path.isdir(path) or not os.listdir(path):
        return "it does not exist"
    manifest = read_manifest(path)
    if not manifest:
        return "it has no manifest: it was never completed"
    if manifest.get("maker") != maker:
        return "its maker changed"
    return "a file changed" if manifest.get("files") != canary_content(files) else None


def make_canary(params: Mapping[str, Any]) -> None:
    """Run the maker in the engine's Python, then write the manifest. Raises Fault, ControllerGone, OSError."""
    path = params["path"]
    if not params["python"]:
        raise Fault("python: the canary is made in the engine's Python; name its interpreter")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    done = processes.run_watched(
        [params["python"], "-m", "pdlab_rehearsal.canary", path, "--heads", str(params["heads"])],
        timeout_s=params["timeout_s"],
        env=processes.with_pythonpath(params["pythonpath"]),
    )
    if done.rc != 0:
        tail = "\n".join((done.stderr or done.stdout or "").strip().splitlines()[-15:])
        how = f"not within {params['timeout_s']} s" if done.timed_out else f"exit status {done.rc}"
        raise Fault(f"the canary model could not be made ({how}): {tail}")
    write_json(os.path.join(path, MANIFEST), {"maker": params["maker"], "files": canary_content(inventory(path))})


def canary(params: Mapping[str, Any], check_mode: bool, result: dict[str, Any]) -> bool:
    """Make the canary when it must be; returns whether there is a model to look at now."""
    path = params["path"]
    known = remembered(params["root"], path)["files"]
    before = inventory(path, known) if os.path.isdir(path) else {}
    reason = reason_to_make(path, params["maker"], before)
    if reason is None:
        return True
    result.update(changed=True, reason=reason)
    if not check_mode:
        started = time.monotonic()
        make_canary(params)
        result["seconds"] = round(time.monotonic() - started, 2)
    after = "the same maker's canary" if check_mode else fingerprint(inventory(path))
    old = fingerprint(before) if before else None
    result["diff"] = {"before": f"fingerprint: {old}\n", "after": f"fingerprint: {after}\n"}
    return not check_mode


# --- the hub ---------------------------------------------------------------------------------------------------------


def reason_to_fetch(params: Mapping[str, Any], manifest: Mapping[str, Any]) -> str | None:
    """Why a download must run, or None when all of the revision is there and untouched. Raises Fault."""
    path = params["path"]
    if manifest.get("source") != "hub":
        begun = os.path.isdir(os.path.join(path, hub_download.WORK))
        return "an earlier download was interrupted" if begun else "it is not there"
    pinned = (manifest.get("revision"), manifest.get("commit"))
    if manifest.get("repo") != params["repo"] or params["revision"] not in pinned:
        raise Fault(
            f"{path} holds {manifest.get('repo')} at {manifest.get('revision')}, and {params['repo']} at "
            f"{params['revision']} is wanted. Servers may have the old one open, so it is not replaced in place: leave "
            "pd_model.path out (each revision then has a folder of its own), write another path, or remove that folder"
        )
    if manifest.get("exclude") != sorted(params["exclude"]):
        return "exclude changed"
    for name, entry in sorted(manifest["files"].items()):
        try:
            status = os.stat(os.path.join(path, name))
        except OSError:
            return f"{name} is missing"
        if status.st_size != entry["size"]:
            return f"{name} has {status.st_size} of {entry['size']} bytes"
        if status.st_mtime_ns != entry["mtime_ns"]:
            return f"{name} was written to"
    return None


def hub(params: Mapping[str, Any], check_mode: bool, result: dict[str, Any]) -> bool:
    """Say whether a download must run; returns whether there is a model to look at now. Raises Fault."""
    if params["root"] is None or params["python"] is None:
        raise Fault("root and python: a download needs pdlab's directory and the engine's interpreter; name them")
    manifest = read_manifest(params["path"])
    reason = reason_to_fetch(params, manifest)
    if reason is None:
        result["commit"] = manifest["commit"]
        return True
    result["reason"] = reason
    wanted = f"{params['repo']} at {params['revision']}"
    before = f"{manifest['repo']} at {manifest['commit']}, {reason}" if manifest.get("repo") else reason
    result["diff"] = {"before": f"{params['path']}: {before}\n", "after": f"{params['path']}: {wanted}\n"}
    if check_mode:
        result.update(changed=True, download=planned(params))
    else:
        result["unfinished"] = "download"
    return False


def planned(params: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a download would fetch, asked of the hub; None before the engine is there. Raises Fault."""
    python = params["python"]
    if not os.access(python, os.X_OK):
        return None
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        words = ["--report", report, "--secrets", "/dev/stdin", "--plan", *download_job.hub_options(params)]
        done = processes.run_watched(
            [python, "-c", inspect.getsource(hub_download), *words],
            timeout_s=PLAN_TIMEOUT_S,
            env=download_job.environment(python, folder, params["endpoint"], params["pythonpath"]),
            stdin=download_job.secrets(params["token"]),
        )
        try:
            with open(report, encoding="utf-8") as stream:
                seen: dict[str, Any] = json.load(stream)
        except (OSError, ValueError):
            return {"ok": False, "message": done.stderr[-2000:]}
    if not seen.get("ok"):
        raise Fault(str(seen.get("message") or "the hub did not answer in time"), kind=seen.get("kind"))
    return seen


# --- every model -----------------------------------------------------------------------------------------------------


def look(params: Mapping[str, Any], check_mode: bool, result: dict[str, Any]) -> None:
    """Judge the model that is there, remember what was read, warm it up. Raises Fault, OSError, ControllerGone."""
    path, root = params["path"], params["root"]
    if not os.path.isdir(path):
        raise wrong(path, checkpoint_faults(path, params["weights"]), [])
    memory = remembered(root, path)
    files = inventory(path, memory["files"])
    wanted = params["sha256"]
    untouched = memory["whole"] and memory["files"] == files
    incomplete = [] if untouched else checkpoint_faults(path, params["weights"])
    result["quantization"] = memory["quantization"] if untouched else None
    others = [] if incomplete else quantization_faults(params, result)
    if not incomplete and not check_mode and checksums.not_hashed(files, wanted):
        hash_more(params, files, result)
        untouched = False
    others += checksums.faults(files, wanted)
    if not check_mode and not untouched:
        remember(root, path, files, params["weights"] and not incomplete, result["quantization"])
    result.update(
        fingerprint=fingerprint(files),
        files=len(files),
        bytes=sum(entry["size"] or 0 for entry in files.values()),
        sha256_checked=len(wanted) - len(checksums.not_hashed(files, wanted)),
    )
    if incomplete or others:
        raise wrong(path, incomplete, others)
    if params["warm_up"] and "unfinished" not in result:
        warm_up(params, files, check_mode, result)


def wrong(path: str, incomplete: list[str], others: list[str]) -> Fault:
    """All that is wrong with a model, as one message."""
    what = "is not whole:" if incomplete else "is not what the inventory says:"
    return Fault("\n".join([f"the model at {path} {what}", *incomplete, *others]), faults=[*incomplete, *others])


def quantization_faults(params: Mapping[str, Any], result: dict[str, Any]) -> list[str]:
    """Read how the model is quantized unless that is known; what differs from what is declared."""
    try:
        result["quantization"] = result["quantization"] or quantization.quantization_of(params["path"])
        result["architecture"] = quantization.architecture_of(params["path"])
    except ValueError as error:
        return [str(error)]
    fault = quantization.mismatch(result["quantization"], params["quantization"])
    return [fault] if fault else []


def hash_more(params: Mapping[str, Any], files: Files, result: dict[str, Any]) -> None:
    """Hash listed files for one slice of time; they are remembered even when the controller goes meanwhile."""
    wanted = params["sha256"]
    try:
        checksums.hash_slice(params["path"], files, wanted, params["slice_s"], processes.stop_if_controller_gone)
    except processes.ControllerGone:
        remember(params["root"], params["path"], files, whole=False)
        raise
    waiting = checksums.not_hashed(files, wanted)
    if waiting:
        listed = [name for name in wanted if name in files]
        result.update(unfinished="checksums", progress=progress_of("checking SHA-256,", files, listed, waiting))


def warm_up(params: Mapping[str, Any], files: Files, check_mode: bool, result: dict[str, Any]) -> None:
    """Read what is not in the page cache, for one slice of time."""
    path = params["path"]
    total, available = result["bytes"], page_cache.available_bytes()
    if available is not None and total > available:
        result["warnings"] = [
            f"pd_model.warm_up: left out, the model has {hub_download.size_text(total)} and only "
            f"{hub_download.size_text(available)} of memory are available"
        ]
        return
    names = [name for name, entry in files.items() if entry["size"] and name not in set(params["warmed"])]
    cold = page_cache.cold([os.path.join(path, name) for name in names])
    cold_bytes = sum(os.stat(each).st_size for each in cold)
    result["warm_up"] = {"cold_bytes": cold_bytes, "read_bytes": 0}
    if check_mode or not cold:
        return
    done = page_cache.read_slice(cold, params["slice_s"], processes.stop_if_controller_gone)
    result["warm_up"]["read_bytes"] = sum(os.stat(each).st_size for each in done)
    result["warmed"] = [*params["warmed"], *(os.path.relpath(each, path) for each in done)]
    waiting = [os.path.relpath(each, path) for each in cold if each not in set(done)]
    if waiting:
        result.update(unfinished="warm_up", progress=progress_of("reading into memory,", files, list(files), waiting))


def progress_of(phase: str, files: Files, names: list[str], waiting: list[str]) -> dict[str, Any]:
    """How far reading is, as progress_line wants it."""
    total = sum(files[name]["size"] or 0 for name in names)
    left = sum(files[name]["size"] or 0 for name in waiting)
    return {
        "phase": phase,
        "bytes": total,
        "bytes_done": total - left,
        "files": len(names),
        "files_done": len(names) - len(waiting),
    }


# --- steps -----------------------------------------------------------------------------------------------------------


def present(params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Look, and do what one step can. Raises Fault."""
    result: dict[str, Any] = {"path": params["path"], "source": params["source"], "changed": False}
    try:
        make: Callable[[Mapping[str, Any], bool, dict[str, Any]], bool] | None
        make = {"canary": canary, "hub": hub}.get(params["source"])
        if make is None or make(params, check_mode, result):
            look(params, check_mode, result)
    except Fault as error:
        error.details = {**result, **error.details}
        raise
    return result


def manager_of(params: Mapping[str, Any]) -> ServiceManager:
    """The service manager that runs a download."""
    return choose(params["service_manager"], params["root"])


def step(params: Mapping[str, Any]) -> dict[str, Any]:
    """One of the steps of a download. Raises Fault, ServiceError, OSError, ControllerGone."""
    manager, files = manager_of(params), JobFiles(params["root"])
    state = params["state"]
    if state == "started":
        why = download_job.start(manager, files, params, processes.stop_if_controller_gone)
        if why is not None:
            raise Fault(f"the download did not start: {why}")
        return {"changed": True}
    if state == "polled":
        finished, report = download_job.poll(manager, files, params["wait_s"], processes.stop_if_controller_gone)
        return {"changed": False, "finished": finished, "progress": report}
    if state == "collected":
        outcome = download_job.outcome(files)
        download_job.clear_away(manager)
        if outcome["ok"]:
            files.remove()
        return {"changed": True, "download": outcome}
    return {"changed": download_job.clear_away(manager)}


def main() -> None:
    """Dispatch on the state."""
    module = AnsibleModule(
        argument_spec={
            "state": {
                "type": "str",
                "choices": ["present", "started", "polled", "collected", "absent"],
                "default": "present",
            },
            "source": {"type": "str", "choices": ["local", "hub", "canary"]},
            "path": {"type": "path"},
            "root": {"type": "path"},
            "python": {"type": "path"},
            "pythonpath": {"type": "list", "elements": "path", "default": []},
            "maker": {"type": "str", "default": ""},
            "heads": {"type": "int", "default": 2},
            "repo": {"type": "str"},
            "revision": {"type": "str"},
            "endpoint": {"type": "str"},
            "exclude": {"type": "list", "elements": "str", "default": []},
            "token": {"type": "str", "no_log": True},
            "margin_gib": {"type": "float", "default": 2.0},
            "quantization": {"type": "str", "choices": list(quantization.DECLARED)},
            "sha256": {"type": "raw", "default": {}},
            "weights": {"type": "bool", "default": True},
            "warm_up": {"type": "bool", "default": False},
            "warmed": {"type": "list", "elements": "str", "default": []},
            "slice_s": {"type": "float"},
            "timeout_s": {"type": "int", "default": 300},
            "service_manager": {"type": "str", "choices": ["auto", "systemd", "supervisor"], "default": "auto"},
            "wait_s": {"type": "float", "default": 5},
            "lease_s": {"type": "float", "default": 60},
            "seen": {"type": "dict"},
            "run_dir": {"type": "path"},
            "record": {"type": "str"},
        },
        required_if=[
            ("state", "present", ["source", "path"]),
            ("state", "started", ["path", "root", "python", "repo", "revision"]),
            ("state", "polled", ["root"]),
            ("state", "collected", ["root"]),
            ("state", "absent", ["root"]),
            ("source", "hub", ["repo", "revision"]),
        ],
        supports_check_mode=True,
    )
    params = module.params
    if params["root"] is None:
        # Nothing is remembered: what one slice read would be read by the next one again.
        params["slice_s"] = None
    if not isinstance(params["sha256"], Mapping):
        module.fail_json(msg="sha256: on the target a mapping of file names to SHA-256 is wanted")
    try:
        result = present(params, module.check_mode) if params["state"] == "present" else {}
        if params["state"] != "present" and not module.check_mode:
            result = step(params)
    except Fault as error:
        module.fail_json(msg=str(error), **error.details)
    except (ServiceError, DefinitionError) as error:
        module.fail_json(msg=f"the service manager failed: {error}")
    except processes.ControllerGone:
        module.fail_json(msg="the controller is gone; the work on the model was ended")
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        module.fail_json(msg=f"{where}{error.strerror or error}")
    else:
        module.exit_json(**result)


if __name__ == "__main__":
    main()
