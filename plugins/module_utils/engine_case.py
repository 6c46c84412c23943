# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tables of collectives and of engine rules know about one server. What is unknown is None, never a guess.

Pure: no I/O. A case is made from an inventory's entry, or from a server of the plan with what the target showed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.server_roles import DECODE, PREFILL

NVFP4, MXFP4, FP8, UNQUANTIZED = "nvfp4", "mxfp4", "fp8", "none"
_FALSE = ("", "0", "false", "no", "off", "n", "none")
_PIN = re.compile(r"^sglang\s*==\s*([^\s;\\]+)", re.MULTILINE)
_NUMBERS = re.compile(r"\d+(?:\.\d+)*")


@dataclass(frozen=True)
class Case:
    """One server. `version` is sglang's, `capability` the GPUs' compute capability ("12.0"), `quantization` one of
    nvfp4, mxfp4, fp8, none, `architecture` the first of config.json's architectures. `peers` are the other prefill
    and decode servers. `profile` is the one of pd_collectives.
    """

    name: str
    role: str
    device: str
    address: str | None = None
    tp: int = 1
    numa_node: int | None = None
    args: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, Any] = field(default_factory=dict)
    fleet: bool = False
    profile: str = "off"
    version: str | None = None
    capability: str | None = None
    quantization: str | None = None
    architecture: str | None = None
    peers: tuple[Case, ...] = ()

    @property
    def disaggregated(self) -> bool:
        """Tell whether this server sends or receives KV cache."""
        return self.role in (PREFILL, DECODE)

    def flag(self, *names: str) -> Any:
        """The value of the first of these flags that is given, or None."""
        return next((self.args[name] for name in names if self.args.get(name) not in (None, False)), None)

    def text(self, *names: str) -> str:
        """A flag as lower-case text, empty when it is not given."""
        value = self.flag(*names)
        return "" if value is None else str(value).strip().lower()

    def variable(self, name: str) -> str | None:
        """A variable of the server's environment as its process sees it, or None."""
        value = self.env.get(name)
        if value is None:
            return None
        if isinstance(value, bool):
            return "1" if value else "0"
        return json.dumps(value) if isinstance(value, (Mapping, list, tuple)) else str(value)

    def on(self, name: str) -> bool:
        """Tell whether a variable is switched on, as sglang reads truth values (environ.py, EnvBool)."""
        value = self.variable(name)
        return value is not None and value.strip().lower() not in _FALSE

    def others(self, role: str) -> list[Case]:
        """The peers of a role."""
        return [peer for peer in self.peers if peer.role == role]


def version_key(version: str) -> tuple[int, ...]:
    """The numbers of a version, `0.5.23.post1` and `0.5.23rc1` as (0, 5, 23)."""
    match = _NUMBERS.match(version.strip().lstrip("v"))
    numbers = [int(part) for part in match.group().split(".")] if match else []
    return tuple([*numbers, 0, 0, 0][:3])


def version_within(version: str | None, since: str | None, before: str | None) -> bool | None:
    """Tell whether since <= version < before; None when the version matters and is not known."""
    if since is None and before is None:
        return True
    if version is None:
        return None
    key = version_key(version)
    return (since is None or key >= version_key(since)) and (before is None or key < version_key(before))


def locked_version(lock: str) -> str | None:
    """The version of sglang that a lock file pins, or None."""
    match = _PIN.search(lock)
    return match.group(1) if match else None


def plain_quantization(value: Any) -> str | None:
    """A checkpoint's quantization in this module's words: modelopt_fp4, modelopt_nvfp4 and nvfp4 are one."""
    if value is None:
        return None
    text = re.sub(r"[^a-z0-9]", "", str(value).lower()).replace("modelopt", "")
    return {"fp4": NVFP4, "unquantized": UNQUANTIZED, "bf16": UNQUANTIZED, "bfloat16": UNQUANTIZED}.get(text, text)


def one_capability(found: Iterable[Any]) -> str | None:
    """The compute capability that all of these GPUs have, or None when they differ or one is unknown."""
    seen = list(found)
    return str(seen[0]) if seen and seen[0] and len(set(seen)) == 1 else None


def with_peers(cases: Sequence[Case]) -> list[Case]:
    """The same cases, each prefill and decode server knowing the others."""
    pairs = [case for case in cases if case.disaggregated]
    return [
        Case(**{**case.__dict__, "peers": tuple(other for other in pairs if other is not case)})
        if case.disaggregated
        else case
        for case in cases
    ]
