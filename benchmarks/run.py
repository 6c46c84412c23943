# SPDX-License-Identifier: Apache-2.0
"""`make bench`: what pdlab costs, as ratios against the bare tools in the same run on the same machine.

Nothing here is a pass or a fail of the code: machines differ. Each row shows the bound that the project gives itself
and whether this machine, now, is inside it. Works in a root of its own; ports must be free (`pdlab down` first).
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))
from tests.testbed.bed import NoBedError  # noqa: E402 - the checkout must be on the path first
from tests.testbed.rehearsal import rehearsal_hosts  # noqa: E402 - the same
from tests.unit.evidence.arms_run_factory import seeded_run  # noqa: E402 - the same

BIN = Path(sys.executable).parent
LOCK = CHECKOUT / "roles" / "engine" / "files" / "locks" / "cpu.txt"
START_LIMIT_S = 300.0


@dataclass(frozen=True)
class Row:
    """One measurement: seconds here, seconds of the bare tool (None: an absolute bound), the bound."""

    name: str
    seconds: float
    bare_seconds: float | None
    bound: float
    note: str = ""

    @property
    def value(self) -> float:
        """The ratio, or the seconds where the bound is in seconds."""
        return self.seconds / self.bare_seconds if self.bare_seconds else self.seconds

    def line(self) -> str:
        """The row as a line of the table."""
        kind = "x" if self.bare_seconds else "s"
        bare = f"{self.bare_seconds:8.1f} s" if self.bare_seconds else "         -"
        inside = "inside" if self.value <= self.bound else "MISSED"
        return (
            f"{self.name:<44} {self.seconds:8.1f} s {bare}  {self.value:6.2f} {kind}"
            f"  <= {self.bound:g} {kind}  {inside} {self.note}"
        )


def timed(action: Callable[[], Any]) -> float:
    """Seconds that `action` takes."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def run(argv: Sequence[str | Path], env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    """Run a command to its end; its output. Ends the program with that output when the command fails."""
    done = subprocess.run(
        [str(item) for item in argv],
        env={**os.environ, **(env or {})},
        cwd=cwd or CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{shlex.join(str(item) for item in argv)} failed ({done.returncode}):\n{done.stdout}\n{done.stderr}")
    return done.stdout


class Bench:
    """The measurements, in a scratch directory on the same file system as the real root."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.root = scratch / "root"
        self.runs = scratch / "runs"
        self.env = {"PDLAB_ROOT": str(self.root), "PDLAB_RUNS_DIR": str(self.runs)}

    def pdlab(self, *arguments: str) -> str:
        """Run pdlab in the scratch root."""
        return run([BIN / "pdlab", *arguments], self.env)

    def bare_sync(self, cache: Path | None) -> float:
        """Seconds of uv alone, into a fresh environment."""
        venv = self.scratch / "bare"
        shutil.rmtree(venv, ignore_errors=True)
        env = {"UV_CACHE_DIR": str(cache)} if cache else {}

        def sync() -> None:
            run([BIN / "uv", "venv", "-q", "--python", self.python(), venv], env)
            run([BIN / "uv", "pip", "sync", "-q", "--require-hashes", "--python", venv / "bin" / "python", LOCK], env)

        seconds = timed(sync)
        shutil.rmtree(venv)
        return seconds

    def own_sync(self, cache: Path | None, rebuild: bool) -> float:
        """Seconds of the engine role's environment task, as it reports them."""
        env = {**self.env, **({"UV_CACHE_DIR": str(cache)} if cache else {})}
        argv: list[str | Path] = [
            BIN / "ansible-playbook",
            "playbooks/deploy.yml",
            "--tags",
            "engine",
            "-e",
            f"pdlab_runs_dir={self.runs}",
        ]
        argv += ["-e", f"engine_rebuild={'true' if rebuild else 'false'}"]
        run(argv, {**env, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg")})
        newest = sorted(self.runs.iterdir())[-1]
        record = json.loads((newest / "records" / "engine-localhost.json").read_text())
        return float(record["seconds"])

    @staticmethod
    def python() -> str:
        """The interpreter that the engine role would take, so that both sides build on the same."""
        for candidate in ("/usr/bin/python3", "python3.13", "python3.12", "python3.11"):
            if shutil.which(candidate):
                check = [candidate, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
                if subprocess.run(check, check=False).returncode == 0:
                    return candidate
        sys.exit("no Python 3.11 or newer")

    # --- rows ---------------------------------------------------------------------------------------------------

    def environment_cold(self) -> Row:
        """The engine's environment with empty caches on both sides."""
        bare = self.bare_sync(self.scratch / "cache-bare")
        shutil.rmtree(self.scratch / "cache-bare")
        own = self.own_sync(self.scratch / "cache-own", rebuild=False)
        shutil.rmtree(self.scratch / "cache-own")
        return Row("engine environment, cold, against uv alone", own, bare, 1.15)

    def environment_warm(self) -> Row:
        """A rebuild from uv's own cache."""
        self.bare_sync(None)
        return Row("engine environment, rebuild with a warm cache", self.own_sync(None, rebuild=True), None, 6.0)

    def second_deploy(self) -> Row:
        """Nothing to change."""
        self.pdlab("deploy")
        seconds = min(timed(lambda: self.pdlab("deploy")) for _ in range(3))
        recap = run(
            [BIN / "ansible-playbook", "site.yml", "--tags", "deploy", "-e", f"pdlab_runs_dir={self.runs}"],
            {**self.env, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg")},
        )
        changed = recap.rpartition("changed=")[2].split()[0]
        # How fast Ansible is on this machine at all.
        ping = min(timed(lambda: run([BIN / "ansible", "localhost", "-m", "ansible.builtin.ping"])) for _ in range(3))
        note = f"(changed={changed}; one `ansible -m ping` takes {ping:.1f} s)"
        return Row("second `pdlab deploy`, nothing to change", seconds, None, 5.0, note)

    def preflight(self) -> Row:
        """The reference box's recording judged for inventory/gpu: no host takes part."""
        box = CHECKOUT / "tests" / "boxes" / "rtx-pro-6000-x8"
        seconds = min(timed(lambda: self.pdlab("preflight", "-i", "gpu", "--box", str(box))) for _ in range(3))
        return Row("preflight of the reference box's recording", seconds, None, 2.0)

    def analysis(self) -> Row:
        """A thousand points of a sweep, everything that pdlab makes of them, with what it loads."""
        seconds = min(float(run([sys.executable, CHECKOUT / "benchmarks" / "analysis.py", "1000"])) for _ in range(3))
        return Row("analysis of 1,000 points", seconds, None, 2.0)

    def report(self) -> Row:
        """The page of a run of 3 arms x 6 points x 5 repeats, 96 requests a point, from its folder."""
        run_folder = seeded_run(self.scratch / "report", prompts=96)
        argv: list[str | Path] = [sys.executable, CHECKOUT / "benchmarks" / "report.py", run_folder.path]
        made = [run(argv).split() for _ in range(3)]
        seconds, size = min(float(one[0]) for one in made), int(made[0][1]) / 1e6
        note = f"({size:.1f} MB <= 8 MB: {'inside' if size <= 8 else 'MISSED'})"
        return Row("report of 3 arms x 6 points x 5 repeats", seconds, None, 5.0, note)

    def first_answer(self) -> Row:
        """From stopped services to the first right answer, against the same lines in a shell."""
        self.pdlab("deploy")
        plan = json.loads(self.pdlab("plan", "--json"))
        own, bare = [], []
        for _ in range(3):
            self.pdlab("down")
            bare.append(self.by_hand(plan))
            own.append(self.by_pdlab(plan))
        (seconds, ended), shell = min(own), min(bare)
        # All of them: by hand the router looks for its servers every 5 s, and the answer comes in such steps.
        each = [" ".join(f"{value:.1f}" for value in values) for values in ([first for first, _ in own], bare)]
        note = f"(`pdlab deploy` itself ended after {ended:.1f} s; each: {each[0]} against {each[1]})"
        return Row("stopped to first right answer, against a shell", seconds, shell, 1.15, note)

    def by_pdlab(self, plan: Mapping[str, Any]) -> tuple[float, float]:
        """Seconds until a client that asks all the time gets its first right answer, and until `pdlab deploy` ends.

        The same client asks in the same way while the servers are started by hand.
        """
        started = time.perf_counter()
        with ThreadPoolExecutor(max_workers=1) as pool:
            answered = pool.submit(timed, lambda: wait_for_answer(plan))
            self.pdlab("deploy")
            return answered.result(), time.perf_counter() - started

    def by_hand(self, plan: Mapping[str, Any]) -> float:
        """The same command lines and environments, started by hand and stopped again."""
        groups = []
        started = time.perf_counter()
        for server in [*plan["servers"], plan["router"]]:
            log = (self.scratch / f"{server['name']}.log").open("wb")
            groups.append(
                subprocess.Popen(
                    server["argv"], env=server["environment"], stdout=log, stderr=log, start_new_session=True
                )
            )
        try:
            wait_for_answer(plan)
            return time.perf_counter() - started
        finally:
            for child in groups:
                os.killpg(child.pid, signal.SIGTERM)
            for child in groups:
                child.wait(timeout=60)

    def benchmark_overhead(self) -> Row:
        """The benchmark stage of `pdlab bench`, against the same client commands one after the other."""
        self.pdlab("deploy")
        own, bare = [], []
        for _ in range(2):
            self.pdlab("bench")
            latest = sorted(path for path in self.runs.iterdir() if (path / "plan.json").exists())[-1]
            stages = json.loads(self.pdlab("report", str(latest), "--json"))["stages"]
            own.append(next(float(stage["seconds"]) for stage in stages if stage["name"] == "benchmark"))
            bare.append(self.clients_by_hand(latest))
        return Row("benchmark sweep, against its clients by hand", min(own), min(bare), 1.05)

    def clients_by_hand(self, latest: Path) -> float:
        """Seconds of a run's client commands, each with the warm-up and the flush that the client offers."""
        seconds = 0.0
        for path in sorted((latest / "records").glob("point-*.json")):
            record = json.loads(path.read_text())
            argv = list(record["client"]["argv"])
            argv[argv.index("--warmup-requests") + 1] = str(record["warmup"]["warmup"]["requests"])
            argv[argv.index("--output-file") + 1] = str(self.scratch / "by-hand.jsonl")
            # The client keeps its prompts in HOME: no run finds them made.
            home = tempfile.mkdtemp(dir=self.scratch)
            env = {"HOME": home, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
            seconds += timed(partial(run, [*argv, "--flush-cache"], env))
        return seconds

    def deploy_one_host(self) -> Row:
        """Nothing to change on one host over ssh: a test host with systemd, and the whole rehearsal on it."""
        return self.deploy_over_ssh(1, 6.0)

    def deploy_three_hosts(self) -> Row:
        """The same on three: prefill on one, a decode server on each of the others."""
        return self.deploy_over_ssh(3, 8.0)

    def deploy_over_ssh(self, count: int, bound: float) -> Row:
        """Deploy on `count` hosts, then again, three times. Raises NoBedError where there can be no hosts."""
        folder = self.scratch / f"hosts-{count}"
        changes = {"pd_oracle": {"enabled": False}}
        with rehearsal_hosts(count, f"pdlab-bench-{count}", BIN / "uv", folder, **changes) as made:
            env = {**self.env, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg")}
            argv: list[str | Path] = [BIN / "ansible-playbook", "site.yml", "--tags", "deploy"]
            argv += ["-i", made.inventory, "-e", f"pdlab_runs_dir={self.runs}"]
            run(argv, env)
            seconds = min(timed(lambda: run(argv, env)) for _ in range(3))
            recaps = run(argv, env).partition("PLAY RECAP")[2]
            changed = sum(int(part.split()[0]) for part in recaps.split("changed=")[1:])
        hosts = "1 host" if count == 1 else f"{count} hosts"
        return Row(f"second deployment over ssh, {hosts}", seconds, None, bound, f"(changed={changed})")

    def whole(self) -> Row:
        """`pdlab up` where nothing is installed: no environment, no cache."""
        self.pdlab("down")
        if self.root.exists():  # No other row need have run before.
            shutil.rmtree(self.root)
        env = {**self.env, "UV_CACHE_DIR": str(self.scratch / "cache-whole")}
        seconds = timed(lambda: run([BIN / "pdlab", "up"], env))
        return Row("whole `pdlab up`, nothing installed", seconds, None, 300.0)


def wait_for_answer(plan: Mapping[str, Any]) -> None:
    """Ask the first known question until it is answered rightly."""
    answer = plan["answers"][0]
    body = {
        "model": plan["model"]["served_name"],
        "messages": [{"role": "user", "content": answer["prompt"]}],
        "temperature": 0,
        "max_tokens": 32,
    }
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        request = urllib.request.Request(  # noqa: S310 - the plan's URLs are http by construction
            f"{plan['router']['url']}/v1/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:  # noqa: S310 - the same
                text = json.load(reply)["choices"][0]["message"]["content"]
        except (OSError, ValueError):
            time.sleep(0.2)
            continue
        if answer["expected"] in text:
            return
        raise RuntimeError(f"wrong answer: {text!r}")
    raise RuntimeError(f"no answer within {START_LIMIT_S:.0f} s")


def main() -> None:
    """Run the rows that were asked for and print the table."""
    names = ["analysis", "report", "preflight", "environment_cold", "environment_warm", "second_deploy", "first_answer"]
    names += ["benchmark_overhead"]
    names += ["deploy_one_host", "deploy_three_hosts", "whole"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", default=names, metavar="row", help=f"which rows: {', '.join(names)}")
    parser.add_argument("--scratch-in", type=Path, default=Path.home(), help="where the scratch directory is made")
    arguments = parser.parse_args()
    if unknown := set(arguments.rows) - set(names):
        parser.error(f"unknown row: {', '.join(sorted(unknown))}")
    scratch = Path(tempfile.mkdtemp(prefix=".pdlab-bench-", dir=arguments.scratch_in))
    bench = Bench(scratch)
    print(f"{'':<44} {'here':>10} {'bare':>10}  {'value':>8}  bound", flush=True)
    try:
        for name in names:
            if name in arguments.rows:
                try:
                    print(getattr(bench, name)().line(), flush=True)
                except NoBedError as error:
                    print(f"{name}: NOT MEASURED: {error}", flush=True)
    finally:
        if (bench.root / "supervisor").exists():
            bench.pdlab("down")
            subprocess.run(
                [
                    bench.root / "supervisor/venv/bin/supervisorctl",
                    "-c",
                    bench.root / "supervisor/supervisord.conf",
                    "shutdown",
                ],
                check=False,
            )
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
