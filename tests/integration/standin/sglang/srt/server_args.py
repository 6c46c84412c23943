# SPDX-License-Identifier: Apache-2.0
"""The flags that the tests' servers are given, as the engine's own parser would list them."""

from __future__ import annotations

import argparse


class ServerArgs:
    """Stands where the engine's does."""

    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser) -> None:
        for name in ("model-path", "served-model-name", "host", "device", "random-seed"):
            parser.add_argument(f"--{name}")
        for name in ("port", "nccl-port", "tp-size", "page-size"):
            parser.add_argument(f"--{name}", type=int)
        parser.add_argument("--enable-metrics", action="store_true")
