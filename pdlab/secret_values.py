# SPDX-License-Identifier: Apache-2.0
"""Values that look like secrets, hidden before a command is shown: reports are made to be passed on. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

HIDDEN = "(hidden)"

_SECRET = re.compile(r"token|secret|passw|credential|api[-_]?key|access[-_]?key|auth", re.IGNORECASE)
_JSON_TEXT = re.compile(r'"([^"\\]+)"\s*:\s*"(?:[^"\\]|\\.)*"')
# Words of the engine's vocabulary that the pattern above would take for secrets.
_HARMLESS = re.compile(r"tokens?[-_]|[-_]tokens|tokenize|tokenizer", re.IGNORECASE)


def without_secrets(argv: Sequence[str]) -> list[str]:
    """The same items with the value after a secret's option (`--api-key VALUE`, `--api-key=VALUE`) hidden."""
    shown: list[str] = []
    hide_next = False
    for item in _without_secret_variables(argv):
        option, separator, _value = item.partition("=")
        if hide_next and not item.startswith("--"):
            shown.append(HIDDEN)
        elif item.startswith("--") and separator and is_secret(option):
            shown.append(f"{option}={HIDDEN}")
        else:
            shown.append(item)
        hide_next = item.startswith("--") and not separator and is_secret(item)
    return shown


def _without_secret_variables(argv: Sequence[str]) -> Iterator[str]:
    """The same items with the values of secret variables hidden: `-e name=VALUE`, and in `-e '{"name": "VALUE"}'`."""
    variables = False
    for item in argv:
        name, equals, _value = item.partition("=")
        if variables and equals and is_secret(name) and not name.lstrip().startswith("{"):
            yield f"{name}={HIDDEN}"
        elif variables:
            yield _JSON_TEXT.sub(lambda one: f'"{one[1]}": "{HIDDEN}"' if is_secret(one[1]) else one[0], item)
        else:
            yield item
        variables = item in ("-e", "--extra-vars")


def is_secret(name: str) -> bool:
    """Whether an option or variable of this name holds a secret."""
    return bool(_SECRET.search(_HARMLESS.sub("", name)))
