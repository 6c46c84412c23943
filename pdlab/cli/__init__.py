# SPDX-License-Identifier: Apache-2.0
"""The `pdlab` command. Commands are thin: they read options, call the parts, print, and choose the exit status.

A command belongs to the program once its module is imported, and `pdlab --help` lists them in that order.
"""

from __future__ import annotations

import errno
import os
import sys

from pdlab.cli.app import app, err
from pdlab.exit_codes import Exit
from pdlab.store import StoreError

# isort: off
from pdlab.cli import chain, measure, box, operate, evidence, reproduce

# isort: on

__all__ = ["app", "box", "chain", "evidence", "main", "measure", "operate", "reproduce"]

DISK_ERRORS = (errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT)


def main() -> None:
    """Entry point of the console script."""
    try:
        app()
    except StoreError as error:
        message = str(error)
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            raise
        message = f"{error.strerror}: {error.filename or os.environ.get('PDLAB_RUNS_DIR') or 'the runs directory'}. "
        message += "Free space, make it writable, or name another directory with --runs-dir."
    else:
        return
    err.print(f"pdlab: {message}", style="bold red", soft_wrap=True, markup=False)
    sys.exit(int(Exit.ERROR))
