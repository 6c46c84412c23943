# SPDX-License-Identifier: GPL-3.0-or-later
"""The benchmark job: imports the client once, then runs every point of a sweep in a fork of this process. Linux.

    python -m ….bench_forkserver FOLDER KEY

Most of a client's start is its imports (7 s of processor time for sglang 0.5.23). A client that is forked has them and
nothing else: no point leaves anything behind for the next one.

FOLDER/request.json is the next point: {"client" (module to import), "setup" (a file, see bench_conductor), "log" (a file
for all that the point says), "status", "lease" (files), "lease_s", "limit_s" (see leased_job), "stay"}. This process
keeps the point as leased_job keeps a command, and writes the same status file; the time of the imports counts for the
point that they were made for. Afterwards it ends as the point ended. When "stay" is true and all went well, it waits for
the next request instead, and FOLDER/state.json says so: {"pid", "key", "waiting"}. It waits no longer than the lease.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import math
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import bench_conductor, leased_job
from ansible_collections.pdlab.pdlab.plugins.module_utils.forked import Forked

REQUEST, STATE = "request.json", "state.json"
LOOK_EVERY_S = 0.02
EXIT_IMPORT_FAILED = 1


class Desk:
    """The folder where requests are put."""

    def __init__(self, folder: str, key: str) -> None:
        self._request = os.path.join(folder, REQUEST)
        self._state = os.path.join(folder, STATE)
        self._key = key

    def take(self) -> dict[str, Any] | None:
        """The request that lies there, if one does. Raises OSError, ValueError."""
        try:
            with open(self._request, encoding="utf-8") as stream:
                request: dict[str, Any] = json.load(stream)
        except FileNotFoundError:
            return None
        self.say(waiting=False)
        os.unlink(self._request)
        return request

    def await_next(self, lease: leased_job.Lease) -> dict[str, Any] | None:
        """The next request; None when this process is to end without one. Raises OSError, ValueError."""
        watch = leased_job.Watch(lease, math.inf)
        self.say(waiting=True)
        while watch.over() is None:
            request = self.take()
            if request is not None:
                return request
            time.sleep(LOOK_EVERY_S)
        self.say(waiting=False)
        return None

    def say(self, waiting: bool) -> None:
        """Tell whether a request would be taken. Raises OSError."""
        state = {"pid": os.getpid(), "key": self._key, "waiting": waiting}
        with open(self._state + ".tmp", "w", encoding="utf-8") as stream:
            json.dump(state, stream)
        os.replace(self._state + ".tmp", self._state)


def speak_into(path: str) -> None:
    """Let all that this process says from now on go to a file, behind what it holds. Raises OSError."""
    sys.stdout.flush()
    sys.stderr.flush()
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


@contextlib.contextmanager
def kept(status_path: str, watch: leased_job.Watch) -> Iterator[None]:
    """End this process, with the point's status, when its time is over before the block is."""
    done = threading.Event()

    def look() -> None:
        while not done.wait(leased_job.CHECK_EVERY_S):
            reason = watch.over()
            if reason is not None:
                leased_job.end_all()
                leased_job.write_status(status_path, leased_job.status_of(watch, ended=time.time(), reason=reason))
                os._exit(leased_job.EXIT_CODES[reason])

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        # Only a process of one thread is forked.
        done.set()
        thread.join()


def import_client(module: str, status_path: str, watch: leased_job.Watch) -> bool:
    """Import the client for all points; whether it could be. What went wrong is said as Python says it."""
    leased_job.write_status(status_path, leased_job.status_of(watch))
    gc.disable()
    try:
        with kept(status_path, watch):
            importlib.import_module(module)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        failed = leased_job.status_of(watch, ended=time.time(), exit_code=EXIT_IMPORT_FAILED, reason="exited")
        leased_job.write_status(status_path, failed)
        return False
    finally:
        # What was imported stays as long as this process: no collection needs to look through it, and in a fork none
        # copies it by doing so.
        gc.freeze()
        gc.enable()
    return True


def run_point(request: Mapping[str, Any], watch: leased_job.Watch) -> int:
    """Run one point in a fork; its exit status."""
    with open(request["setup"], encoding="utf-8") as stream:
        setup = json.load(stream)
    return leased_job.run(
        lambda: Forked(lambda: bench_conductor.conduct(setup), session=True), request["status"], watch
    )


def serve(desk: Desk) -> int:
    """Run points until none follows; the last one's exit status. Raises OSError, ValueError."""
    code, request = 0, desk.take()
    while request is not None:
        watch = leased_job.Watch(leased_job.Lease(request["lease"], request["lease_s"]), request["limit_s"])
        speak_into(request["log"])
        if request["client"] not in sys.modules and not import_client(request["client"], request["status"], watch):
            return EXIT_IMPORT_FAILED
        code = run_point(request, watch)
        if code != 0 or not request["stay"]:
            break
        request = desk.await_next(watch.lease)
    return code


def main() -> int:
    """Keep the points of one sweep."""
    leased_job.become_keeper()
    return serve(Desk(*sys.argv[1:3]))


if __name__ == "__main__":
    sys.exit(main())
