# SPDX-License-Identifier: GPL-3.0-or-later
"""What a server of pdlab can be."""

from __future__ import annotations

PREFILL = "prefill"
DECODE = "decode"
COLOCATED = "colocated"
ROUTER = "router"
ENGINE_ROLES = (PREFILL, DECODE, COLOCATED)
