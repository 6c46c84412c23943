# SPDX-License-Identifier: Apache-2.0
"""Stands where the router would, at its module name."""

import serving

serving.serve("8000")
