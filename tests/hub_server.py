# SPDX-License-Identifier: Apache-2.0
"""A small model hub on this machine: what of the hub's HTTP interface a download needs, and its bad days.

It speaks what huggingface_hub 1.33 asks for (`/api/models/…/refs`, `/revision/…`, `/tree/…` in pages, `/resolve/…`
with ranges) and answers faults with the hub's status codes and X-Error-Code headers. Large files are redirected to
a second address, as the hub redirects them to its content network, where no token may arrive.
"""

from __future__ import annotations

import dataclasses
import hashlib
import http.server
import json
import threading
import time
import urllib.parse
from collections.abc import Mapping
from typing import Any

PAGE = 3


def git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


@dataclasses.dataclass
class Repository:
    """Commits (40 hex digits) with their files, and the names that point to them. `token` None: public."""

    commits: dict[str, dict[str, bytes]]
    tags: dict[str, str] = dataclasses.field(default_factory=dict)
    branches: dict[str, str] = dataclasses.field(default_factory=dict)
    token: str | None = None
    gated: bool = False
    large: tuple[str, ...] = (".safetensors",)

    def commit(self, revision: str) -> str | None:
        found = self.tags.get(revision) or self.branches.get(revision) or revision
        return found if found in self.commits else None


@dataclasses.dataclass
class Weather:
    """What goes wrong. `cut_after`: bytes after which a connection for a file is cut, and how many times."""

    cut_after: dict[str, int] = dataclasses.field(default_factory=dict)
    cuts_left: int = 0
    ignores_ranges: bool = False
    bytes_per_s: float | None = None
    status: int | None = None
    corrupt: set[str] = dataclasses.field(default_factory=set)


@dataclasses.dataclass
class Request:
    """What arrived: enough to prove what was asked for, and where a token was shown."""

    path: str
    range: str | None
    token: str | None
    network: bool


class Hub:
    """The server; use it as a context manager. `url` is what pd_model.endpoint names."""

    def __init__(self, repositories: Mapping[str, Repository], address: str = "127.0.0.1") -> None:
        self.repositories = dict(repositories)
        self.weather = Weather()
        self.requests: list[Request] = []
        self.lock = threading.Lock()
        self._servers = [self._server(address, network=False), self._server(address, network=True)]
        self.url, self.network_url = (f"http://{address}:{server.server_address[1]}" for server in self._servers)

    def _server(self, address: str, network: bool) -> http.server.ThreadingHTTPServer:
        hub = self

        class Handler(_Handler):
            pass

        Handler.hub, Handler.network = hub, network
        server = http.server.ThreadingHTTPServer((address, 0), Handler)
        server.daemon_threads = True
        return server

    def __enter__(self) -> Hub:
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def asked(self, ending: str) -> list[Request]:
        """The requests for file content whose path ends so, as the content came (after a redirect, if any)."""
        return [request for request in self.requests if request.path.endswith(ending)]


class _Handler(http.server.BaseHTTPRequestHandler):
    hub: Hub
    network: bool
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(parts.path)
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None
        with self.hub.lock:
            self.hub.requests.append(Request(path, self.headers.get("Range"), token, self.network))
        if self.hub.weather.status:
            self._error(self.hub.weather.status)
        elif self.network:
            self._content(*path.split("/", 2)[2].split("@", 1))
        elif path.startswith("/api/models/"):
            owner, name, what, *rest = path.removeprefix("/api/models/").split("/", 3)
            self._api(f"{owner}/{name}", what, rest[0] if rest else "", parts.query, token)
        elif "/resolve/" in path:
            repo, _, rest = path[1:].partition("/resolve/")
            self._resolve(repo, *rest.split("/", 1), token)
        else:
            self._error(404)

    def _allowed(self, repo: str, token: str | None) -> Repository | None:
        repository = self.hub.repositories.get(repo)
        known = {each.token for each in self.hub.repositories.values()}
        if token is not None and token not in known:
            return self._error(401, message="Invalid credentials in Authorization header")
        if repository is None or (repository.token and token != repository.token and not repository.gated):
            return self._error(404 if token else 401, "RepoNotFound", "Repository not found")
        if repository.gated and token != repository.token:
            return self._error(401 if token is None else 403, "GatedRepo", "Access to this model is restricted.")
        return repository

    def _api(self, repo: str, what: str, revision: str, query: str, token: str | None) -> None:
        repository = self._allowed(repo, token)
        if repository is None:
            return
        if what == "refs":
            named = {"branches": repository.branches, "tags": repository.tags}
            kinds = {"branches": "heads", "tags": "tags"}
            refs = {
                key: [{"name": n, "ref": f"refs/{kinds[key]}/{n}", "targetCommit": c} for n, c in names.items()]
                for key, names in named.items()
            }
            return self._json({**refs, "converts": []})
        commit = repository.commit(revision)
        if commit is None:
            self._error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        elif what == "revision":
            self._json({"id": repo, "modelId": repo, "sha": commit, "siblings": []})
        elif what == "tree":
            self._tree(repository, commit, dict(urllib.parse.parse_qsl(query)))
        else:
            self._error(404)

    def _tree(self, repository: Repository, commit: str, query: dict[str, str]) -> None:
        entries: list[dict[str, Any]] = []
        for name, data in sorted(repository.commits[commit].items()):
            entry = {"type": "file", "path": name, "size": len(data), "oid": git_sha1(data)}
            if name.endswith(repository.large):
                digest = hashlib.sha256(data).hexdigest()
                entry["lfs"] = {"oid": digest, "size": len(data), "pointerSize": 134}
            entries.append(entry)
        start = int(query.get("cursor", 0))
        headers = {}
        if start + PAGE < len(entries):
            path = urllib.parse.urlsplit(self.path).path
            following = urllib.parse.urlencode({**query, "cursor": start + PAGE})
            headers["Link"] = f'<{self.hub.url}{path}?{following}>; rel="next"'
        self._json(entries[start : start + PAGE], headers)

    def _resolve(self, repo: str, revision: str, name: str, token: str | None) -> None:
        repository = self._allowed(repo, token)
        if repository is None:
            return
        commit = repository.commit(revision)
        if commit is None or name not in repository.commits[commit]:
            self._error(404, "EntryNotFound", "Entry not found")
        elif name.endswith(repository.large):
            self._answer(302, b"", {"Location": f"{self.hub.network_url}/{commit}/{repo}@{name}?signature=SIGNED"})
        else:
            self._bytes(name, repository.commits[commit][name])

    def _content(self, repo: str, name: str) -> None:
        commit = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path).split("/", 2)[1]
        self._bytes(name, self.hub.repositories[repo].commits[commit][name])

    def _bytes(self, name: str, data: bytes) -> None:
        weather, start = self.hub.weather, 0
        if name in weather.corrupt:
            data = data[:-1] + bytes([data[-1] ^ 1])
        asked = self.headers.get("Range")
        if asked and not weather.ignores_ranges:
            start = int(asked.removeprefix("bytes=").split("-")[0])
        body = data[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.end_headers()
        end = len(body)
        with self.hub.lock:
            if name in weather.cut_after and weather.cuts_left > 0 and weather.cut_after[name] < len(body):
                weather.cuts_left -= 1
                end = weather.cut_after[name]
        self._send(body[:end])
        if end < len(body):
            self.close_connection = True

    def _send(self, body: bytes) -> None:
        rate = self.hub.weather.bytes_per_s
        step = len(body) or 1 if rate is None else max(1, int(rate / 20))
        try:
            for begin in range(0, len(body), step):
                self.wfile.write(body[begin : begin + step])
                if rate is not None:
                    time.sleep(step / rate)
        except OSError:
            self.close_connection = True

    def _json(self, value: Any, headers: Mapping[str, str] | None = None) -> None:
        self._answer(200, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _error(self, status: int, code: str | None = None, message: str | None = None) -> None:
        headers = {"X-Error-Code": code, "X-Error-Message": message}
        self._answer(status, b"{}", {name: value for name, value in headers.items() if value})

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
