# SPDX-License-Identifier: GPL-3.0-or-later
"""A small HTTP client for JSON. A refused connection or a timeout is a result here, not an exception.

Proxies named in the environment are never used: the servers asked are pdlab's own, and a proxy that answers for
them would make a dead server look alive.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
import urllib.error
import urllib.request
from typing import Any, NamedTuple

DEFAULT_TIMEOUT_S = 10.0
SHOWN_CHARACTERS = 300


class Reply(NamedTuple):
    """What came back. `status` is None when nothing did, and `error` then says why.

    `body` is the parsed JSON, or None when the text is not JSON. `seconds` is the whole exchange.
    """

    status: int | None
    body: Any
    text: str
    error: str | None
    seconds: float

    @property
    def ok(self) -> bool:
        """True for a 2xx answer."""
        return self.status is not None and 200 <= self.status < 300

    def describe(self) -> str:
        """One line for a person: the status and the start of the text, or why there was no answer."""
        if self.status is None:
            return self.error or "no answer"
        text = " ".join(self.text.split())
        if len(text) > SHOWN_CHARACTERS:
            text = text[:SHOWN_CHARACTERS] + "…"
        return f"HTTP {self.status}" + (f": {text}" if text else "")


# An empty ProxyHandler replaces the one that reads the environment.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get(url: str, timeout_s: float = DEFAULT_TIMEOUT_S, api_key: str | None = None) -> Reply:
    """GET `url`. `timeout_s` bounds each socket operation."""
    return _exchange(urllib.request.Request(url, method="GET"), timeout_s, api_key)


def post(url: str, payload: Any = None, timeout_s: float = DEFAULT_TIMEOUT_S, api_key: str | None = None) -> Reply:
    """POST `payload` as JSON to `url`; without one, an empty body. `timeout_s` bounds each socket operation."""
    data = b"" if payload is None else json.dumps(payload).encode()
    request = urllib.request.Request(url, data=data, method="POST")
    request.add_header("Content-Type", "application/json")
    return _exchange(request, timeout_s, api_key)


def _exchange(request: urllib.request.Request, timeout_s: float, api_key: str | None) -> Reply:
    started = time.monotonic()
    if request.type not in ("http", "https"):
        return Reply(None, None, "", f"{request.full_url} is not an http or https address", 0.0)
    if api_key:
        request.add_header("Authorization", "Bearer " + api_key)
    status: int | None = None
    try:
        try:
            with _OPENER.open(request, timeout=timeout_s) as response:
                status, raw = response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                status, raw = error.code, error.read()
    except (OSError, http.client.HTTPException) as error:
        # Also when only the body failed: half an answer is none.
        return Reply(None, None, "", _reason(request, error, timeout_s), time.monotonic() - started)
    text = raw.decode("utf-8", "replace")
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    return Reply(status, body, text, None, time.monotonic() - started)


def _reason(request: urllib.request.Request, error: Exception, timeout_s: float) -> str:
    cause: Any = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, (socket.timeout, TimeoutError)):
        return f"{request.host} did not answer within {timeout_s:g} s"
    if isinstance(cause, ConnectionRefusedError):
        return f"{request.host} refuses the connection (nothing listens there)"
    if isinstance(cause, http.client.HTTPException):
        return f"{request.host} closed the connection or does not speak HTTP ({type(cause).__name__})"
    return f"{request.host} cannot be reached: {cause}"
