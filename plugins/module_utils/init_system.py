# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether systemd keeps the services of this host."""

from __future__ import annotations

import os


def booted_with_systemd() -> bool:
    """Tell whether PID 1 is systemd (the test of sd_booted(3))."""
    return os.path.isdir("/run/systemd/system")


def can_use_systemd() -> bool:
    """Tell whether this process may write and start system units: systemd is PID 1, and we are root."""
    return booted_with_systemd() and os.geteuid() == 0
