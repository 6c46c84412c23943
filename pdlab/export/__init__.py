# SPDX-License-Identifier: Apache-2.0
"""Results as files for other programs: a table with one row a point, and reports in llm-d's schema."""
