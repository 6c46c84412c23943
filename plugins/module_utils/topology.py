# SPDX-License-Identifier: GPL-3.0-or-later
"""From the public inventory variables to the plan: what runs where, with every default derived.

Pure: no I/O. Both doors use it, `ansible-playbook` through the action plug-in `topology` and pdlab through its
typed models. `resolve` gives either a whole plan or every fault of the inventory at once.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import topology_rules as rules
from ansible_collections.pdlab.pdlab.plugins.module_utils.benchmark_points import resolve_benchmark
from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import (
    COLOCATED,
    DECODE,
    PREFILL,
    ROUTER,
    ROUTER_FLAGS,
    server_argv,
    server_environment,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_versions import HEALTH_PATH, trait
from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Fault, Faults, in_file_order, suggestion
from ansible_collections.pdlab.pdlab.plugins.module_utils.numa_placement import asked_binding
from ansible_collections.pdlab.pdlab.plugins.module_utils.probe_options import probe_options
from ansible_collections.pdlab.pdlab.plugins.module_utils.shapes import INVALID
from ansible_collections.pdlab.pdlab.plugins.module_utils.target_layout import (
    EXTRAS,
    account_home,
    engine_dir,
    log_file,
    under,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_arms import others_on, resolve_arms
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_engine import equip
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_hosts import HostVars, expand_home, resolve_hosts
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_monitoring import resolve_monitoring
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_ports import (
    Ports,
    claim_given,
    fill_ports,
    fill_router_ports,
)
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_variables import (
    BENCHMARK,
    HUB_KEYS,
    KNOWN,
    PIN,
    SHARED,
    TRANSFER_BACKEND,
)

SCHEMA_VERSION = 1
UNIT_PREFIX = "pdlab-"
ANY_ADDRESS = ("0.0.0.0", "::")
SHORT_REVISION = 12
_LOOPBACK_URL = re.compile(r"http://(localhost|127\.[0-9.]+|\[::1\])(:|/|\Z)")
DEFAULT_POLICY = "round_robin"
DEFAULT_ANSWERS = (
    {"prompt": "What is 17*23? Answer with the number only.", "expected": "391"},
    {"prompt": "What is the capital of France? Answer in one word.", "expected": "Paris"},
    {"prompt": "List the first five prime numbers, separated by commas.", "expected": "2, 3, 5, 7, 11"},
)
# Flags that only a server with a disaggregation mode takes or needs, beside those called disaggregation-*.
DISAGGREGATION_FLAGS = ("num-reserved-decode-tokens", "optimistic-prefill-attempts", "enable-pd-role-switch")

Plan = dict[str, Any]


def resolve(
    variables: Mapping[str, Any],
    hosts: Sequence[HostVars],
    presets: Mapping[str, Any] | None = None,
    origins: Mapping[str, str] | None = None,
    engine_versions: Mapping[str, str | None] | None = None,
) -> tuple[Plan | None, list[Fault]]:
    """Return (plan, []) or (None, all faults in the order of the inventory's files).

    `variables`: the pd_* variables that hold for all hosts, as plain values. `hosts`: the group pdlab.
    `presets`: workloads by name. `origins`: key path -> `file:line`. `engine_versions`: sglang's version by
    host, where the lock says it. With pd_arms every arm is checked, and `pd_arm` picks the one whose plan it is.
    Raises nothing on bad input.
    """

    def one(own: Mapping[str, Any], where: Mapping[str, str]) -> tuple[Plan | None, list[Fault]]:
        return resolve_one(own, hosts, presets, where, engine_versions)

    return resolve_arms(variables, origins, one)


def resolve_one(
    variables: Mapping[str, Any],
    hosts: Sequence[HostVars],
    presets: Mapping[str, Any] | None = None,
    origins: Mapping[str, str] | None = None,
    engine_versions: Mapping[str, str | None] | None = None,
) -> tuple[Plan | None, list[Fault]]:
    """The same for variables without arms: the plan of one topology."""
    faults = Faults(origins)
    given = _checked(variables, faults)
    drafts = _drafts(given)
    device = _device(given, drafts, variables, faults)
    _place(drafts, hosts, faults)
    router = _router_draft(variables, given, drafts, hosts, faults)
    used = list(dict.fromkeys(part["host"] for part in [*drafts, *([router] if router else [])] if part.get("host")))
    resolved_hosts = resolve_hosts(hosts, used, faults)
    _check_model(variables, given, faults)
    _check_rehearsal(variables, given, faults)
    rules.unique_names(drafts, faults)
    rules.roles_belong_together(drafts, faults)
    rules.gpus_are_sound(drafts, device, faults)
    rules.parallelism_fits(drafts, device, faults)
    rules.kv_layouts_agree(drafts, faults)
    rules.canary_has_the_heads(drafts, given.get("pd_model", {}), faults)
    rules.weights_agree(drafts, given.get("pd_answers"), given.get("pd_oracle", {}).get("enabled"), faults)
    equipment = equip(drafts, given, device, resolved_hosts, engine_versions or {}, faults)
    _check_router_address(router, drafts, used, faults)
    _check_oracle(given, drafts, faults)
    _check_pythonpath(drafts, router, resolved_hosts, faults)
    ports = _claimed(drafts, router, faults)
    monitoring = resolve_monitoring(given, router, resolved_hosts, used, ports, faults)
    benchmark = resolve_benchmark(variables.get(BENCHMARK), presets or {}, faults)
    model_paths = _model_paths(given, hosts, resolved_hosts, used, faults)
    if len(faults):
        return None, in_file_order(faults)
    assert device is not None and benchmark is not None
    fill_ports(ports, drafts)
    if router is not None:
        fill_router_ports(ports, router)
    rehearsal = given.get("pd_rehearsal", device == "cpu" or given["pd_model"].get("source") == "canary")
    _add_extras(resolved_hosts, rehearsal)
    servers = [_server(draft, given, device, resolved_hosts, model_paths) for draft in drafts]
    gate = gate_host(servers)
    dummy = rules.has_dummy_weights(drafts)
    model = {**_model(given, model_paths[gate]), **({"weights": rules.DUMMY} if dummy else {})}
    plan: Plan = {
        "schema_version": SCHEMA_VERSION,
        "rehearsal": rehearsal,
        "device": device,
        "model": model,
        "hosts": resolved_hosts,
        "servers": servers,
        "router": _router(router, servers, resolved_hosts, engine_versions or {}) if router else None,
        "reference": _reference(drafts, given, device, resolved_hosts, model_paths, ports),
        **equipment,
        "answers": _answers(given, dummy),
        "oracle": {"enabled": _is_pd(drafts) and not dummy, "lengths": "auto", **given.get("pd_oracle", {})},
        "benchmark": benchmark,
        "monitoring": monitoring,
    }
    return plan, []


def gate_host(servers: Sequence[Mapping[str, Any]]) -> str:
    """The host that runs the ready gate, verify and the benchmark: the first decode's, else the first server's."""
    decode = [server["host"] for server in servers if server["role"] == DECODE]
    return str(decode[0] if decode else servers[0]["host"])


def part_of(plan: Plan, host: str) -> dict[str, Any]:
    """What of a plan concerns one host: {"servers", "router" or None, "gate", "host", "probes", "others", "monitoring"}.

    `others`: services of other arms, which must not run beside this one's. `monitoring`: whether Prometheus runs here.
    """
    router = plan["router"]
    return {
        "servers": [server for server in plan["servers"] if server["host"] == host],
        "router": router if router and router["host"] == host else None,
        "gate": host == gate_host(plan["servers"]),
        "host": plan["hosts"].get(host),
        "probes": probe_options(plan, host),
        "others": others_on(plan, host),
        "monitoring": plan["monitoring"]["install"] and plan["monitoring"]["host"] == host,
    }


def url_of(address: str, port: int) -> str:
    """The HTTP URL of an address and a port, IPv6 in brackets."""
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


def _checked(variables: Mapping[str, Any], faults: Faults) -> dict[str, Any]:
    """The valid parts of the shared variables; unknown ones, wrong types and missing ones are noted."""
    for name in variables:
        if name not in KNOWN:
            faults.add(name, "is an unknown variable", suggestion(name, KNOWN))
    given = {}
    for name, check in SHARED.items():
        if variables.get(name) is not None:
            value = check(faults, name, variables[name])
            if value is not INVALID:
                given[name] = value
    if variables.get("pd_servers") is None:
        cure = "list what runs, for example `pd_servers: [{name: prefill-0, role: prefill}, {name: decode-0, role: decode}]`"
        faults.add("pd_servers", "is missing", cure)
    return given


def _drafts(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The servers as the inventory gives them, with common arguments and environment merged in."""
    common_args, common_env = given.get("pd_server_args", {}), given.get("pd_server_env", {})
    return [
        {
            **entry,
            "index": index,
            "args": {**common_args, **entry.get("args", {})},
            "env": {**common_env, **entry.get("env", {})},
        }
        for index, entry in enumerate(given.get("pd_servers", []))
        if entry is not None
    ]


def _is_pd(drafts: Sequence[Mapping[str, Any]]) -> bool:
    return any(draft.get("role") in (PREFILL, DECODE) for draft in drafts)


def _device(
    given: Mapping[str, Any], drafts: Sequence[dict[str, Any]], variables: Mapping[str, Any], faults: Faults
) -> str | None:
    """cpu or cuda; cuda without being said when a server names GPUs. Notes which keys each server was given, too."""
    written = variables.get("pd_servers")
    for draft in drafts:
        entry = written[draft["index"]] if isinstance(written, (list, tuple)) else {}
        draft["given"] = {name for name, value in entry.items() if value is not None}
    if variables.get("pd_device") is not None or not drafts:
        return given.get("pd_device")
    if any("gpus" in draft["given"] for draft in drafts):
        return "cuda"
    faults.add("pd_device", "is missing, and no server names GPUs", "set pd_device to cuda (with gpus) or to cpu")
    return None


def _host_of(part: dict[str, Any], key: str, what: str, hosts: Sequence[HostVars], faults: Faults) -> None:
    """Fill in `host`, or take it away when the inventory has no such host."""
    names = [host.name for host in hosts]
    if part.get("host") is None:
        part.pop("host", None)
        if len(names) == 1:
            part["host"] = names[0]
        elif names:
            faults.add(
                f"{key}.host",
                "is missing, and there are several hosts",
                f"say on which {what} runs: {', '.join(names)}",
            )
    elif part["host"] not in names:
        problem = f"{part['host']!r} is not in the inventory's group pdlab"
        faults.add(f"{key}.host", problem, suggestion(part["host"], names))
        del part["host"]


def _place(drafts: Sequence[dict[str, Any]], hosts: Sequence[HostVars], faults: Faults) -> None:
    if not hosts:
        faults.add("pdlab", "the inventory's group pdlab has no host", "put the hosts into the group pdlab")
    for draft in drafts:
        _host_of(draft, rules.key_of(draft), rules.label_of(draft), hosts, faults)


def _router_draft(
    variables: Mapping[str, Any],
    given: Mapping[str, Any],
    drafts: Sequence[Mapping[str, Any]],
    hosts: Sequence[HostVars],
    faults: Faults,
) -> dict[str, Any] | None:
    """The router as given, placed beside the first decode (or colocated) server unless it says otherwise."""
    if variables.get("pd_router") is None:
        if _is_pd(drafts):
            faults.add("pd_router", "is missing, and prefill and decode need one", "add `pd_router: {port: 8000}`")
        return None
    if "pd_router" not in given:
        return None
    router = {"name": ROUTER, "role": ROUTER, **given["pd_router"]}
    placed = [draft for draft in drafts if draft.get("host") and draft.get("role")]
    if router.get("host") is None and placed and len(hosts) > 1:
        router["host"] = gate_host(placed)
    elif router.get("host") is not None or len(hosts) == 1:
        _host_of(router, "pd_router", "the router", hosts, faults)
    return router


def _check_router_address(
    router: Mapping[str, Any] | None, drafts: Sequence[Mapping[str, Any]], used: Sequence[str], faults: Faults
) -> None:
    """A router on a loopback address is out of reach for a gate and a benchmark that run elsewhere."""
    address = (router or {}).get("address")
    placed = [draft for draft in drafts if draft.get("host") and draft.get("role")]
    if router is None or not address or not placed or len(used) < 2 or "host" not in router:
        return
    gate = gate_host(placed)
    if (address.startswith("127.") or address == "::1") and router["host"] != gate:
        problem = f"{address} is a loopback address of {router['host']}, and {gate} must reach the router"
        faults.add("pd_router.address", problem, "remove it, or write an address of that host")


def _check_model(variables: Mapping[str, Any], given: Mapping[str, Any], faults: Faults) -> None:
    """What each source of a model needs, and what it cannot have."""
    if variables.get("pd_model") is None:
        faults.add("pd_model", "is missing", "add `pd_model: {path: /srv/models/NAME}` or `pd_model: {source: canary}`")
        return
    written = variables["pd_model"]
    if "pd_model" not in given:
        return
    source = written.get("source") or ("local" if written.get("path") else None)
    if source is None:
        faults.add("pd_model.source", "is missing", "write canary, or local with a path")
    elif source == "local" and written.get("path") is None:
        faults.add("pd_model.path", "is missing", "say where the checkpoint lies, for example `path: /srv/models/NAME`")
    elif source == "hub":
        for name, cure in (("repo", "write for example `repo: owner/name`"), ("revision", PIN)):
            if written.get(name) is None:
                faults.add(f"pd_model.{name}", "is missing", cure)
    for name in HUB_KEYS:
        if written.get(name) is not None and source in ("canary", "local"):
            problem = f"means nothing for the source {source}"
            faults.add(f"pd_model.{name}", problem, "remove it, or set pd_model.source to hub")
    if written.get("heads") is not None and source != "canary":
        faults.add("pd_model.heads", f"means nothing for the source {source}", "remove it; a checkpoint has its own")
    endpoint = str(given["pd_model"].get("endpoint") or "")
    if endpoint.startswith("http://") and "pd_hub_token" in given and not _LOOPBACK_URL.match(endpoint):
        problem = "is not encrypted, and pd_hub_token would go there for everybody to read"
        faults.add("pd_model.endpoint", problem, "write https, or remove pd_hub_token")
    for name in ("quantization", "sha256"):
        if written.get(name) is not None and source == "canary":
            faults.add(f"pd_model.{name}", "means nothing for the canary, which is made on the spot", "remove it")


def _check_rehearsal(variables: Mapping[str, Any], given: Mapping[str, Any], faults: Faults) -> None:
    """The canary's numbers must never look like a model's."""
    if given.get("pd_rehearsal") is False and given.get("pd_model", {}).get("source") == "canary":
        cure = "set pd_rehearsal to true, or name a real model"
        faults.add("pd_rehearsal", "is false, and the canary is a rehearsal model", cure)


def _check_oracle(given: Mapping[str, Any], drafts: Sequence[Mapping[str, Any]], faults: Faults) -> None:
    if given.get("pd_oracle", {}).get("enabled") and drafts and not _is_pd(drafts):
        problem = "is true, and there are no prefill and decode servers to compare with a colocated one"
        faults.add("pd_oracle.enabled", problem, "remove it")


def _check_pythonpath(
    drafts: Sequence[Mapping[str, Any]],
    router: Mapping[str, Any] | None,
    hosts: Mapping[str, Mapping[str, Any]],
    faults: Faults,
) -> None:
    """PYTHONPATH is how an existing engine is found: a server's own would hide it."""
    parts = [(rules.key_of(draft), draft) for draft in drafts] + ([("pd_router", router)] if router else [])
    for key, part in parts:
        host = hosts.get(part.get("host") or "")
        if host and host["engine_existing"] and "PYTHONPATH" in (part.get("env") or {}):
            problem = "would hide what pd_engine.existing.pythonpath gives"
            faults.add(f"{key}.env.PYTHONPATH", problem, "remove it, and add its folders there")


def _add_extras(hosts: Mapping[str, dict[str, Any]], rehearsal: bool) -> None:
    """The rehearsal distribution lies in a folder of its own where pdlab does not install into the engine."""
    for host in hosts.values():
        if rehearsal and host["engine_existing"]:
            host["engine_pythonpath"] = [*host["engine_pythonpath"], under(engine_dir(host["root"]), EXTRAS)]


def _claimed(drafts: Sequence[Mapping[str, Any]], router: Mapping[str, Any] | None, faults: Faults) -> Ports:
    """All ports that the inventory gives, with their clashes noted."""
    ports = Ports()
    for draft in drafts:
        kinds = ["port", "bootstrap_port", "nccl_port"]
        if draft.get("role") in (DECODE, COLOCATED) and draft.get("bootstrap_port") is not None:
            problem = f"{rules.label_of(draft)} is a {draft['role']} server, and only a prefill server listens there"
            faults.add(f"{rules.key_of(draft)}.bootstrap_port", problem, "remove it")
            kinds.remove("bootstrap_port")
        if draft.get("host"):
            claim_given(ports, {**draft, "name": rules.label_of(draft)}, rules.key_of(draft), kinds, faults)
    if router and router.get("host"):
        claim_given(ports, router, "pd_router", ("port", "prometheus_port"), faults)
    return ports


def _model_paths(
    given: Mapping[str, Any],
    hosts: Sequence[HostVars],
    resolved: Mapping[str, Mapping[str, Any]],
    used: Sequence[str],
    faults: Faults,
) -> dict[str, str]:
    """Where the model lies on each host that runs something."""
    model = given.get("pd_model", {})
    paths = {}
    for host in hosts:
        if host.name not in used:
            continue
        written = model.get("path")
        if written is None:
            name = _canary_folder(model) if model.get("source") == "canary" else _hub_folder(model)
            written = under(resolved[host.name]["root"] or "/", "models", name)
        path = expand_home(written, host)
        if path is None:
            problem = f"{written!r} begins with '~', which means nothing on {host.name}"
            faults.add("pd_model.path", problem, "write the whole path")
        else:
            paths[host.name] = path
    return paths


def _answers(given: Mapping[str, Any], dummy: bool) -> list[dict[str, Any]]:
    """The questions to ask: those of the inventory, else the usual ones; none of random weights."""
    return given.get("pd_answers") or ([] if dummy else [dict(answer) for answer in DEFAULT_ANSWERS])


def _canary_folder(model: Mapping[str, Any]) -> str:
    """A folder for each number of heads, so that none is made again when another one is wanted in between."""
    heads = model.get("heads", rules.CANARY_HEADS)
    return "canary" if heads == rules.CANARY_HEADS else f"canary-{heads}-heads"


def _hub_folder(model: Mapping[str, Any]) -> str:
    """A folder for each revision: one that servers have open is never written to, and the one before stays."""
    words = (str(model.get("repo", "")), str(model.get("revision", ""))[:SHORT_REVISION])
    return "--".join(words).replace("/", "--")


def _model(given: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The plan's `model`; what only the source hub has, only for it; the rest where it is set."""
    model = given["pd_model"]
    source = model.get("source", "local")
    named = {"canary": "canary", "hub": posixpath.basename(model.get("repo", ""))}
    resolved = {
        "source": source,
        "path": path,
        "served_name": model.get("served_name") or named.get(source) or posixpath.basename(path),
        "revision": model.get("revision"),
    }
    names = (*(HUB_KEYS if source == "hub" else ()), "architecture", "quantization", "warm_up", "heads")
    return {**resolved, **{name: model[name] for name in names if name in model}}


def _server(
    draft: Mapping[str, Any],
    given: Mapping[str, Any],
    device: str,
    hosts: Mapping[str, Mapping[str, Any]],
    model_paths: Mapping[str, str],
) -> dict[str, Any]:
    """One engine server of the plan."""
    host = hosts[draft["host"]]
    disaggregated = draft["role"] in (PREFILL, DECODE)
    server = {
        "name": draft["name"],
        "role": draft["role"],
        "host": draft["host"],
        "address": host["address"],
        "port": draft["port"],
        "bootstrap_port": draft.get("bootstrap_port"),
        "nccl_port": draft["nccl_port"],
        "gpus": sorted(draft.get("gpus") or []),
        "tp": draft.get("tp") or rules.default_tp(draft),
        **asked_binding(draft.get("numa_node"), draft.get("gpus") or []),
        "device": device,
        "model_path": model_paths[draft["host"]],
        "served_name": _model(given, model_paths[draft["host"]])["served_name"],
        "transfer_backend": TRANSFER_BACKEND if disaggregated else None,
        "args": dict(draft["args"]),
        "env": dict(draft["env"]),
    }
    return _with_process(server, host, url_of(host["address"], draft["port"]))


def _with_process(part: dict[str, Any], host: Mapping[str, Any], url: str) -> dict[str, Any]:
    """Add what follows from the rest: the interpreter, the command line, the environment, the unit, the log."""
    home = account_home(host["root"]) if host["user"] else host["root"]
    part.update(python=host["engine_python"], home=home, user=host["user"])
    path = {"PYTHONPATH": ":".join(host["engine_pythonpath"])} if host["engine_pythonpath"] else {}
    part["env"] = {**path, **host["engine_env"], **part["env"]}
    return {
        **part,
        "argv": server_argv(part),
        "environment": server_environment(part),
        "unit": UNIT_PREFIX + part["name"],
        "log": log_file(host["root"], part["name"]),
        "url": url,
    }


def _router(
    router: Mapping[str, Any],
    servers: Sequence[Mapping[str, Any]],
    hosts: Mapping[str, Mapping[str, Any]],
    versions: Mapping[str, str | None],
) -> dict[str, Any]:
    """The plan's router."""
    host = hosts[router["host"]]
    address = router.get("address") or host["address"]
    health = _health_path(servers, hosts, versions)
    part = {
        "name": ROUTER,
        "role": ROUTER,
        "host": router["host"],
        "address": address,
        "port": router["port"],
        "prometheus_host": router.get("prometheus_host", "127.0.0.1"),
        "prometheus_port": router["prometheus_port"],
        "policy": router.get("policy", DEFAULT_POLICY),
        "args": {**({"health-check-endpoint": health} if health else {}), **router.get("args", {})},
        "env": dict(router.get("env", {})),
        "workers": [{name: server[name] for name in ("name", "role", "url", "bootstrap_port")} for server in servers],
    }
    reached_at = host["address"] if address in ANY_ADDRESS else address
    return _with_process(part, host, url_of(reached_at, router["port"]))


def _health_path(
    servers: Sequence[Mapping[str, Any]], hosts: Mapping[str, Mapping[str, Any]], versions: Mapping[str, str | None]
) -> str | None:
    """Where the router must ask its workers when that is not its usual place: what the least able of them has.

    The version of an engine that pdlab does not build is known only where the inventory says it.
    """
    found = {
        trait(HEALTH_PATH, versions.get(server["host"]))
        for server in servers
        if versions.get(server["host"]) or hosts[server["host"]]["engine_existing"]
    }
    others = sorted(found - {ROUTER_FLAGS["health-check-endpoint"]})
    return others[0] if others else None


def _reference(
    drafts: Sequence[Mapping[str, Any]],
    given: Mapping[str, Any],
    device: str,
    hosts: Mapping[str, Mapping[str, Any]],
    model_paths: Mapping[str, str],
    ports: Ports,
) -> dict[str, Any] | None:
    """The colocated server that the oracle compares with: the first decode server without its disaggregation."""
    decode = next((draft for draft in drafts if draft["role"] == DECODE), None)
    if decode is None:
        return None
    args = {
        name: value
        for name, value in decode["args"].items()
        if not name.startswith("disaggregation-") and name not in DISAGGREGATION_FLAGS
    }
    reference = {**decode, "name": "reference", "role": "reference", "args": args, "port": None, "nccl_port": None}
    fill_ports(ports, [reference])
    return _server({**reference, "role": COLOCATED}, given, device, hosts, model_paths)
