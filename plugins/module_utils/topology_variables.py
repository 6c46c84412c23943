# SPDX-License-Identifier: GPL-3.0-or-later
"""The public inventory variables: one table of their shapes, and the flags that they already decide."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import shapes
from ansible_collections.pdlab.pdlab.plugins.module_utils.collectives import OFF, PROFILES
from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import COLOCATED, DECODE, PREFILL
from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Faults
from ansible_collections.pdlab.pdlab.plugins.module_utils.host.variable import HOST
from ansible_collections.pdlab.pdlab.plugins.module_utils.numa_placement import UNBOUND
from ansible_collections.pdlab.pdlab.plugins.module_utils.shapes import INVALID, Check, kind
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_arms import ARM, ARMS, arms

TRANSFER_BACKEND = "nixl"
ONLY_NIXL = "only nixl is supported now; remove the line"
# `host` is the unit of the host's settings, pdlab-host.service.
RESERVED_NAMES = ("router", "reference", "host")
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,47}\Z")
_ACCOUNT = re.compile(r"[a-z_][a-z0-9_-]{0,31}\Z")
_FLAG = re.compile(r"[a-z0-9][a-z0-9-]*\Z", re.IGNORECASE)
_CAPABILITY = re.compile(r"\d{1,2}\.\d\Z")
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_REPOSITORY = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+\Z")
_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_SHORT_COMMIT = re.compile(r"[0-9a-fA-F]{7,64}\Z")
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]{0,127}\Z")
_URL = re.compile(r"https?://[A-Za-z0-9\[\]:._-]+(/[A-Za-z0-9._~/-]*)?\Z")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}\Z")
# Names that are branches wherever they are met. Any other branch is found out when the hub is asked.
BRANCHES = ("main", "master", "head", "dev", "develop", "latest", "trunk")
PIN = "write a full commit (40 digits) or a tag: what is pinned must not move"
# As module_utils/quantization.py reads them from a checkpoint.
QUANTIZATIONS = ("modelopt_nvfp4", "mxfp4", "fp8", "none")

# A flag that pdlab derives, and the variable that decides it.
DERIVED_SERVER_FLAGS = {
    "model-path": "pd_model.path",
    "model": "pd_model.path",
    "served-model-name": "pd_model.served_name",
    "revision": "pd_model.revision",
    "host": "pd_address of the host",
    "port": "the server's port",
    "nccl-port": "the server's nccl_port",
    "device": "pd_device",
    "tp-size": "the server's tp",
    "tp": "the server's tp",
    "tensor-parallel-size": "the server's tp",
    "base-gpu-id": "the server's gpus",
    "numa-node": "the server's numa_node",
    "disaggregation-mode": "the server's role",
    "disaggregation-bootstrap-port": "the server's bootstrap_port",
}
DERIVED_ROUTER_FLAGS = {
    "host": "pd_router.address",
    "port": "pd_router.port",
    "prometheus-host": "pd_router.prometheus_host",
    "prometheus-port": "pd_router.prometheus_port",
    "policy": "pd_router.policy",
    "pd-disaggregation": "pd_servers (it follows from their roles)",
    "prefill": "pd_servers",
    "decode": "pd_servers",
    "worker-urls": "pd_servers",
}
# One server spread over hosts is another topology than several servers.
REFUSED_SERVER_FLAGS = {
    "nnodes": "a server lives on one host; remove it, and list a server per host in pd_servers",
    "node-rank": "a server lives on one host; remove it, and list a server per host in pd_servers",
    "dist-init-addr": "a server lives on one host; remove it, and list a server per host in pd_servers",
    "config": "its flags would not be seen by pdlab; write them under args",
}


def flag_name(key: str) -> str:
    """A flag as pdlab spells it: no leading dashes, dashes inside."""
    return key.strip().lstrip("-").replace("_", "-")


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, (str, bool, int, float))


def _flag_value_fault(value: Any) -> str | None:
    if isinstance(value, str) and ("\n" in value or "\0" in value):
        return "holds a line break, which no service definition can carry"
    if _plain(value) or isinstance(value, Mapping):
        return None
    if isinstance(value, (list, tuple)):
        bad = [item for item in value if item is None or isinstance(item, bool) or not _plain(item)]
        return f"holds {kind(bad[0])} in its list" if bad else None
    return f"is {kind(value)}"


def flags(derived: Mapping[str, str], refused: Mapping[str, str]) -> Check:
    """A mapping of command-line flags, as {name as pdlab spells it: value}; derived and refused ones are faults."""

    def check(faults: Faults, key: str, value: Any) -> Any:
        if not isinstance(value, Mapping):
            faults.add(key, f"is {kind(value)}, not a mapping", "write `flag-name: value` lines below it")
            return INVALID
        kept: dict[str, Any] = {}
        for written, entry in value.items():
            where = f"{key}.{written}"
            name = flag_name(written) if isinstance(written, str) else str(written)
            problem = _flag_value_fault(entry)
            if not _FLAG.match(name):
                faults.add(where, "is no flag name", "write it like the engine's --help does, without the dashes")
            elif name in derived:
                faults.add(where, "would override what pdlab derives", f"remove it and set {derived[name]}")
            elif name in refused:
                faults.add(where, "is refused", refused[name])
            elif name == "disaggregation-transfer-backend" and entry != TRANSFER_BACKEND:
                faults.add(where, f"the KV transfer backend {entry!r} is not supported", ONLY_NIXL)
            elif name == "enable-metrics" and not entry:
                faults.add(where, "would switch off the KV transfer counters that prove the transfer", "remove it")
            elif problem:
                faults.add(where, problem, "write a text, a number, true or false, a list of those, or a mapping")
            elif name in kept:
                faults.add(where, f"--{name} is given twice, in two spellings", "keep one of them")
            else:
                kept[name] = entry
        return kept

    return check


def environment() -> Check:
    """A mapping of environment variables to texts, numbers, truth values or JSON; null leaves one out."""

    def check(faults: Faults, key: str, value: Any) -> Any:
        if not isinstance(value, Mapping):
            faults.add(key, f"is {kind(value)}, not a mapping", "write `NAME: value` lines below it")
            return INVALID
        kept: dict[str, Any] = {}
        for name, entry in value.items():
            where = f"{key}.{name}"
            if not isinstance(name, str) or not _ENVIRONMENT_NAME.match(name):
                faults.add(where, "is no name for an environment variable", "use letters, digits and underscores")
            elif isinstance(entry, str) and ("\n" in entry or "\0" in entry):
                faults.add(where, "holds a line break, which no service definition can carry", "write it on one line")
            elif not _plain(entry) and not isinstance(entry, (Mapping, list, tuple)):
                faults.add(where, f"is {kind(entry)}", "write a text or a number")
            elif entry is not None:
                kept[name] = entry
        return kept

    return check


def server_name() -> Check:
    """A name that can stand in a unit, a file and a URL, and is nobody else's."""

    def check(faults: Faults, key: str, value: Any) -> Any:
        if not isinstance(value, str):
            faults.add(key, f"is {kind(value)}, not a text", "write for example prefill-0")
        elif value in RESERVED_NAMES:
            faults.add(key, f"{value!r} is the name of a part of pdlab", f"write for example {value}-0")
        elif not _NAME.match(value):
            cure = "use up to 48 lower-case letters, digits, '-', '_' and '.', beginning with a letter or digit"
            faults.add(key, f"{value!r} cannot name a unit and a file", cure)
        else:
            return value
        return INVALID

    return check


def _lengths() -> Check:
    numbers = shapes.list_of(shapes.integer(1, unit="a prompt length in tokens,"), what="prompt lengths")

    def check(faults: Faults, key: str, value: Any) -> Any:
        return value if value == "auto" else numbers(faults, key, value)

    return check


def _secret() -> Check:
    """A text that no fault ever shows."""

    def check(faults: Faults, key: str, value: Any) -> Any:
        if not isinstance(value, str):
            faults.add(key, "is not a text", "write the variable of your vault that holds it, in quotes")
        elif not value.strip() or any(character.isspace() or not character.isprintable() for character in value):
            faults.add(key, "is empty, or has a blank or a line break", "see what your vault holds; a token has none")
        else:
            return value
        return INVALID

    return check


def _repository() -> Check:
    text = shapes.text("owner/name")

    def check(faults: Faults, key: str, value: Any) -> Any:
        value = text(faults, key, value)
        if value is not INVALID and not _REPOSITORY.match(value):
            faults.add(key, f"{value!r} is no repository", "write owner/name, without the hub's address")
            return INVALID
        return value

    return check


def _revision() -> Check:
    """A full commit or what may be a tag; the hub is asked about that when it is fetched."""
    text = shapes.text("a commit hash")

    def check(faults: Faults, key: str, value: Any) -> Any:
        value = text(faults, key, value)
        if value is INVALID:
            return INVALID
        if value.lower() in BRANCHES:
            faults.add(key, f"{value!r} is a branch, and a branch moves", PIN)
        elif _SHORT_COMMIT.match(value) and not _COMMIT.match(value):
            faults.add(key, f"{value!r} is a shortened commit", "write all 40 digits of it")
        elif not _TAG.match(value) or ".." in value:
            faults.add(key, f"{value!r} is neither a commit nor a tag", PIN)
        else:
            return value
        return INVALID

    return check


def _endpoint() -> Check:
    text = shapes.text("https://hub.example.org")

    def check(faults: Faults, key: str, value: Any) -> Any:
        value = text(faults, key, value)
        if value is INVALID:
            return INVALID
        if "@" in value:
            faults.add(key, "holds a user or a password, which logs would show", "remove it; set pd_hub_token")
        elif not _URL.match(value):
            faults.add(key, f"{value!r} is no address of a hub", "write for example https://hub.example.org")
        else:
            return value.rstrip("/")
        return INVALID

    return check


def _sha256() -> Check:
    """A list file on the controller, or {file: SHA-256}."""
    file = shapes.path("/srv/lists/SHA256SUMS")

    def check(faults: Faults, key: str, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return file(faults, key, value)
        for name, digest in value.items():
            if not isinstance(digest, str) or not _SHA256.match(digest):
                faults.add(f"{key}.{name}", "is no SHA-256", "write its 64 hexadecimal digits, in quotes")
        return dict(value)

    return check


PORT = shapes.integer(1, 65535, unit="a port,")
SERVER_FLAGS = flags(DERIVED_SERVER_FLAGS, REFUSED_SERVER_FLAGS)
ROUTER_FLAGS = flags(DERIVED_ROUTER_FLAGS, {})


def _only_nixl(faults: Faults, key: str, value: Any) -> Any:
    if value == TRANSFER_BACKEND:
        return value
    faults.add(key, f"the KV transfer backend {value!r} is not supported", ONLY_NIXL)
    return INVALID


def _numa_node() -> Check:
    """A NUMA node, or `unbound`."""
    node = shapes.integer(0, unit="a NUMA node,")

    def check(faults: Faults, key: str, value: Any) -> Any:
        if isinstance(value, str) and not value.isdigit():
            return shapes.choice(UNBOUND)(faults, key, value)
        return node(faults, key, value)

    return check


SERVER = shapes.mapping(
    {
        "name": server_name(),
        "role": shapes.choice(PREFILL, DECODE, COLOCATED),
        "host": shapes.text("box1"),
        "gpus": shapes.list_of(shapes.integer(0, unit="a GPU index,"), empty=True, what="GPU indices"),
        "tp": shapes.integer(1),
        "numa_node": _numa_node(),
        "share_gpus": shapes.boolean(),
        "port": PORT,
        "bootstrap_port": PORT,
        "nccl_port": PORT,
        "transfer_backend": _only_nixl,
        "args": SERVER_FLAGS,
        "env": environment(),
    },
    required={"name": "prefill-0", "role": "prefill"},
    hints={
        "address": "set pd_address of the host",
        "model": "set pd_model, it is the same for all servers",
        "model_path": "set pd_model.path, it is the same for all servers",
        "device": "set pd_device, it is the same for all servers",
        "environment": "did you mean env?",
        "flags": "did you mean args?",
        "type": "did you mean role?",
        "mode": "did you mean role?",
    },
)

ROUTER = shapes.mapping(
    {
        "port": PORT,
        "address": shapes.ip_address("127.0.0.1"),
        "prometheus_host": shapes.ip_address("127.0.0.1"),
        "prometheus_port": PORT,
        "policy": shapes.text("round_robin"),
        "host": shapes.text("box1"),
        "args": ROUTER_FLAGS,
        "env": environment(),
    },
)

MODEL = shapes.mapping(
    {
        "source": shapes.choice("canary", "local", "hub"),
        "path": shapes.path("/srv/models/NAME"),
        "served_name": shapes.text("my-model"),
        "repo": _repository(),
        "revision": _revision(),
        "endpoint": _endpoint(),
        "exclude": shapes.list_of(shapes.text("original/*"), empty=True, what="patterns of file names"),
        "heads": shapes.number_choice(2, 4, 8, 16),
        "size_gib": shapes.number(0, above_low=True),
        "quantization": shapes.choice(*QUANTIZATIONS),
        "sha256": _sha256(),
        "warm_up": shapes.boolean(),
        "architecture": shapes.text("DeepseekV4ForCausalLM"),
    },
    hints={"token": "set pd_hub_token, from a vault", "quant": "did you mean quantization?"},
)
# What only the source hub has.
HUB_KEYS = ("repo", "revision", "endpoint", "exclude", "size_gib")


def _collectives() -> Check:
    """A profile. YAML reads a bare `off` as false, so that is `off`, too."""
    profile = shapes.choice(*PROFILES)

    def check(faults: Faults, key: str, value: Any) -> Any:
        return OFF if value is False else profile(faults, key, value)

    return check


def _compute_capability() -> Check:
    """MAJOR.MINOR as nvidia-smi prints it. YAML reads 12.0 as a number."""

    def check(faults: Faults, key: str, value: Any) -> Any:
        text = str(value) if isinstance(value, (str, float)) and not isinstance(value, bool) else ""
        if _CAPABILITY.match(text):
            return text
        cure = 'write it as `nvidia-smi --query-gpu=compute_cap` prints it, for example "12.0"'
        faults.add(key, f"{value!r} is no compute capability", cure)
        return INVALID

    return check


# Variables that say the same for all hosts: the check of each, in the order in which faults are listed.
SHARED: dict[str, Check] = {
    "pd_rehearsal": shapes.boolean(),
    "pd_device": shapes.choice("cpu", "cuda"),
    "pd_model": MODEL,
    "pd_hub_token": _secret(),
    "pd_servers": shapes.list_of(SERVER, what="servers, for example `- {name: prefill-0, role: prefill, gpus: [0]}`"),
    "pd_server_args": SERVER_FLAGS,
    "pd_server_env": environment(),
    "pd_collectives": _collectives(),
    "pd_compute_capability": _compute_capability(),
    "pd_engine_rules_off": shapes.list_of(shapes.text("mtp_nvfp4_sm120"), empty=True, what="names of engine rules"),
    "pd_router": ROUTER,
    "pd_answers": shapes.list_of(
        shapes.mapping(
            {"prompt": shapes.prose("What is 6*7?"), "expected": shapes.text_or_number("42")},
            required={"prompt": "What is 6*7? Answer with the number only.", "expected": "'42'"},
        ),
        what="answers, each with `prompt` and `expected`",
    ),
    "pd_oracle": shapes.mapping(
        {
            "enabled": shapes.boolean(),
            "lengths": _lengths(),
            "output_tokens": shapes.integer(1),
            "tolerance": shapes.number(0),
        }
    ),
    ARMS: arms(),
    ARM: shapes.text("pd"),
    "pd_monitoring": shapes.mapping(
        {
            "install": shapes.boolean(),
            "host": shapes.text("box1"),
            "address": shapes.ip_address("127.0.0.1"),
            "port": PORT,
            "interval_s": shapes.integer(1, 300, unit="seconds,"),
            "retention_days": shapes.integer(1, 3650, unit="days,"),
            "gpu_exporter_port": PORT,
        },
        hints={"enabled": "did you mean install?", "dcgm_port": "did you mean gpu_exporter_port?"},
    ),
}


def _account() -> Check:
    """The name of an account that may be made: what useradd(8) takes."""

    def check(faults: Faults, key: str, value: Any) -> Any:
        if isinstance(value, str) and _ACCOUNT.match(value):
            return value
        problem = f"is {value!r}, not the name of an account" if isinstance(value, str) else f"is {kind(value)}"
        faults.add(key, problem, "use up to 32 lower-case letters, digits, '-' and '_', for example pdlab")
        return INVALID

    return check


# Variables that a host may have of its own. pd_benchmark is checked with the presets (benchmark_points.py).
PER_HOST: dict[str, Check] = {
    "pd_root": shapes.path("/opt/pdlab"),
    "pd_address": shapes.ip_address("192.0.2.11"),
    "pd_service_manager": shapes.choice("auto", "systemd", "supervisor"),
    "pd_user": _account(),
    "pd_engine": shapes.mapping(
        {
            "lock": shapes.text("cuda13"),
            "python": shapes.path("/usr/bin/python3"),
            "wheelhouse": shapes.path("/srv/wheels"),
            "index_url": shapes.text("https://pypi.org/simple"),
            "uv": shapes.path("/usr/local/bin/uv"),
            "overlay": shapes.path("/srv/inventory/overlay"),
            "existing": shapes.mapping(
                {
                    "python": shapes.path("/usr/bin/python3"),
                    "pythonpath": shapes.list_of(shapes.path("/srv/site"), empty=True, what="folders"),
                    "sglang": shapes.text("0.5.17"),
                    "env": environment(),
                },
                required={"python": "/usr/bin/python3"},
            ),
        }
    ),
    "pd_host": HOST,
}

BENCHMARK = "pd_benchmark"
KNOWN = (*SHARED, BENCHMARK, *PER_HOST)
