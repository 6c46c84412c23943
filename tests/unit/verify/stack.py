# SPDX-License-Identifier: Apache-2.0
"""A deployment made of recorded answers: prefill, its bootstrap server, decode, router; each fault is one change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tests.unit.verify.replay_server import Answer, ReplayServer, recorded, replay

ALL_RANKS = "GET /route?prefill_dp_rank=-1&prefill_cp_rank=-1&target_tp_rank=-1&target_pp_rank=-1"
RANK_0 = "GET /route?prefill_dp_rank=0&prefill_cp_rank=0&target_tp_rank=0&target_pp_rank=0"
MB_SUM = "sglang:kv_transfer_total_mb_sum"
MB_COUNT = "sglang:kv_transfer_total_mb_count"


class Stack:
    """The four servers and what they answer; a generation moves the prefill's counters as the engine does."""

    def __init__(self, prefill: ReplayServer, bootstrap: ReplayServer, decode: ReplayServer, router: ReplayServer):
        self.prefill, self.bootstrap, self.decode, self.router = prefill, bootstrap, decode, router
        self.transfers = 4
        self.failed = 0
        self.moves = True
        self.generation: Answer = (200, recorded("generate-input-ids.json"))
        for server, role in ((prefill, "prefill"), (decode, "decode")):
            info = recorded(f"server_info-{role}.json")
            info["port"] = server.port
            server.routes["GET /ready"] = (200, "")
            server.routes["GET /server_info"] = (200, info)
            server.routes["POST /flush_cache"] = (200, "Cache flushed.\n")
        prefill.routes["GET /metrics"] = lambda _body: (200, self._prefill_metrics())
        decode.routes["GET /metrics"] = (200, recorded("metrics-decode.txt"))
        bootstrap.routes[ALL_RANKS] = (200, {**recorded("route-all-ranks.json"), "prefill_http_port": prefill.port})
        bootstrap.routes[RANK_0] = (200, {**recorded("route-rank-0.json"), "rank_port": bootstrap.port})
        router.routes["GET /readiness"] = (200, recorded("router-readiness.json"))
        router.routes["GET /workers"] = lambda _body: (200, self.workers)
        router.routes["POST /generate"] = self._generate
        self.workers = recorded("router-workers.json")
        self.workers["workers"][0].update(url=prefill.url, bootstrap_port=bootstrap.port)
        self.workers["workers"][1].update(url=decode.url)

    def change(self, server: ReplayServer, key: str, **values: Any) -> None:
        """Put other values into a JSON answer."""
        route = server.routes[key]
        assert not callable(route)
        server.routes[key] = (route[0], {**route[1], **values})

    def servers(self) -> list[dict[str, Any]]:
        """The servers as the plan has them."""
        common = {"host": "localhost", "address": "127.0.0.1", "tp": 1, "model_path": "/srv/models/canary"}
        environment = {"SGLANG_HOST_IP": "127.0.0.1"}
        prefill = {"name": "prefill-0", "role": "prefill", "bootstrap_port": self.bootstrap.port}
        decode = {"name": "decode-0", "role": "decode", "bootstrap_port": None}
        return [
            {**common, **prefill, "port": self.prefill.port, "url": self.prefill.url, "environment": environment},
            {**common, **decode, "port": self.decode.port, "url": self.decode.url, "environment": environment},
        ]

    def router_of_plan(self) -> dict[str, Any]:
        """The router as the plan has it."""
        workers = [{"name": server["name"], "role": server["role"]} for server in self.servers()]
        return {"name": "router", "url": self.router.url, "workers": workers}

    def _generate(self, body: Any) -> Answer:
        status, answer = self.generation
        if status == 200 and self.moves:
            self.transfers += 1
        if status != 200 or not isinstance(answer, dict):
            return status, answer
        prompt_tokens = len(body["text"].split()) if "text" in body else len(body["input_ids"])
        return status, {**answer, "meta_info": {**answer["meta_info"], "prompt_tokens": prompt_tokens}}

    def _prefill_metrics(self) -> str:
        lines = []
        for line in recorded("metrics-prefill.txt").splitlines():
            name = line.split("{")[0]
            if name == MB_COUNT:
                line = f"{line.rsplit(' ', 1)[0]} {float(self.transfers)}"
            if name == MB_SUM:
                line = f"{line.rsplit(' ', 1)[0]} {self.transfers * 0.0625}"
            lines.append(line)
        labels = '{engine_type="prefill",model_name="canary",pp_rank="0",tp_rank="0"}'
        return "\n".join([*lines, f"sglang:num_transfer_failed_reqs_total{labels} {float(self.failed)}"]) + "\n"


@contextmanager
def healthy_stack() -> Iterator[Stack]:
    """A stack with nothing wrong."""
    with ExitStack() as servers:
        yield Stack(*(servers.enter_context(replay()) for _ in range(4)))
