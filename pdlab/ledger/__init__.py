# SPDX-License-Identifier: Apache-2.0
"""The ledger of a run: what its folder held when it ended, and from which raw line each figure comes."""
