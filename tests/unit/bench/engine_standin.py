# SPDX-License-Identifier: Apache-2.0
"""Stands where servers and a router would: counts tokens, keeps a prefix cache, shows metrics."""

from __future__ import annotations

import http.server
import json
import threading
from typing import Any


class Server(http.server.ThreadingHTTPServer):
    """One server, or a router in front of `behind`. `events` tells what came, in order, for all of them."""

    daemon_threads = True

    def __init__(self, name: str, role: str, events: list[str], behind: tuple[Server, ...] = ()) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.name, self.role, self.events, self.behind = name, role, events, behind
        self.lock = threading.Lock()
        self.counters = {"prompt_tokens_total": 0, "generation_tokens_total": 0, "cached_tokens_total": 0}
        self.counters["num_requests_total"] = 0
        self.cache: set[tuple[int, ...]] = set()
        self.flushes = True
        self.broken = False
        self.in_flight = self.most_in_flight = 0
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def worker(self) -> dict[str, Any]:
        return {"name": self.name, "url": self.url, "role": self.role, "bootstrap_port": 8998}

    def answer(self, body: dict[str, Any]) -> None:
        """Count one request, as the engine does."""
        ids, tokens = tuple(body["input_ids"]), body["sampling_params"]["max_new_tokens"]
        with self.lock:
            self.counters["num_requests_total"] += 1
            self.counters["prompt_tokens_total"] += len(ids)
            self.counters["generation_tokens_total"] += 1 if self.role == "prefill" else tokens
            self.counters["cached_tokens_total"] += len(ids) if ids in self.cache else 0
            self.cache.add(ids)
        for server in self.behind:
            server.answer(body)


class Answers(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        if self.path == "/metrics":
            lines = [f'sglang:{name}{{engine_type="x"}} {value}' for name, value in self.server.counters.items()]
            self._answer(200, "\n".join([*lines, "sglang:num_running_reqs 3.0", "sglang:token_usage 0.5"]))
        elif self.path == "/server_info":
            self._answer(200, json.dumps({"max_running_requests": 48, "internal_states": [{}]}))
        else:
            self._answer(404, "")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        server = self.server
        if self.path.startswith("/flush_cache"):
            server.events.append(f"flush {server.name}")
            server.cache.clear()
            self._answer(200 if server.flushes else 400, "")
        elif server.broken:
            self._answer(503, "no")
        else:
            with server.lock:
                server.in_flight += 1
                server.most_in_flight = max(server.most_in_flight, server.in_flight)
            if "bootstrap_room" in body:
                server.events.append(f"pair {server.name} {body['bootstrap_room']}")
            else:
                server.events.append(f"request {server.name}")
            threading.Event().wait(0.05)
            server.answer(body)
            with server.lock:
                server.in_flight -= 1
            self._answer(200, json.dumps({"text": "x", "meta_info": {}}))

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        pass
