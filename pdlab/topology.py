# SPDX-License-Identifier: Apache-2.0
"""The plan, typed: what runs where. `Plan.model_validate(plan)` takes what the resolver made.

The rules of an inventory are not repeated here: they live in the collection's module_utils/topology.py, which
both `ansible-playbook` and pdlab use. These models hold the published shape and refuse anything else.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Port = Annotated[int, Field(ge=1, le=65535)]
Scalar = str | bool | int | float | None
Flags = dict[str, Scalar | list[Any] | dict[str, Any]]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Model(_Model):
    """The checkpoint that all servers load. `repo` to `size_gib` belong to the source hub, `heads` to the canary.

    `architecture` and `quantization` are what the inventory declares, null where it does not. `weights` dummy: the
    engine makes random ones (load-format), which cost what real ones do and answer nothing.
    """

    source: Literal["canary", "local", "hub"]
    path: str
    served_name: str
    revision: str | None = None
    architecture: str | None = None
    repo: str | None = None
    endpoint: str | None = None
    exclude: list[str] = []
    size_gib: float | None = None
    quantization: Literal["modelopt_nvfp4", "mxfp4", "fp8", "none"] | None = None
    warm_up: bool = False
    heads: int | None = None
    weights: Literal["files", "dummy"] = "files"


class Host(_Model):
    """A machine: the address at which others reach it, and where pdlab lives on it, and as whom its servers run.

    `engine_lock` null means the lock that goes with the device: cpu or cuda13.
    `engine_existing`: pdlab did not build the engine. `engine_pythonpath`: folders before the interpreter's own.
    `engine_env`: variables without which that engine cannot be imported.
    """

    address: str | None
    root: str
    engine_python: str
    engine_lock: str | None = None
    service_manager: Literal["auto", "systemd", "supervisor"] = "auto"
    engine_pythonpath: list[str] = []
    engine_env: dict[str, str] = {}
    engine_existing: bool = False
    local: bool
    user: str | None = None


class _Process(_Model):
    """What every part has: the command line, the environment, the unit that runs it, its log, its HTTP address."""

    name: str
    host: str
    address: str
    port: Port
    args: Flags
    env: Flags
    python: str
    home: str
    user: str | None = None
    argv: list[str]
    environment: dict[str, str]
    unit: str
    log: str
    url: str


class Server(_Process):
    """An SGLang server. `transfer_backend` is null for a colocated server.

    `numa_node` null means unbound, or not known yet when `numa_pending`: then the box decides by the server's GPUs.
    """

    role: Literal["prefill", "decode", "colocated"]
    bootstrap_port: Port | None
    nccl_port: Port
    gpus: list[int]
    tp: Annotated[int, Field(ge=1)]
    numa_node: int | None
    numa_pending: bool
    numa_reason: str
    device: Literal["cpu", "cuda"]
    model_path: str
    served_name: str
    transfer_backend: Literal["nixl"] | None


class Worker(_Model):
    """A server as the router knows it."""

    name: str
    role: Literal["prefill", "decode", "colocated"]
    url: str
    bootstrap_port: Port | None


class Router(_Process):
    """The router in front of all servers."""

    role: Literal["router"]
    prometheus_host: str
    prometheus_port: Port
    policy: str
    workers: list[Worker]


class Answer(_Model):
    """A prompt and the answer that a sound deployment gives."""

    prompt: str
    expected: str


class Oracle(_Model):
    """Whether and at which prompt lengths (tokens) PD is compared with the colocated reference."""

    enabled: bool
    lengths: Literal["auto"] | list[int]
    output_tokens: int | None = None
    tolerance: float | None = None


class Limits(_Model):
    """What a user of a workload still accepts, ms a request."""

    ttft_ms: Annotated[float, Field(gt=0)] | None = None
    tpot_ms: Annotated[float, Field(gt=0)] | None = None
    e2e_ms: Annotated[float, Field(gt=0)] | None = None


class Point(_Model):
    """One load of a workload: `concurrency` in a closed loop, `rate_s` arrivals a second in an open one.

    Lengths in tokens, `limit_s` in seconds. Prompts of a shared prefix begin with one of `prefix_groups` times
    `prefix_len` tokens, which count towards `input_len`.
    """

    label: str
    workload: str | None = None
    loop: Literal["closed", "open"] = "closed"
    concurrency: Annotated[int, Field(ge=1)] | None
    rate_s: Annotated[float, Field(gt=0)] | None = None
    prompts: Annotated[int, Field(ge=1)]
    input_len: Annotated[int, Field(ge=1)]
    output_len: Annotated[int, Field(ge=1)]
    range_ratio: Annotated[float, Field(ge=0, le=1)]
    seed: int
    limit_s: Annotated[float, Field(gt=0)]
    dataset: Literal["random-ids", "shared-prefix"] = "random-ids"
    prefix_groups: Annotated[int, Field(ge=1)] | None = None
    prefix_len: Annotated[int, Field(ge=1)] | None = None
    limits: list[Limits] = Field(default_factory=list)


class Benchmark(BaseModel):
    """What is measured: its name, workloads and points, and whatever else the preset of a lone workload says."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str
    workloads: list[str] = Field(default_factory=list)
    points: list[Point]


class Offer(_Model):
    """A variable that could be set for a server and is not; writing it into the server's env takes it."""

    server: str
    name: str
    value: str
    why: str
    source: str


class Collectives(_Model):
    """The profile of the NCCL, UCX and SGLang environment, whether the inventory names it, and what is offered."""

    profile: Literal["pcie", "nvlink", "off"]
    declared: bool
    offers: list[Offer]


class RuleVerdict(_Model):
    """What an engine rule says of a server. `flags` were added; `needs` names what an undecided rule waits for."""

    server: str
    rule: str
    effect: Literal["allow", "warn", "correct", "refuse"]
    state: Literal["holds", "undecided", "off"]
    seen: str
    why: str
    cure: str | None
    source: str
    flags: Flags
    needs: list[str]


class EngineRules(_Model):
    """The engine rules as far as the inventory decides them. `sglang` is the locked version by host."""

    sglang: dict[str, str | None]
    compute_capability: str | None
    off: list[str]
    verdicts: list[RuleVerdict]


class ArmServer(_Model):
    """A server of an arm."""

    name: str
    role: Literal["prefill", "decode", "colocated"]
    host: str
    gpus: list[int]
    port: Port
    nccl_port: Port
    bootstrap_port: Port | None


class Arm(_Model):
    """What one arm runs. `router`: its host, null without one. `differs`: settings that differ on purpose.

    `fingerprint` changes with anything that decides how fast the arm is.
    """

    name: str
    servers: list[ArmServer]
    router: str | None
    differs: list[str]
    fingerprint: str


class Monitoring(_Model):
    """Prometheus: whether pdlab installs one, on which host and where it listens, and how often it asks.

    `gpu_exporter_port`: where dcgm-exporter listens on each host; null: nowhere.
    """

    install: bool = False
    host: str | None = None
    address: str = "127.0.0.1"
    port: Port = 9090
    interval_s: int = 5
    retention_days: int = 15
    gpu_exporter_port: Port | None = None


class Plan(_Model):
    """What runs where, with every default derived. `arm`: whose plan it is, null when it is no arm's."""

    schema_version: Literal[1]
    rehearsal: bool
    device: Literal["cpu", "cuda"]
    model: Model
    hosts: dict[str, Host]
    servers: Annotated[list[Server], Field(min_length=1)]
    router: Router | None
    reference: Server | None
    collectives: Collectives
    engine_rules: EngineRules
    answers: list[Answer]
    oracle: Oracle
    benchmark: Benchmark
    arm: str | None = None
    arms: list[Arm] = []
    monitoring: Monitoring = Monitoring()
