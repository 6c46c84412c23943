# SPDX-License-Identifier: GPL-3.0-or-later
"""Probes whose good result is kept on the target: what a result depends on, and the frame that their modules share.

A result holds for the engine's fingerprint, the options of the probe and this boot. A bad one is never kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.run_folder import write_json

# Options of every probe; the documentation fragment kept_probe says what they mean.
OPTIONS: dict[str, dict[str, Any]] = {
    "python": {"type": "path", "required": True},
    "fingerprint": {"type": "str"},
    "state_dir": {"type": "path", "required": True},
    "force": {"type": "bool", "default": False},
    "seen": {"type": "dict"},
    "run_dir": {"type": "path"},
    "record": {"type": "str"},
}


@dataclass(frozen=True)
class KeptProbe:
    """One kind of probe. `defaults` are the options that a result depends on; None stands for required ones.

    `environments` names the options that are a server's environment, or a list of such; of them a result depends only
    on the variables that begin with one of `prefixes`, since all else is nothing to the probe. `cure`: what to do about
    a bad result.
    """

    name: str
    defaults: Mapping[str, Any]
    environments: tuple[str, ...]
    prefixes: tuple[str, ...]
    cure: str

    def path(self, state_dir: str) -> str:
        """The file of the kept result."""
        return os.path.join(state_dir, self.name + ".json")

    def read(self, state_dir: str) -> dict[str, Any]:
        """{"boot": identity of this boot, "document": what is kept, or None}; never raises."""
        try:
            with open(self.path(state_dir), encoding="utf-8") as stream:
                document = json.load(stream)
        except (OSError, ValueError):
            document = None
        return {"boot": boot_id(), "document": document}

    def key(self, options: Mapping[str, Any], boot: str) -> dict[str, Any]:
        """What a result depends on."""
        given = {name: options.get(name, default) for name, default in self.defaults.items()}
        relevant = {name: self.relevant(given[name]) for name in self.environments}
        return {**given, **relevant, "boot": boot}

    def relevant(self, environment: Any) -> Any:
        """The part of an environment, or of each of a list of them, that is something to the probe."""
        if isinstance(environment, (list, tuple)):
            return [self.relevant(one) for one in environment]
        return {name: str(value) for name, value in (environment or {}).items() if name.startswith(self.prefixes)}

    def result(self, kept: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any] | None:
        """The kept result for exactly these options on this boot, or None. `kept` is from `read`."""
        document = kept.get("document")
        if options.get("force") or not isinstance(document, dict):
            return None
        result = document.get("result")
        same = document.get("key") == self.key(options, kept["boot"])
        return result if same and isinstance(result, dict) else None

    def run(self, module: Any, probe: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Be the module: give a kept result, or probe and keep a good one. Ends by exit_json or fail_json.

        `probe` takes the module's options and gives a document with `ok`, and `why` when that is false.
        """
        options = module.params
        kept = self.read(options["state_dir"])
        result = self.result(kept, options)
        if result is not None:
            module.exit_json(changed=False, kept=True, **result)
        if module.check_mode:
            module.exit_json(changed=False, kept=False, ok=None, msg="nothing is probed in check mode")
        result = probe(options)
        if not result["ok"]:
            module.fail_json(msg=f"{result['why']}; {self.cure}", kept=False, **result)
        path = self.path(options["state_dir"])
        try:
            os.makedirs(options["state_dir"], exist_ok=True)
            write_json(path, {"key": self.key(options, kept["boot"]), "result": result})
        except OSError as error:
            module.fail_json(
                msg=f"{path} cannot be written: {error}. Free space or make {options['state_dir']} writable."
            )
        module.exit_json(changed=False, kept=False, **result)


def boot_id() -> str:
    """Identity of this boot; a driver or a limit can only have changed with it or with the engine."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
            return stream.read().strip()
    except OSError:
        return ""


KV = KeptProbe(
    name="kv_probe",
    defaults={
        "python": None,
        "memory": None,
        "devices": [],
        "pairs": [],
        "bytes": 64 * 1024 * 1024,
        "environments": [],
        "fingerprint": None,
    },
    environments=("environments",),
    prefixes=("UCX_", "NIXL_", "CUDA_"),
    cure="take UCX_TLS out of pd_server_env, or let it name cuda_ipc and cuda_copy; in a container share the host's PID and "
    "IPC namespaces (docker run --pid=host --ipc=host); see that nvidia-smi topo -p2p w says OK for these GPUs",
)

COLLECTIVES = KeptProbe(
    name="collectives_probe",
    defaults={
        "python": None,
        "backend": "nccl",
        "devices": None,
        "ranks": [],
        "environment": {},
        "fingerprint": None,
    },
    environments=("environment",),
    prefixes=("NCCL_", "TORCH_NCCL_", "GLOO_", "CUDA_"),
    cure="see what pdlab preflight says of ACS, the IOMMU and peer-to-peer; NCCL_P2P_DISABLE=1 in pd_server_env goes round "
    "it, slowly; GPUs that stay at 100 % need nvidia-smi --gpu-reset or a reboot",
)
