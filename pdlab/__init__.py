# SPDX-License-Identifier: Apache-2.0
"""pdlab: SGLang prefill/decode disaggregation on bare metal, deployed, proven, measured and reported."""

__version__ = "0.1.0"
