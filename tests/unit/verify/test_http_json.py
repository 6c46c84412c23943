# SPDX-License-Identifier: Apache-2.0
"""The HTTP client: everything that can happen is a result."""

from __future__ import annotations

import socket
import threading

import pytest
from ansible_collections.pdlab.pdlab.plugins.module_utils import http_json

from tests.unit.verify.replay_server import replay


def test_json_comes_back_parsed_and_as_text() -> None:
    with replay() as server:
        server.routes["POST /echo"] = lambda body: (200, {"echo": body})
        reply = http_json.post(server.url + "/echo", {"é": [1]})
    assert reply.ok
    assert reply.body == {"echo": {"é": [1]}}
    assert reply.text.startswith("{")


def test_an_error_status_keeps_its_text() -> None:
    with replay() as server:
        server.routes["GET /x"] = (503, "not yet")
        reply = http_json.get(server.url + "/x")
    assert (reply.status, reply.ok, reply.body, reply.describe()) == (503, False, None, "HTTP 503: not yet")


def test_a_refused_connection_is_a_result() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        reply = http_json.get(f"http://127.0.0.1:{unused.getsockname()[1]}/", 2)
    assert reply.status is None
    assert "refuses the connection" in reply.describe()


def test_a_server_that_never_answers_ends_in_time() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        reply = http_json.get(f"http://127.0.0.1:{silent.getsockname()[1]}/", 0.2)
    assert reply.status is None
    assert "did not answer within 0.2 s" in reply.describe()


def test_a_server_that_does_not_speak_http_is_a_result() -> None:
    with socket.socket() as rude:
        rude.bind(("127.0.0.1", 0))
        rude.listen()

        def serve() -> None:
            connection, _ = rude.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(b"SSH-2.0-whatever\r\n")

        threading.Thread(target=serve, daemon=True).start()
        reply = http_json.get(f"http://127.0.0.1:{rude.getsockname()[1]}/", 2)
    assert reply.status is None
    assert reply.error


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/x"])
def test_only_http_is_spoken(url: str) -> None:
    assert http_json.get(url).status is None


def test_a_proxy_in_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with replay() as server:
        server.routes["GET /x"] = (200, {})
        assert http_json.get(server.url + "/x").ok


def test_a_long_answer_is_shortened_for_people_only() -> None:
    reply = http_json.Reply(500, None, "x" * 5000, None, 0.0)
    assert len(reply.describe()) < 400
