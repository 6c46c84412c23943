# SPDX-License-Identifier: Apache-2.0
"""benchmarks/role_restart.py on stand-ins: a server that something else starts again, and a router before it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from benchmarks import role_restart

SERVER = """
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    def say(self, document):
        body = json.dumps(document).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def do_GET(self): self.say({})
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.say({"text": "x", "meta_info": {"completion_tokens": 8}})
    def log_message(self, *_): pass
ThreadingHTTPServer.allow_reuse_address = True
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[-1])), Handler).serve_forever()
"""


class Deployment:
    """One server that stands for both roles, kept by a loop in the shell, and a router that hands requests to it."""

    def __init__(self, folder: Path, ports: list[int], fails_after_start: int = 0) -> None:
        script = folder / "sglang_standin.py"
        script.write_text(SERVER)
        self.port, self.router_port = ports
        self.failing, self.starts = fails_after_start, 0
        self.argv = [
            sys.executable,
            str(script),
            "-m",
            "sglang.launch_server",
            "--model-path",
            "/m",
            "--port",
            str(self.port),
        ]
        loop = f"while :; do setsid -w {' '.join(self.argv)}; sleep 0.5; done"
        self.keeper = subprocess.Popen(["sh", "-c", loop], start_new_session=True, stderr=subprocess.DEVNULL)
        deployment, target = self, f"http://127.0.0.1:{self.port}"

        class Router(BaseHTTPRequestHandler):
            was_down = False

            def do_GET(self) -> None:
                self.answer(200, b"{}")

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                try:
                    with urlopen(f"{target}/ready", timeout=2):
                        pass
                except OSError:
                    Router.was_down = True
                    return self.answer(503, b'{"error": "no worker"}')
                if Router.was_down and deployment.failing > 0:
                    deployment.failing -= 1
                    return self.answer(500, b'{"error": "circuit"}')
                return self.answer(200, json.dumps({"text": "x", "meta_info": {"completion_tokens": 8}}).encode())

            def answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.router = ThreadingHTTPServer(("127.0.0.1", self.router_port), Router)
        threading.Thread(target=self.router.serve_forever, daemon=True).start()

    def plan(self, tp: int = 4) -> dict[str, Any]:
        server = {"address": "127.0.0.1", "port": self.port, "tp": tp, "argv": self.argv}
        return {
            "servers": [{**server, "name": f"{role}-0", "role": role} for role in ("prefill", "decode")],
            "router": {
                "address": "127.0.0.1",
                "port": self.router_port,
                "prometheus_port": self.router_port,
                "argv": ["x", "--health-check-endpoint", "/ready"],
            },
        }

    def end(self) -> None:
        self.router.shutdown()
        os.killpg(self.keeper.pid, signal.SIGKILL)
        self.keeper.wait()
        with contextlib.suppress(SystemExit, ProcessLookupError):
            os.killpg(os.getpgid(role_restart.listener(self.port)), signal.SIGKILL)


@pytest.fixture
def deployed(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Deployment]:
    import socket

    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        ports = [one.getsockname()[1], two.getsockname()[1]]
    made = Deployment(tmp_path, ports, getattr(request, "param", 0))
    try:
        for _ in range(100):
            if role_restart.call(f"http://127.0.0.1:{made.port}/ready", limit_s=1).status == 200:
                break
            time.sleep(0.1)
        yield made
    finally:
        made.end()


def restarted(deployed: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, dict[str, Any]]:
    monkeypatch.setattr(role_restart, "planned", lambda *_: deployed.plan())
    monkeypatch.setattr(role_restart, "CALM_S", 1.0)
    arguments = ["-i", "x", "--may-kill", "--roles", "decode", "--before", "0.5", "--concurrency", "2", "--after", "5"]
    status = role_restart.main([*arguments, "--json", str(tmp_path / "result.json")])
    (cell,) = json.loads((tmp_path / "result.json").read_text())["cells"]
    return status, cell


def test_a_server_that_its_service_brings_back_is_inside_the_bound_and_what_was_lost_is_counted(
    deployed: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, cell = restarted(deployed, tmp_path, monkeypatch)
    assert status == 0 and cell["recovered"] and cell["inside_bound"]
    assert cell["lost_before_kill"] == 0
    assert 0 < cell["while_down"]["lost"] <= cell["while_down"]["requests"]
    assert cell["after_ready"]["lost"] <= cell["engines_own_bound"] == 5
    assert cell["down_s"] > 0.5
    assert "decode (decode-0, TP 4): down" in capsys.readouterr().out


@pytest.mark.parametrize("deployed", [20], indirect=True)
def test_a_role_that_is_back_and_still_loses_more_requests_than_the_engine_allows_itself_is_outside(
    deployed: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, cell = restarted(deployed, tmp_path, monkeypatch)
    assert status == 1 and not cell["inside_bound"]
    assert cell["after_ready"]["lost"] > 5
    assert cell["failed_after_ready_before_first_success"] > 5


def test_nothing_is_killed_unasked_and_no_stranger_ever(deployed: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(role_restart, "planned", lambda *_: deployed.plan())
    with pytest.raises(SystemExit, match="add --may-kill"):
        role_restart.main(["-i", "x"])
    mine = role_restart.Restart({**deployed.plan()}, "decode", role_restart.parser().parse_args(["-i", "x"]))
    mine.server = {**mine.server, "port": deployed.router_port}  # this test's own process
    with pytest.raises(SystemExit, match="is no SGLang server of its own session"):
        mine.kill()


def test_a_server_of_another_deployment_on_the_same_port_is_left_alone(deployed: Deployment) -> None:
    plan = deployed.plan()
    for server in plan["servers"]:
        server["argv"] = [*server["argv"][:4], "--model-path", "/other", *server["argv"][6:]]
    other = role_restart.Restart(plan, "decode", role_restart.parser().parse_args(["-i", "x"]))
    before = role_restart.listener(deployed.port)
    with pytest.raises(
        SystemExit, match=r"is not decode-0 of this inventory: it runs without /other\. Nothing was killed"
    ):
        other.run()
    assert role_restart.listener(deployed.port) == before


def test_a_deployment_without_both_roles_is_refused(deployed: Deployment) -> None:
    plan = deployed.plan()
    plan["servers"] = [{**plan["servers"][0], "role": "colocated"}]
    with pytest.raises(SystemExit, match="no prefill, decode and router"):
        role_restart.Restart(plan, "decode", role_restart.parser().parse_args(["-i", "x"]))


def test_the_readiness_that_is_asked_is_the_routers() -> None:
    assert role_restart.ready_path({"argv": ["a", "--health-check-endpoint", "/ready"]}) == "/ready"
    assert role_restart.ready_path({"argv": ["a"]}) == "/health"
