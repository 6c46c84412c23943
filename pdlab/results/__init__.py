# SPDX-License-Identifier: Apache-2.0
"""A run's results, typed: the document that `pdlab report --json` prints, and how it follows from a run folder."""
