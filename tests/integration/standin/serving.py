# SPDX-License-Identifier: Apache-2.0
"""A process that stands where an engine would, for tests of the service managers only: it serves nothing.

It answers /ready, /health and /liveness, and /echo with its own argv and environment as JSON. Variables steer it:
STANDIN_CRASH (print this, with \\n for a line break, and die), STANDIN_CRASH_AFTER_S, STANDIN_READY_AFTER_S, STANDIN_CHILD (leave a child that
outlives it), STANDIN_NO_READY (this "version" does not know /ready), STANDIN_METRICS (a file that /metrics answers with;
to who asks for OpenMetrics first, with the names that prometheus_client 0.26 then writes). As a router it keeps in
/workers what is posted there.
"""

from __future__ import annotations

import http.server
import json
import os
import socket
import subprocess
import sys
import time

# What the kernel was given, before Python made anything of it.
with open("/proc/self/cmdline", "rb") as _stream:
    ARGV = _stream.read().decode().split("\0")[:-1]
with open("/proc/self/environ", "rb") as _stream:
    ENVIRONMENT = dict(item.split("=", 1) for item in _stream.read().decode().split("\0") if item)
BEGAN = time.monotonic()
WORKERS: list[dict[str, object]] = []


def option(name: str, default: str) -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/metrics" and os.environ.get("STANDIN_METRICS"):
            with open(os.environ["STANDIN_METRICS"], "rb") as stream:
                text = stream.read()
            accepted = self.headers.get("Accept", "")
            if "openmetrics" in accepted and "allow-utf-8" not in accepted:
                text = text.replace(b"sglang:", b"sglang_")
            self.answer(200, text, "text/plain; version=0.0.4; charset=utf-8")
            return
        late = time.monotonic() - BEGAN < float(os.environ.get("STANDIN_READY_AFTER_S", "0"))
        if self.path == "/echo":
            status, body = 200, {"argv": ARGV, "environment": ENVIRONMENT, "pid": os.getpid()}
        elif self.path == "/workers":
            status, body = 200, {"workers": WORKERS}
        elif self.path == "/ready" and os.environ.get("STANDIN_NO_READY"):
            status, body = 404, {}
        elif self.path in ("/ready", "/health", "/liveness"):
            status, body = (503 if late else 200), {}
        else:
            status, body = 404, {}
        self.answer(status, json.dumps(body).encode(), "application/json")

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", "0"))
        WORKERS.append(json.loads(self.rfile.read(length)))
        self.answer(202, b"{}", "application/json")

    def answer(self, status: int, data: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET
    allow_reuse_address = True


def serve(default_port: str = "30000") -> None:
    print("\x1b[32mstand-in starts\x1b[0m", flush=True)
    if os.environ.get("STANDIN_CHILD"):
        # In a process group of its own parent, as an engine's workers are.
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print(f"child {child.pid}", flush=True)
    if "STANDIN_CRASH" in os.environ:
        time.sleep(float(os.environ.get("STANDIN_CRASH_AFTER_S", "0")))
        print(os.environ["STANDIN_CRASH"].replace("\\n", "\n"), file=sys.stderr, flush=True)
        raise SystemExit(3)
    Server((option("--host", "127.0.0.1"), int(option("--port", default_port))), Handler).serve_forever()
