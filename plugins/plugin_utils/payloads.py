# SPDX-License-Identifier: GPL-3.0-or-later
"""Payloads of modules whose tasks are still to come, put together while the controller waits for a target anyway."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

from ansible.plugins.action import ActionBase


@contextlib.contextmanager
def put_together(action: ActionBase, first: str, later: Iterable[str], task_vars: Mapping[str, Any]) -> Iterator[None]:
    """While the body runs module `first`, have Ansible pack the modules `later`.

    Ansible packs a module with all that it imports when its first task comes, and keeps the payload for the rest of the
    run (ansible-core, executor/module_common.py). That is half the time of a short module, and the servers of a host
    are not ordered before it is over. A payload that cannot be made is told when its task comes.
    """
    names = list(later)
    if not names:
        yield
        return
    # First what the body waits for. What is raised here the body would raise.
    action._configure_module(first, {}, task_vars)
    # A process of its own: Ansible's templates and loaders are made for one thread.
    packer = os.fork()
    if packer == 0:
        _pack_and_exit(action, names, task_vars)
    try:
        yield
    finally:
        os.waitpid(packer, 0)


def _pack_and_exit(action: ActionBase, names: Iterable[str], task_vars: Mapping[str, Any]) -> NoReturn:
    try:
        for name in names:
            with contextlib.suppress(Exception):
                action._configure_module(name, {}, task_vars)
    finally:
        os._exit(0)
