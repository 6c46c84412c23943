# SPDX-License-Identifier: Apache-2.0
"""`python -m pdlab` is `pdlab`."""

from pdlab.cli import main

main()
