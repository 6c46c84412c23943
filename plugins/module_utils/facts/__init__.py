# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts of a target, a concern each. What cannot be read is None, which means unknown and never fine."""
