# SPDX-License-Identifier: Apache-2.0
"""One question to what runs now, over the OpenAI-compatible API."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

TIMEOUT_S = 120.0


class AskError(Exception):
    """Nobody answered, or the answer was an error; the message says what to do."""


def api_url(plan: Mapping[str, Any]) -> str:
    """Where the OpenAI-compatible API of a plan listens: the router, or the only server when there is none."""
    front = plan["router"] or plan["servers"][0]
    return f"{front['url']}/v1"


def ask_once(plan: Mapping[str, Any], question: str, max_tokens: int) -> str:
    """The answer's text. Raises AskError."""
    url = f"{api_url(plan)}/chat/completions"
    body = {
        "model": plan["model"]["served_name"],
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
        "max_tokens": max_tokens,
    }
    request = urllib.request.Request(  # noqa: S310 - the plan's URLs are http by construction
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=TIMEOUT_S) as reply:
            document = json.load(reply)
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")[:500]
        raise AskError(f"{url} answered {error.code}: {text}") from error
    except (OSError, ValueError) as error:
        raise AskError(f"nobody answers at {url} ({error}); start the servers with `pdlab deploy`") from error
    return str(document["choices"][0]["message"]["content"]).strip()
