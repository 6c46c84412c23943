# SPDX-License-Identifier: Apache-2.0
"""Stands where the benchmark client would, for tests of the job around it: it replays what the real one wrote.

It is copied to where the client would lie, and finds the recordings three folders up. --tag steers it: "good" replays a whole run, "hang" stops in the middle with a child and waits for ever,
"crash" stops in the middle with a traceback, "deaf" hangs and ignores SIGTERM.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

DATA = Path(__file__).parents[3] / "recorded"


def option(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1]


def main() -> None:
    behaviour = option("--tag")
    with (DATA / "good.log").open(encoding="utf-8", newline="") as stream:
        log = stream.read()
    head, _, tail = log.partition(" 50%|")
    sys.stdout.write(head)
    sys.stdout.flush()
    if behaviour == "crash":
        raise ConnectionResetError("the stand-in was told to crash")
    if behaviour in ("hang", "deaf"):
        if behaviour == "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        time.sleep(600)
    time.sleep(0.5)
    sys.stdout.write(" 50%|" + tail)
    shutil.copyfile(DATA / "good.jsonl", option("--output-file"))


if __name__ == "__main__":
    main()
