# SPDX-License-Identifier: Apache-2.0
"""Write the golden plans: what `pdlab plan -i NAME --box ...` prints for each shipped GPU inventory and each of its arms.

python scripts/golden_plans.py            write them
python scripts/golden_plans.py --check    write nothing, exit 1 and name those that differ

They lie in tests/golden: NAME.txt as declared, NAME.ARM.txt with -e pd_arm=ARM. The box is that of box_of. Read the
difference before you commit it: it is what changes on every box.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / ".collections"))

from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_case import locked_version  # noqa: E402 - the path first
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology import resolve  # noqa: E402 - the path first
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_hosts import HostVars  # noqa: E402 - the path first
from ansible_collections.pdlab.pdlab.plugins.module_utils.topology_variables import PER_HOST  # noqa: E402 - the path first

from pdlab.dry_run import dry_run, facts_of  # noqa: E402 - the path first
from pdlab.tables import plain, plan_details, plan_table  # noqa: E402 - the path first

FOLDER = ROOT / "tests" / "golden"
INVENTORIES = ROOT / "inventory"
BOXES = ROOT / "tests" / "boxes"
# Inventories that are for another box than the reference box.
BOX_OF = {"eight-nvlink-gpus": "h200-x8"}
WIDTH = 100


def names() -> list[str]:
    """The shipped inventories for GPU boxes."""
    return sorted(path.name for path in INVENTORIES.iterdir() if path.name != "local")


def box_of(name: str) -> Path:
    """The recording of a box that a shipped inventory is for."""
    return BOXES / BOX_OF.get(name, "rtx-pro-6000-x8")


def variables_of(name: str) -> dict[str, Any]:
    """The variables of a shipped inventory."""
    found: dict[str, Any] = yaml.safe_load((INVENTORIES / name / "group_vars" / "pdlab.yml").read_text("utf-8"))
    return found


def cases() -> dict[str, tuple[str, str | None]]:
    """{golden file: (inventory, arm)}; None and not an arm's name for the inventory as declared."""
    arms = [(name, arm) for name in names() for arm, own in variables_of(name).get("pd_arms", {}).items() if own]
    return {f"{name}.txt": (name, None) for name in names()} | {f"{name}.{arm}.txt": (name, arm) for name, arm in arms}


def plan_of(name: str, arm: str | None = None) -> dict[str, Any]:
    """The plan of a shipped inventory of one host, whose variables hold no template. Raises ValueError with its faults."""
    variables = variables_of(name) | ({"pd_arm": arm} if arm else {})
    hosts = yaml.safe_load((INVENTORIES / name / "hosts.yml").read_text(encoding="utf-8"))
    workloads = yaml.safe_load((ROOT / "roles" / "benchmark" / "vars" / "workloads.yml").read_text(encoding="utf-8"))
    ((host, reached),) = hosts["all"]["children"]["pdlab"]["hosts"].items()
    own = {key: value for key, value in variables.items() if key in PER_HOST}
    shared = {key: value for key, value in variables.items() if key not in PER_HOST}
    known = HostVars(host, ansible_host=reached["ansible_host"], variables=own)
    lock = (ROOT / "roles" / "engine" / "files" / "locks" / "cuda13.txt").read_text(encoding="utf-8")
    versions = {host: locked_version(lock)}
    plan, faults = resolve(shared, [known], workloads["benchmark_workloads"], engine_versions=versions)
    if plan is None:
        raise ValueError("\n".join(map(str, faults)))
    return plan


def golden(name: str, arm: str | None = None) -> str:
    """What a dry run of one inventory prints. Raises ValueError when the box contradicts it."""
    plan = plan_of(name, arm)
    run = dry_run(plan, facts_of(dict.fromkeys(plan["hosts"], box_of(name))))
    if run.faults:
        raise ValueError("\n".join(map(str, run.faults)))
    return plain(plan_table(run.plan), WIDTH) + plan_details(run.plan, run).plain


def stale() -> list[str]:
    """The golden files that differ from what is printed now: changed, missing, or of an inventory that is no more."""
    wanted = {file: golden(*case) for file, case in cases().items()}
    present = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.txt")}
    return sorted(name for name in wanted.keys() | present.keys() if wanted.get(name) != present.get(name))


def main(arguments: list[str]) -> int:
    differ = stale()
    for name in differ:
        print(f"tests/golden/{name}")
    if arguments == ["--check"]:
        return 1 if differ else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in differ:
        if name in cases():
            (FOLDER / name).write_text(golden(*cases()[name]), encoding="utf-8")
        else:
            (FOLDER / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
