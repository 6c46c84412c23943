# SPDX-License-Identifier: Apache-2.0
"""Text from logs and models, made harmless for a terminal and a page."""

from __future__ import annotations

import re

# ANSI escape sequences, then what is left of the control characters but for line ends and tabs.
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-_]|[\x00-\x08\x0b-\x1f\x7f]")


def plain_text(text: str) -> str:
    """Text of a log or an answer without colours and other control codes, which would act on a reader's terminal."""
    return _CONTROL.sub("", text)
