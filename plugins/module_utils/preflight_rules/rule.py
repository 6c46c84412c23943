# SPDX-License-Identifier: GPL-3.0-or-later
"""What a preflight rule is, and the view of one host that rules ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import DECODE, PREFILL

VETO, WARN, INFO = "veto", "warn", "info"
GIB = 1024**3
MIB = 1024**2
GB = 1000**3

if TYPE_CHECKING:
    Seen = tuple[bool | None, str]
    Text = str | Callable[["View"], str]
    Pair = tuple[int, int]


@dataclass(frozen=True)
class View:
    """One host of a plan with its facts, and what rules often ask."""

    facts: Mapping[str, Any]
    plan: Mapping[str, Any]
    host: str

    @property
    def servers(self) -> list[Mapping[str, Any]]:
        """The engine servers of this host."""
        return [server for server in self.plan["servers"] if server["host"] == self.host]

    @property
    def parts(self) -> list[Mapping[str, Any]]:
        """The servers of this host, and the router when it runs here."""
        router = self.plan["router"]
        return [*self.servers, *([router] if router and router["host"] == self.host else [])]

    @property
    def cuda(self) -> bool:
        """Whether servers with GPUs run here."""
        return self.plan["device"] == "cuda" and bool(self.servers)

    @property
    def root(self) -> str:
        """The directory of pdlab on this host."""
        return str(self.plan["hosts"][self.host]["root"])

    @property
    def engine_python(self) -> str:
        """The interpreter of the engine's environment, there or not."""
        return str(self.plan["hosts"][self.host]["engine_python"])

    @property
    def fleet(self) -> bool:
        """Whether the plan uses more than one host."""
        return len({part["host"] for part in [*self.plan["servers"], self.plan["router"] or {}] if part}) > 1

    @property
    def nodes_asked(self) -> list[int]:
        """The NUMA nodes that servers of this host are bound to."""
        return sorted({server["numa_node"] for server in self.servers if server["numa_node"] is not None})

    @property
    def node_count(self) -> int:
        """How many NUMA nodes the kernel shows; 0 when it shows none."""
        return len(self.facts.get("numa") or [])

    @property
    def gpus_declared(self) -> list[int]:
        """The GPUs that servers of this host use."""
        return sorted({gpu for server in self.servers for gpu in server["gpus"]})

    @property
    def gpus(self) -> list[Mapping[str, Any]]:
        """All GPUs of the box; empty when the driver does not answer."""
        return list(self.facts["gpu"]["gpus"] or [])

    @property
    def used_gpus(self) -> list[Mapping[str, Any]]:
        """The GPUs of the box that servers use."""
        return [gpu for gpu in self.gpus if gpu["index"] in self.gpus_declared]

    @property
    def virtual(self) -> bool | None:
        """Whether this is a virtual machine: the CPU says so to its guest."""
        flags = self.facts["cpu"].get("flags")
        return None if flags is None else flags.get("hypervisor")

    def gpu(self, index: int) -> Mapping[str, Any]:
        """A GPU by its index, empty when there is none."""
        return next((gpu for gpu in self.gpus if gpu["index"] == index), {})

    def path(self, path: str) -> Mapping[str, Any]:
        """What is known about a path, empty when nothing is."""
        return self.facts["paths"].get(path) or {}

    def server_pairs(self, server: Mapping[str, Any]) -> list[Pair]:
        """The pairs of GPUs that talk inside one server, each once."""
        gpus = sorted(server["gpus"])
        return [(one, other) for place, one in enumerate(gpus) for other in gpus[place + 1 :]]

    @property
    def kv_pairs(self) -> list[Pair]:
        """(prefill's GPU, decode's GPU) of this host: between them KV pages are written."""
        of = {
            role: sorted({gpu for server in self.servers if server["role"] == role for gpu in server["gpus"]})
            for role in (PREFILL, DECODE)
        }
        return [(source, target) for source in of[PREFILL] for target in of[DECODE] if source != target]

    def by_nvlink(self, pair: Pair) -> bool:
        """Whether two GPUs talk over NVLink; False when that is not known."""
        topology = self.facts["gpu"].get("topology") or {}
        one, other = pair
        link = topology.get(f"{one}-{other}") or topology.get(f"{other}-{one}") or ""
        return str(link).startswith("NV")


@dataclass(frozen=True)
class Rule:
    """A row of the table: the fault, whom it concerns, how it is seen, what is wanted, why, and the cure.

    `finds` is what it looks for, for readers. `check` returns (ok, what was seen); ok is None when the fact is unknown.
    `cure` is a command or an edit of the inventory; where it depends on what was seen, `cure_in_words` says it for the
    documentation. `unknown` is the severity when the fact is unknown, by default a warning instead of a veto.
    `source` is where a limit or a reason comes from.
    """

    id: str
    severity: str
    finds: str
    applies: Callable[[View], bool]
    check: Callable[[View], Seen]
    wanted: Text
    why: str
    cure: Text
    cure_in_words: str = ""
    unknown: str | None = None
    source: str = ""

    @property
    def severity_when_unknown(self) -> str:
        """The severity of a verdict on a fact that could not be read."""
        return self.unknown or (WARN if self.severity == VETO else self.severity)

    @property
    def documented_cure(self) -> str:
        """The cure as the documentation tells it."""
        return self.cure if isinstance(self.cure, str) else self.cure_in_words


def always(_view: View) -> bool:
    """Concerns every host."""
    return True


def has_servers(view: View) -> bool:
    """Concerns hosts on which servers run."""
    return bool(view.servers)


def has_parts(view: View) -> bool:
    """Concerns hosts on which anything runs."""
    return bool(view.parts)


def uses_gpus(view: View) -> bool:
    """Concerns hosts with servers on GPUs that the driver shows."""
    return view.cuda and bool(view.used_gpus)


def text_of(text: Text, view: View) -> str:
    """A rule's text, made for this host where it depends on it."""
    return text if isinstance(text, str) else text(view)


def size(count: float) -> str:
    """Bytes as people read them."""
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / MIB:.0f} MiB"


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as people read them: [0, 1, 2, 3, 5] is `0-3, 5`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def gpu_names(indices: Iterable[int]) -> str:
    """`GPU 3`, or `GPUs 0-3, 5`."""
    known = set(indices)
    return f"{'GPU' if len(known) == 1 else 'GPUs'} {ranges(known)}"


def grouped(view: View, said: Callable[[Mapping[str, Any]], str | None]) -> list[str]:
    """What is said of the GPUs in use, those of which the same is said together: [`GPUs 0-3: off`]."""
    groups: dict[str, list[int]] = {}
    for gpu in view.used_gpus:
        words = said(gpu)
        if words is not None:
            groups.setdefault(words, []).append(gpu["index"])
    return [f"{gpu_names(indices)}: {words}" for words, indices in groups.items()]
