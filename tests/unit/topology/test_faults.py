# SPDX-License-Identifier: Apache-2.0
"""What a wrong inventory is told: every fault at once, with its key, the problem and the cure."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Fault
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology import resolve
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_hosts import HostVars, split
from hypothesis import given, settings
from hypothesis import strategies as st

from .conftest import CPU_BOX, GPU_BOX, PRESETS, one_host, two_hosts

Change = Callable[[dict[str, Any]], Any]


def servers(variables: dict[str, Any], *entries: dict[str, Any]) -> None:
    variables["pd_servers"] = list(entries)


# (what is wrong, how, the key of the fault, words of its line)
WRONG: list[tuple[str, Change, str, str]] = [
    ("an unknown variable", lambda v: v.update(pd_server=[]), "pd_server", "did you mean pd_servers?"),
    ("no servers", lambda v: v.pop("pd_servers"), "pd_servers", "is missing"),
    ("an empty list of servers", lambda v: v.update(pd_servers=[]), "pd_servers", "is an empty list"),
    ("servers that are no list", lambda v: v.update(pd_servers={"a": 1}), "pd_servers", "is a mapping, not a list"),
    ("a server that is no mapping", lambda v: v["pd_servers"].append("x"), "pd_servers[2]", "not a mapping"),
    ("no model", lambda v: v.pop("pd_model"), "pd_model", "is missing"),
    ("a model that is no mapping", lambda v: v.update(pd_model="/x"), "pd_model", "not a mapping"),
    ("a model of no source", lambda v: v.update(pd_model={}), "pd_model.source", "is missing"),
    ("a local model of no path", lambda v: v.update(pd_model={"source": "local"}), "pd_model.path", "is missing"),
    ("a relative model path", lambda v: v["pd_model"].update(path="models/x"), "pd_model.path", "not an absolute path"),
    ("an unknown source", lambda v: v["pd_model"].update(source="s3"), "pd_model.source", "canary, local, hub"),
    ("a revision of a local model", lambda v: v["pd_model"].update(revision="a"), "pd_model.revision", "means nothing"),
    ("no role", lambda v: v["pd_servers"][0].pop("role"), "pd_servers[0].role", "is missing"),
    ("an unknown role", lambda v: v["pd_servers"][0].update(role="prefil"), "pd_servers[0].role", "prefill, decode"),
    ("no name", lambda v: v["pd_servers"][1].pop("name"), "pd_servers[1].name", "is missing"),
    ("two of a name", lambda v: v["pd_servers"][1].update(name="prefill-0"), "pd_servers[1].name", "pd_servers[0]"),
    ("a name with a space", lambda v: v["pd_servers"][0].update(name="my p"), "pd_servers[0].name", "lower-case"),
    ("a name with a slash", lambda v: v["pd_servers"][0].update(name="../p"), "pd_servers[0].name", "lower-case"),
    ("the router's name", lambda v: v["pd_servers"][0].update(name="router"), "pd_servers[0].name", "a part of pdlab"),
    ("an unknown key", lambda v: v["pd_servers"][0].update(gpu=[0]), "pd_servers[0].gpu", "did you mean gpus?"),
    ("a port as text", lambda v: v["pd_servers"][0].update(port="30000"), "pd_servers[0].port", "without quotes"),
    ("a port out of range", lambda v: v["pd_servers"][0].update(port=70000), "pd_servers[0].port", "out of range"),
    ("a truth value as port", lambda v: v["pd_servers"][0].update(port=True), "pd_servers[0].port", "truth value"),
    ("GPUs that are no list", lambda v: v["pd_servers"][0].update(gpus=0), "pd_servers[0].gpus", "not a list"),
    ("a negative GPU", lambda v: v["pd_servers"][0].update(gpus=[-1]), "pd_servers[0].gpus[0]", "out of range"),
    ("no GPUs", lambda v: v["pd_servers"][0].update(gpus=[]), "pd_servers[0].gpus", "names no GPU"),
    ("a GPU twice", lambda v: v["pd_servers"][0].update(gpus=[0, 0]), "pd_servers[0].gpus", "GPU 0 twice"),
    (
        "a GPU in two servers",
        lambda v: v["pd_servers"][1].update(gpus=[3, 4]),
        "pd_servers[1].gpus",
        "GPU 3 of box1 is already in prefill-0",
    ),
    (
        "GPUs that are no row",
        lambda v: v["pd_servers"][0].update(gpus=[0, 2]),
        "pd_servers[0].gpus",
        "[0, 2] is not the row [0, 1]",
    ),
    ("TP and GPUs that differ", lambda v: v["pd_servers"][0].update(tp=3), "pd_servers[0].tp", "TP 3 uses 3 GPUs"),
    (
        "PP that does not divide",
        lambda v: v["pd_servers"][0].update(args={"pp-size": 3}),
        "pd_servers[0].gpus",
        "4 GPUs cannot be shared out evenly",
    ),
    (
        "DP attention that does not divide",
        lambda v: v["pd_servers"][0].update(args={"enable-dp-attention": True, "dp-size": 3}),
        "pd_servers[0].args.dp-size",
        "TP 4",
    ),
    (
        "prefill without decode",
        lambda v: v["pd_servers"].pop(1),
        "pd_servers",
        "prefill-0 is a prefill server, and there is no decode server",
    ),
    ("decode without prefill", lambda v: v["pd_servers"].pop(0), "pd_servers", "there is no prefill server"),
    (
        "colocated beside prefill and decode",
        lambda v: v["pd_servers"].append({"name": "c", "role": "colocated", "gpus": [8]}),
        "pd_servers[2].role",
        "stands beside prefill-0, decode-0",
    ),
    ("no router", lambda v: v.pop("pd_router"), "pd_router", "is missing"),
    ("an unknown router key", lambda v: v["pd_router"].update(prot=1), "pd_router.prot", "did you mean port?"),
    ("a router at a name", lambda v: v["pd_router"].update(address="box"), "pd_router.address", "not an IP address"),
    (
        "two servers on one port",
        lambda v: [server.update(port=30000) for server in v["pd_servers"]],
        "pd_servers[1].port",
        "30000 is taken by prefill-0; give each server its own port",
    ),
    (
        "two prefills on one bootstrap port",
        lambda v: servers(
            v,
            {"name": "p0", "role": "prefill", "gpus": [0], "bootstrap_port": 8998},
            {"name": "p1", "role": "prefill", "gpus": [1], "bootstrap_port": 8998},
            {"name": "d0", "role": "decode", "gpus": [2]},
        ),
        "pd_servers[1].bootstrap_port",
        "8998 is taken by the bootstrap port of p0; give each prefill its own",
    ),
    (
        "a bootstrap port of decode",
        lambda v: v["pd_servers"][1].update(bootstrap_port=9000),
        "pd_servers[1].bootstrap_port",
        "only a prefill server listens there",
    ),
    (
        "a server on its own NCCL port",
        lambda v: v["pd_servers"][0].update(port=21000, nccl_port=21000),
        "pd_servers[0].nccl_port",
        "21000 is taken by prefill-0",
    ),
    (
        "a router on a server's port",
        lambda v: (v["pd_servers"][0].update(port=30000), v["pd_router"].update(port=30000)),
        "pd_router.port",
        "30000 is taken by prefill-0",
    ),
    (
        "Prometheus on an NCCL port",
        lambda v: (v["pd_servers"][0].update(nccl_port=29001), v["pd_router"].update(prometheus_port=29001)),
        "pd_router.prometheus_port",
        "29001 is taken by the NCCL port of prefill-0",
    ),
    ("a host of nowhere", lambda v: v["pd_servers"][0].update(host="bxo1"), "pd_servers[0].host", "did you mean box1?"),
    ("a router of nowhere", lambda v: v["pd_router"].update(host="x"), "pd_router.host", "is not in the inventory"),
    (
        "page sizes that differ",
        lambda v: v["pd_servers"][1].update(args={"page-size": 64}),
        "pd_servers[1].args.page-size",
        "is 64, and prefill-0 has the engine's default",
    ),
    (
        "KV dtypes that differ",
        lambda v: [
            s.update(args={"kv-cache-dtype": d}) for s, d in zip(v["pd_servers"], ("auto", "fp8_e4m3"), strict=True)
        ],
        "pd_servers[1].args.kv-cache-dtype",
        "is fp8_e4m3, and prefill-0 has auto",
    ),
    (
        "another transfer backend as an argument",
        lambda v: v.update(pd_server_args={"disaggregation-transfer-backend": "mooncake"}),
        "pd_server_args.disaggregation-transfer-backend",
        "only nixl is supported now",
    ),
    (
        "another transfer backend as a key",
        lambda v: v["pd_servers"][0].update(transfer_backend="mooncake"),
        "pd_servers[0].transfer_backend",
        "only nixl is supported now",
    ),
    (
        "metrics switched off",
        lambda v: v.update(pd_server_args={"enable-metrics": False}),
        "pd_server_args.enable-metrics",
        "KV transfer counters",
    ),
    (
        "a server over several hosts",
        lambda v: v["pd_servers"][0].update(args={"nnodes": 2}),
        "pd_servers[0].args.nnodes",
        "lives on one host",
    ),
    (
        "a flag in two spellings",
        lambda v: v.update(pd_server_args={"page-size": 1, "--page_size": 1}),
        "pd_server_args.--page_size",
        "given twice",
    ),
    ("arguments as a list", lambda v: v.update(pd_server_args=["--x"]), "pd_server_args", "is a list, not a mapping"),
    (
        "a mapping inside a list argument",
        lambda v: v.update(pd_server_args={"x": [{"a": 1}]}),
        "pd_server_args.x",
        "holds a mapping in its list",
    ),
    (
        "an environment name with a dash",
        lambda v: v.update(pd_server_env={"A-B": 1}),
        "pd_server_env.A-B",
        "no name for an environment variable",
    ),
    (
        "a line break in the environment",
        lambda v: v.update(pd_server_env={"A": "x\ny"}),
        "pd_server_env.A",
        "no service definition can carry",
    ),
    ("an unknown device", lambda v: v.update(pd_device="gpu"), "pd_device", "cpu, cuda"),
    ("no expected answer", lambda v: v.update(pd_answers=[{"prompt": "x"}]), "pd_answers[0].expected", "is missing"),
    (
        "an empty answer",
        lambda v: v.update(pd_answers=[{"prompt": "x", "expected": " "}]),
        "pd_answers[0].expected",
        "is empty",
    ),
    ("no answers at all", lambda v: v.update(pd_answers=[]), "pd_answers", "is an empty list"),
    ("oracle lengths of 0", lambda v: v.update(pd_oracle={"lengths": [0]}), "pd_oracle.lengths[0]", "out of range"),
    ("an unknown oracle key", lambda v: v.update(pd_oracle={"enable": True}), "pd_oracle.enable", "enabled"),
    ("heads of a checkpoint", lambda v: v["pd_model"].update(heads=8), "pd_model.heads", "for the source local"),
    (
        "a canary that is no rehearsal",
        lambda v: v.update(pd_rehearsal=False, pd_model={"source": "canary", "heads": 4}),
        "pd_rehearsal",
        "rehearsal model",
    ),
    (
        "an unknown sweep",
        lambda v: v.update(pd_benchmark={"sweep": "campain"}),
        "pd_benchmark.sweep",
        "did you mean campaign?",
    ),
    ("a nameless sweep", lambda v: v.update(pd_benchmark={"sweep": ""}), "pd_benchmark.sweep", "not a workload's name"),
    ("a benchmark of text", lambda v: v.update(pd_benchmark="default"), "pd_benchmark", "not a mapping"),
    (
        "an unknown benchmark key",
        lambda v: v.update(pd_benchmark={"sweep": "default", "input_length": 5}),
        "pd_benchmark.input_length",
        "did you mean input_len?",
    ),
    (
        "a range ratio above 1",
        lambda v: v.update(pd_benchmark={"range_ratio": 1.5}),
        "pd_benchmark.range_ratio",
        "out of range",
    ),
    (
        "a sweep and points",
        lambda v: v.update(pd_benchmark={"sweep": "default", "points": [{"concurrency": 1, "prompts": 1}]}),
        "pd_benchmark.sweep",
        "keep one of them",
    ),
    (
        "a concurrency of 0",
        lambda v: v.update(pd_benchmark={"points": [{"concurrency": 0, "prompts": 1}]}),
        "pd_benchmark.points[0].concurrency",
        "out of range",
    ),
    (
        "a point of no load",
        lambda v: v.update(pd_benchmark={"points": [{"prompts": 1}]}),
        "pd_benchmark.points[0]",
        "has neither a concurrency nor a rate_s",
    ),
    (
        "fewer prompts than the concurrency",
        lambda v: v.update(pd_benchmark={"points": [{"concurrency": 16, "prompts": 8}]}),
        "pd_benchmark.points[0].prompts",
        "8 prompts never keep 16 requests in flight",
    ),
]


@pytest.mark.parametrize(("change", "key", "words"), [pytest.param(*rest, id=what) for what, *rest in WRONG])
def test_is_refused(gpu_box: dict[str, Any], faults_of: Any, change: Change, key: str, words: str) -> None:
    change(gpu_box)
    found = faults_of(gpu_box)
    assert list(found) == [key]
    assert words in found[key]


@pytest.mark.parametrize("where", ["pd_server_args", "pd_servers[0].args"])
@pytest.mark.parametrize(
    ("flag", "instead"),
    [
        ("disaggregation-mode", "the server's role"),
        ("--disaggregation_mode", "the server's role"),
        ("port", "the server's port"),
        ("host", "pd_address"),
        ("model-path", "pd_model.path"),
        ("tp", "the server's tp"),
        ("base-gpu-id", "the server's gpus"),
        ("numa-node", "the server's numa_node"),
    ],
)
def test_an_argument_that_is_derived_names_the_variable_to_use(
    gpu_box: dict[str, Any], faults_of: Any, where: str, flag: str, instead: str
) -> None:
    if where == "pd_server_args":
        gpu_box["pd_server_args"] = {flag: 1}
    else:
        gpu_box["pd_servers"][0]["args"] = {flag: 1}
    found = faults_of(gpu_box)
    assert list(found) == [f"{where}.{flag}"]
    assert f"set {instead}" in found[f"{where}.{flag}"]


@pytest.mark.parametrize("flag", ["host", "port", "prometheus-port", "policy", "prefill", "worker-urls"])
def test_a_router_argument_that_is_derived_is_refused(gpu_box: dict[str, Any], faults_of: Any, flag: str) -> None:
    gpu_box["pd_router"]["args"] = {flag: 1}
    assert list(faults_of(gpu_box)) == [f"pd_router.args.{flag}"]


def test_a_cuda_server_must_name_its_gpus(gpu_box: dict[str, Any], faults_of: Any) -> None:
    del gpu_box["pd_servers"][0]["gpus"]
    assert "is missing, and pd_device is cuda" in faults_of(gpu_box)["pd_servers[0].gpus"]


def test_a_device_must_be_named_where_no_server_names_gpus(cpu_box: dict[str, Any], faults_of: Any) -> None:
    del cpu_box["pd_device"]
    assert list(faults_of(cpu_box)) == ["pd_device"]


def test_gpus_on_a_cpu_device_are_refused(cpu_box: dict[str, Any], faults_of: Any) -> None:
    cpu_box["pd_servers"][0]["gpus"] = [0]
    assert "pd_device is cpu" in faults_of(cpu_box)["pd_servers[0].gpus"]


def test_the_oracle_needs_prefill_and_decode(cpu_box: dict[str, Any], faults_of: Any) -> None:
    cpu_box["pd_servers"] = [{"name": "c", "role": "colocated"}]
    cpu_box["pd_oracle"] = {"enabled": True}
    assert list(faults_of(cpu_box)) == ["pd_oracle.enabled"]


HUB = {"source": "hub", "repo": "owner/name", "revision": "0123456789abcdef0123456789abcdef01234567"}


@pytest.mark.parametrize(
    ("change", "key", "words"),
    [
        ({"repo": None}, "repo", "is missing"),
        ({"revision": None}, "revision", "is missing"),
        ({"repo": "https://huggingface.co/owner/name"}, "repo", "write owner/name"),
        ({"repo": "name"}, "repo", "write owner/name"),
        ({"revision": "main"}, "revision", "a branch moves"),
        ({"revision": "HEAD"}, "revision", "a branch moves"),
        ({"revision": "0123abc"}, "revision", "write all 40 digits"),
        ({"revision": "../x"}, "revision", "neither a commit nor a tag"),
        ({"endpoint": "hub.example.org"}, "endpoint", "no address of a hub"),
        ({"endpoint": "https://me:word@hub.example.org"}, "endpoint", "set pd_hub_token"),
        ({"endpoint": "http://hub.example.org"}, "endpoint", "is not encrypted"),
        ({"token": "hf_x"}, "token", "set pd_hub_token"),
        ({"quantization": "nvfp4"}, "quantization", "modelopt_nvfp4, mxfp4, fp8, none"),
        ({"sha256": "SHA256SUMS"}, "sha256", "not an absolute path"),
        ({"sha256": {"a": "0"}}, "sha256.a", "64 hexadecimal digits"),
        ({"exclude": "original/*"}, "exclude", "not a list"),
        ({"warm_up": "often"}, "warm_up", "not true or false"),
    ],
)
def test_what_does_not_pin_or_name_a_hub_model_is_refused(
    gpu_box: dict[str, Any], faults_of: Any, change: dict[str, Any], key: str, words: str
) -> None:
    gpu_box["pd_model"] = {**HUB, **change}
    gpu_box["pd_hub_token"] = "hf_secret"
    found = faults_of(gpu_box)
    assert list(found) == [f"pd_model.{key}"]
    assert words in found[f"pd_model.{key}"]


@pytest.mark.parametrize("token", [1234567, "hf_se cret", "hf_secret\n", "", ["hf_secret"], {"a": "hf_secret"}])
def test_a_token_that_is_none_is_refused_without_showing_it(
    gpu_box: dict[str, Any], faults_of: Any, token: Any
) -> None:
    gpu_box.update(pd_model=dict(HUB), pd_hub_token=token)
    (found,) = faults_of(gpu_box).items()
    assert found[0] == "pd_hub_token"
    assert "secret" not in found[1] and "1234567" not in found[1]


def test_the_canary_has_no_quantization_and_no_hash_list(cpu_box: dict[str, Any], faults_of: Any) -> None:
    cpu_box["pd_model"].update(quantization="fp8", sha256={"a": "0" * 64})
    assert list(faults_of(cpu_box)) == ["pd_model.quantization", "pd_model.sha256"]


def test_a_canary_has_two_heads_or_the_same_two_again_and_again(cpu_box: dict[str, Any], faults_of: Any) -> None:
    cpu_box["pd_model"]["heads"] = 6
    assert "write one of 2, 4, 8, 16" in faults_of(cpu_box)["pd_model.heads"]


def test_tensor_parallelism_divides_the_heads_of_the_canary(
    gpu_box: dict[str, Any], faults_of: Any, plan_of: Any
) -> None:
    gpu_box["pd_model"] = {"source": "canary"}
    found = faults_of(gpu_box)
    assert list(found) == ["pd_servers[0].tp", "pd_servers[1].tp"]
    assert "TP 4 does not divide the canary's 2 attention heads" in found["pd_servers[0].tp"]
    assert "write `heads: 4` in pd_model" in found["pd_servers[0].tp"]
    gpu_box["pd_model"]["heads"] = 4
    assert plan_of(gpu_box)["model"]["heads"] == 4
    gpu_box["pd_servers"] = [{"name": "all", "role": "colocated", "gpus": list(range(8)), "numa_node": "unbound"}]
    assert "write `heads: 8`" in faults_of(gpu_box)["pd_servers[0].tp"]
    # Attention is what has heads: its groups are smaller with data-parallel attention.
    gpu_box["pd_servers"][0]["args"] = {"enable-dp-attention": True, "dp-size": 2}
    assert plan_of(gpu_box)["servers"][0]["tp"] == 8


def test_a_canary_of_more_heads_has_a_folder_of_its_own(gpu_box: dict[str, Any], plan_of: Any) -> None:
    gpu_box["pd_model"] = {"source": "canary", "heads": 4}
    model = plan_of(gpu_box)["model"]
    assert (model["path"], model["heads"]) == ("/opt/pdlab/models/canary-4-heads", 4)


def test_every_fault_is_listed_at_once_in_the_order_of_the_file() -> None:
    variables = deepcopy(CPU_BOX)
    variables["pd_servers"][1] |= {"rol": "decode", "port": "x"}
    del variables["pd_servers"][1]["role"]
    variables["pd_router"] = {"port": 0}
    variables["pd_rehersal"] = True
    origins = {
        "pd_rehersal": "i/pdlab.yml:20",
        "pd_servers": "i/pdlab.yml:2",
        "pd_servers[1].port": "i/pdlab.yml:10",
        "pd_router": "i/pdlab.yml:12",
    }
    _plan, faults = resolve(variables, one_host(), PRESETS, origins)
    assert [str(fault) for fault in faults] == [
        "i/pdlab.yml:2 pd_servers[1].rol: is an unknown key; did you mean role?",
        "i/pdlab.yml:2 pd_servers[1].role: is missing; write for example `role: prefill`",
        "i/pdlab.yml:10 pd_servers[1].port: is the text 'x', not a whole number; write a whole number without quotes",
        "i/pdlab.yml:12 pd_router.port: 0 is out of range; write a port, 1 to 65535",
        "i/pdlab.yml:20 pd_rehersal: is an unknown variable; did you mean pd_rehearsal?",
    ]


def test_a_fault_without_a_known_place_still_reads_well() -> None:
    assert str(Fault("pd_router", "is missing", "add it")) == "pd_router: is missing; add it"


class TestHosts:
    def test_a_fleet_must_say_where_each_server_runs(self, gpu_box: dict[str, Any], faults_of: Any) -> None:
        found = faults_of(gpu_box, two_hosts())
        assert list(found) == ["pd_servers[0].host", "pd_servers[1].host"]
        assert "box1, box2" in found["pd_servers[0].host"]

    def test_a_loopback_address_of_a_remote_part_is_refused(self, fleet: dict[str, Any], faults_of: Any) -> None:
        found = faults_of(fleet, two_hosts(second={"pd_address": "127.0.0.1"}))
        assert list(found) == ["pd_address of box2"]
        assert "loopback address, and box1 must reach this host" in found["pd_address of box2"]

    def test_a_router_on_loopback_that_the_gate_cannot_reach_is_refused(
        self, fleet: dict[str, Any], faults_of: Any, plan_of: Any
    ) -> None:
        fleet["pd_router"] |= {"address": "127.0.0.1", "host": "box1"}
        assert list(faults_of(fleet, two_hosts())) == ["pd_router.address"]
        fleet["pd_router"]["host"] = "box2"
        assert plan_of(fleet, two_hosts())["router"]["url"] == "http://127.0.0.1:8000"

    def test_a_host_name_is_no_address_in_a_fleet(self, fleet: dict[str, Any], faults_of: Any) -> None:
        hosts = [HostVars("box1", variables={"pd_root": "/opt/pdlab"}), two_hosts()[1]]
        assert "'box1' is not an IP address" in faults_of(fleet, hosts)["pd_address of box1"]

    def test_two_hosts_of_one_address_are_one_box(self, fleet: dict[str, Any], faults_of: Any) -> None:
        assert list(faults_of(fleet, two_hosts(second={"pd_address": "192.0.2.11"}))) == ["pd_address of box2"]

    def test_two_address_families_are_refused(self, fleet: dict[str, Any], faults_of: Any) -> None:
        found = faults_of(fleet, two_hosts(second={"pd_address": "2001:db8::2"}))
        assert "two address families" in found["pd_address of box2"]

    def test_an_address_of_everything_is_refused(self, fleet: dict[str, Any], faults_of: Any) -> None:
        found = faults_of(fleet, two_hosts(first={"pd_address": "0.0.0.0"}))
        assert list(found) == ["pd_address of box1"]

    def test_a_home_means_nothing_on_a_remote_host(self, fleet: dict[str, Any], faults_of: Any) -> None:
        found = faults_of(fleet, two_hosts(first={"pd_root": "~/pdlab"}))
        assert "only has a meaning on this machine" in found["pd_root of box1"]

    def test_a_fault_that_all_hosts_share_is_listed_once(self, fleet: dict[str, Any], faults_of: Any) -> None:
        relative = {"pd_root": "pdlab"}
        assert list(faults_of(fleet, two_hosts(relative, relative))) == ["pd_root"]

    @pytest.mark.parametrize("root", ["/", "/opt", "/usr/local/", "/home/user", "~"])
    def test_a_root_that_holds_other_things_is_refused(
        self, cpu_box: dict[str, Any], faults_of: Any, root: str
    ) -> None:
        assert list(faults_of(cpu_box, one_host(pd_root=root))) == ["pd_root"]

    def test_a_missing_root_is_listed(self, cpu_box: dict[str, Any], faults_of: Any) -> None:
        assert list(faults_of(cpu_box, [HostVars("box1")])) == ["pd_root"]

    def test_an_empty_group_is_listed(self, cpu_box: dict[str, Any]) -> None:
        plan, faults = resolve(cpu_box, [], PRESETS)
        assert plan is None
        assert [fault.key for fault in faults] == ["pdlab"]

    def test_an_engine_key_is_checked_on_its_host(self, cpu_box: dict[str, Any], faults_of: Any) -> None:
        found = faults_of(cpu_box, one_host(pd_engine={"lok": "cpu"}, pd_service_manager="openrc"))
        assert list(found) == ["pd_engine.lok", "pd_service_manager"]
        assert "did you mean lock?" in found["pd_engine.lok"]

    def test_a_variable_that_holds_for_all_hosts_may_not_differ(self) -> None:
        shared, faults = split({"a": {"pd_device": "cpu"}, "b": {"pd_device": "cuda"}, "c": {}})
        assert shared == {"pd_device": "cpu"}
        assert ["b and a have different values" in str(faults[0]), "c has not" in str(faults[1])] == [True, True]

    def test_a_variable_of_each_host_may_differ(self) -> None:
        assert split({"a": {"pd_root": "/x"}, "b": {"pd_root": "/y"}}) == ({}, [])


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 70000) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(
    name=st.sampled_from(sorted({*GPU_BOX, *CPU_BOX, "pd_answers", "pd_oracle", "pd_benchmark", "pd_server_args"})),
    value=anything,
)
def test_no_value_of_any_variable_breaks_the_check(name: str, value: Any) -> None:
    plan, faults = resolve({**deepcopy(GPU_BOX), name: value}, one_host(), PRESETS)
    assert (plan is None) == bool(faults)


@settings(max_examples=300, deadline=None)
@given(
    key=st.sampled_from(["name", "role", "host", "gpus", "tp", "numa_node", "port", "nccl_port", "args", "env"]),
    value=anything,
)
def test_no_value_of_any_server_key_breaks_the_check(key: str, value: Any) -> None:
    variables = deepcopy(GPU_BOX)
    variables["pd_servers"][0][key] = value
    plan, faults = resolve(variables, one_host(), PRESETS)
    assert (plan is None) == bool(faults)


# --- shared GPUs -----------------------------------------------------------------------------------------------------


def shared_gpu(gpu_box: dict[str, Any], **args: Any) -> dict[str, Any]:
    gpu_box["pd_server_args"] = args
    for server in gpu_box["pd_servers"]:
        server |= {"gpus": [0], "numa_node": 0, "share_gpus": True}
    return gpu_box


def test_two_servers_share_a_gpu_when_both_say_so_and_how_much_each_takes(
    gpu_box: dict[str, Any], plan_of: Any, faults_of: Any
) -> None:
    shared_gpu(gpu_box, **{"mem-fraction-static": 0.8, "max-total-tokens": 4096})
    assert [server["gpus"] for server in plan_of(gpu_box)["servers"]] == [[0], [0]]
    gpu_box["pd_servers"][0]["share_gpus"] = False
    assert faults_of(gpu_box) == {
        "pd_servers[1].gpus": "GPU 0 of box1 is already in prefill-0; "
        "give each GPU to one server, or write `share_gpus: true` at both"
    }


def test_servers_that_share_a_gpu_must_bound_their_memory(gpu_box: dict[str, Any], faults_of: Any) -> None:
    found = faults_of(shared_gpu(gpu_box, **{"mem-fraction-static": 0.8}))
    assert set(found) == {"pd_servers[0].args.max-total-tokens", "pd_servers[1].args.max-total-tokens"}
    assert "decode-0 shares GPU 0" in found["pd_servers[1].args.max-total-tokens"]
    assert len(faults_of(shared_gpu(gpu_box))) == 4


@pytest.mark.parametrize("written", ["no", "0", -1, 1.5, True])
def test_a_numa_node_is_a_node_or_unbound(gpu_box: dict[str, Any], faults_of: Any, written: Any) -> None:
    gpu_box["pd_servers"][0]["numa_node"] = written
    assert list(faults_of(gpu_box)) == ["pd_servers[0].numa_node"]
