# SPDX-License-Identifier: Apache-2.0
"""A recording of a box, from this machine or from a host of the inventory, into a directory."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from ansible_collections.pdlab.pdlab.plugins.module_utils.facts import recorder

from pdlab.runner import Outcome


class RecordError(Exception):
    """There is no recording, or it cannot be written; the message says what to do."""


def record_here() -> dict[str, str]:
    """{path in the recording: text} of this machine. Raises RecordError."""
    if sys.platform != "linux":
        raise RecordError("only Linux can be recorded; name a host of the inventory: pdlab record-box HOST -o DIR")
    return recorder.record(time.time())


def record_host(outcome: Outcome, host: str) -> dict[str, str]:
    """What the playbook record_box brought from a host. Raises RecordError."""
    found = [result.result["recording"] for result in outcome.of_action("record_box") if "recording" in result.result]
    if len(found) > 1:
        raise RecordError(f"{host} are {len(found)} hosts of this inventory; name one")
    if not found:
        raise RecordError(f"{host} was not recorded: is it a host of this inventory, and can it be reached?")
    return dict(found[0])


def save(recording: dict[str, str], directory: Path) -> None:
    """Write a recording into a directory that is new or empty. Raises RecordError."""
    try:
        recorder.write_recording(recording, str(directory))
    except OSError as error:
        raise RecordError(f"{error.filename}: {error.strerror}; name another directory with -o") from error
