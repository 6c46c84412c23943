# SPDX-License-Identifier: Apache-2.0
"""From measurements to bounds, fits, predictions and comparisons. Pure functions, no I/O.

`sweep.analyse` puts the parts together; docs/analysis.md says what is computed, from what, and what is refused.
"""
