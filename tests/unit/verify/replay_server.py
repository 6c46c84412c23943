# SPDX-License-Identifier: Apache-2.0
"""A small HTTP server that answers with bodies recorded from a real engine and router."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "data" / "engine-0.5.23"

# A fixed answer, or a function of the request's parsed body that gives one. A dict or list is sent as JSON.
Answer = tuple[int, Any]
Route = Answer | Callable[[Any], Answer]


def recorded(name: str) -> Any:
    """A recorded body: JSON parsed, anything else as text."""
    text = (DATA / name).read_text(encoding="utf-8")
    return json.loads(text) if name.endswith(".json") else text


class ReplayServer:
    """Answers `routes` by "METHOD /path", with the query string first and then without; 404 otherwise."""

    def __init__(self) -> None:
        self.routes: dict[str, Route] = {}
        self.requests: list[tuple[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                raw = self.rfile.read(length)
                body = json.loads(raw) if raw else None
                key = f"{self.command} {self.path}"
                outer.requests.append((key, body))
                route = outer.routes.get(key) or outer.routes.get(key.split("?")[0]) or (404, "")
                status, content = route(body) if callable(route) else route
                data = (content if isinstance(content, str) else json.dumps(content)).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = _answer

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        """Stop listening: connections are refused from now on."""
        self._server.shutdown()
        self._server.server_close()

    def asked(self, key: str) -> list[Any]:
        """The bodies of the requests for "METHOD /path"."""
        return [body for seen, body in self.requests if seen.split("?")[0] == key]


@contextmanager
def replay() -> Iterator[ReplayServer]:
    """A server for one test."""
    server = ReplayServer()
    try:
        yield server
    finally:
        server.close()
