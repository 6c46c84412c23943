# SPDX-License-Identifier: Apache-2.0
"""What an analysis does instead of guessing."""

from __future__ import annotations


class RefusedError(ValueError):
    """The numbers do not support what was asked. The message says why and what measurement would."""
