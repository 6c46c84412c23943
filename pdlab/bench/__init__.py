# SPDX-License-Identifier: Apache-2.0
"""Benchmark reference data. What measures lies in plugins/ (module pd_bench), the sweeps in roles/benchmark/vars/."""
