# SPDX-License-Identifier: Apache-2.0
"""Files as a dying run leaves them: what can be read of them, and what is wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pdlab.plain_text import plain_text

Document = dict[str, Any]

LOG_TAIL_BYTES = 64 * 1024


def read_json(path: Path) -> tuple[Document | None, str | None]:
    """The JSON object in a file and what is wrong with it; (None, None) when there is no file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except FileNotFoundError:
        return None, None
    # These words stand in the report: neither a path of this machine nor the words of one Python version.
    except OSError as error:
        return None, f"cannot be read ({error.strerror})"
    except (ValueError, RecursionError):
        return None, "cannot be read (no JSON)"
    if not isinstance(data, dict):
        return None, f"holds a {type(data).__name__}, not an object"
    return data, None


def read_jsonl(path: Path) -> tuple[list[Document], list[str]]:
    """The objects of a JSON-lines file and its faults. A cut last line is what a dying writer leaves: no fault."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return [], []
    except OSError as error:
        return [], [f"cannot be read ({error.strerror})"]
    lines, faults = [], []
    rows = text.split("\n")
    for number, row in enumerate(rows, start=1):
        if not row.strip():
            continue
        try:
            data = json.loads(row)
        except (ValueError, RecursionError):
            if number < len(rows):
                faults.append(f"line {number} is not JSON")
            continue
        if isinstance(data, dict):
            lines.append(data)
        else:
            faults.append(f"line {number} is no object")
    return lines, faults


def tail(path: Path) -> str:
    """The last part of a text file, from the start of a line; empty when it cannot be read."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - LOG_TAIL_BYTES))
            data = stream.read()
    except OSError:
        return ""
    text = data.decode("utf-8", errors="replace")
    return plain_text(text.split("\n", 1)[-1] if size > LOG_TAIL_BYTES else text)
