# SPDX-License-Identifier: Apache-2.0
"""Stands where the engine would, at its module name."""

import serving

serving.serve()
