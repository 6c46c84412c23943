# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of a target's operating system: read, changed, remembered, put back."""
