# SPDX-License-Identifier: Apache-2.0
"""report.py RUN: seconds that report.html and findings.md of a run take in a fresh process, imports included; bytes."""

from __future__ import annotations

import sys
import time
from pathlib import Path


def main(run: Path) -> None:
    """Print the seconds and the size of the page."""
    started = time.perf_counter()
    from pdlab.report import write_report
    from pdlab.store import RunFolder

    _report, page = write_report(RunFolder.open(run))
    print(f"{time.perf_counter() - started:.3f} {page.stat().st_size}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
