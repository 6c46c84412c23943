# SPDX-License-Identifier: Apache-2.0
"""A role of a running deployment is killed under load; its own service brings it back. How long, and what is lost?

    python benchmarks/role_restart.py -i inventory/eight-nvlink-gpus --may-kill --json result.json

Runs on the box, as who may kill its servers, with the deployment up. Asks `pdlab plan` what runs, sends short requests
through the router, ends the process group of one server with SIGKILL, and starts nothing: that is for systemd or
supervisor. For decode first, then for prefill, as in SGLang's own test of a replaced role (test_disaggregation_nixl), whose
bound stands beside what was lost: once the role is back, decode's TP + 1 requests may still fail, and no more.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))
from benchmarks.router_trial import Load, Watch, call, group_alive, listener, rounded, wait_until  # noqa: E402 - the path first

CALM_S = 5.0


def planned(inventory: str, extra: Sequence[str]) -> dict[str, Any]:
    """The plan of the inventory. Raises SystemExit with pdlab's own words where there is none."""
    pdlab = Path(sys.executable).with_name("pdlab")
    words = [word for value in extra for word in ("-e", value)]
    done = subprocess.run(
        [str(pdlab), "plan", "-i", inventory, *words, "--json"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr.strip())
    plan: dict[str, Any] = json.loads(done.stdout)
    return plan


def ready_path(router: Mapping[str, Any]) -> str:
    """Where the router asks whether a server is ready; engines before 0.5.23 have no /ready."""
    argv = list(router["argv"])
    flag = "--health-check-endpoint"
    return str(argv[argv.index(flag) + 1]) if flag in argv else "/health"


class Restart:
    """One role's first server, killed once."""

    def __init__(self, plan: Mapping[str, Any], role: str, arguments: argparse.Namespace) -> None:
        servers = {name: [one for one in plan["servers"] if one["role"] == name] for name in ("prefill", "decode")}
        if not plan["router"] or not all(servers.values()):
            raise SystemExit("This deployment has no prefill, decode and router; name the arm with -e pd_arm=NAME.")
        self.role, self.arguments = role, arguments
        self.server = servers[role][0]
        self.bound = max(one["tp"] for one in servers["decode"]) + 1
        router = plan["router"]
        self.url = f"http://{router['address']}:{router['port']}"
        self.ready_url = self.base(self.server) + ready_path(router)
        self.setting = SimpleNamespace(url=self.url, port=router["prometheus_port"] - 1)
        ends = SimpleNamespace(prefill=SimpleNamespace(url=self.base(servers["prefill"][0])))
        ends.decode = self.base(servers["decode"][0])
        self.ends = ends

    @staticmethod
    def base(server: Mapping[str, Any]) -> str:
        """A server's address."""
        return f"http://{server['address']}:{server['port']}"

    def ready(self) -> bool:
        """Whether the server says so itself."""
        return call(self.ready_url, limit_s=2).status == 200

    def group(self) -> int:
        """The process group that listens on the server's port. Raises SystemExit when it is not this plan's server."""
        group = os.getpgid(listener(self.server["port"]))
        running = Path(f"/proc/{group}/cmdline").read_bytes().decode(errors="replace").split("\0")
        if "sglang.launch_server" not in running or group == os.getpgrp():
            raise SystemExit(f"The process group {group} at {self.ready_url} is no SGLang server of its own session.")
        # Another deployment may have the same ports. What the plan says of model, role and GPUs must be what runs.
        argv = self.server["argv"]
        missing = [word for word in argv[argv.index("-m") :] if word not in running]
        if missing:
            raise SystemExit(
                f"What listens at {self.ready_url} is not {self.server['name']} of this inventory: it runs without "
                f"{' '.join(missing)}. Nothing was killed."
            )
        return group

    def kill(self) -> int:
        """SIGKILL to the server's process group; its id."""
        group = self.group()
        os.killpg(group, signal.SIGKILL)
        if wait_until(lambda: not group_alive(group), 30) is None:
            raise SystemExit(f"The process group {group} does not end.")
        return group

    def run(self) -> dict[str, Any]:
        """The cell: times in seconds, requests by when they began."""
        if not self.ready():
            raise SystemExit(f"{self.server['name']} is not ready at {self.ready_url}: deploy first.")
        self.group()
        given = self.arguments
        with (
            Load(self.url, given.concurrency, given.stream) as clients,
            # Stand-ins that have what Watch reads of a trial: addresses and a port.
            Watch(self.setting, self.ends) as watch,  # type: ignore[arg-type]
        ):
            time.sleep(given.before)
            killed = time.perf_counter()
            self.kill()
            gone = time.perf_counter()
            back = wait_until(self.ready, given.start_limit, 0.1)
            ready = time.perf_counter()
            settled = None
            if back is not None:
                settled = wait_until(lambda: clients.calm(ready, CALM_S), given.after, 0.2)
        seen = clients.account(killed, ready)
        first = clients.first_good(ready)
        until_first = sum(
            error is not None for begun, _, error in clients.done if begun >= ready and (first is None or begun < first)
        )
        return {
            "trial": "role_restart",
            "role": self.role,
            "server": self.server["name"],
            "tp": self.server["tp"],
            "concurrency": given.concurrency,
            "stream": given.stream,
            "came_back": back is not None,
            "recovered": settled is not None,
            "down_s": rounded(ready - killed),
            "died_in_s": rounded(gone - killed),
            "failed_after_ready_before_first_success": until_first,
            "engines_own_bound": self.bound,
            "inside_bound": settled is not None and seen["after_ready"]["lost"] <= self.bound,
            **seen,
            **watch.account(killed, ready, clients),
        }


def line(cell: Mapping[str, Any]) -> str:
    """One role in words."""
    lost = {name: cell[name] for name in ("in_flight_at_kill", "while_down", "after_ready")}
    words = ", ".join(
        f"{value['lost']} of {value['requests']} {name.replace('_', ' ')}" for name, value in lost.items()
    )
    verdict = "inside" if cell["inside_bound"] else "OUTSIDE"
    return (
        f"{cell['role']} ({cell['server']}, TP {cell['tp']}): down {cell['down_s']} s, first success "
        f"{cell['first_success_after_ready_s']} s after it was ready, last failure {cell['last_failure_after_ready_s']} s; "
        f"lost: {words}; {verdict} the engine's own bound of {cell['engines_own_bound']} after it is back"
    )


def parser() -> argparse.ArgumentParser:
    """The command line."""
    described = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = described.add_argument
    add("-i", "--inventory", required=True)
    add("-e", "--extra-vars", action="append", default=[], metavar="VALUE", help="as of pdlab; repeat")
    add("--roles", default="decode,prefill", help="which, in this order")
    add("--concurrency", type=int, default=4, help="clients, each with one request at a time")
    add("--stream", action="store_true", help="clients stream, as SGLang's benchmark does")
    add("--before", type=float, default=5, help="seconds of load before the kill")
    add("--start-limit", type=float, default=240, help="longest wait for the server to be ready again")
    add("--after", type=float, default=70, help="longest wait for recovery after that")
    add("--json", type=Path, metavar="FILE", help="result file: one cell a role")
    add("--may-kill", action="store_true", help="needed: servers that work are killed")
    return described


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0 when every role came back inside the bound, 1 when one did not."""
    arguments = parser().parse_args(argv)
    roles = arguments.roles.split(",")
    if not set(roles) <= {"prefill", "decode"}:
        raise SystemExit(f"--roles {arguments.roles}: there are prefill and decode.")
    if not arguments.may_kill:
        raise SystemExit("Servers that work would be killed: add --may-kill.")
    plan = planned(arguments.inventory, arguments.extra_vars)
    cells = []
    for role in roles:
        cells.append(Restart(plan, role, arguments).run())
        print(line(cells[-1]), flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps({"cells": cells}, indent=1) + "\n", encoding="utf-8")
        if not cells[-1]["recovered"]:
            break
    return 0 if all(cell["inside_bound"] for cell in cells) else 1


if __name__ == "__main__":
    sys.exit(main())
