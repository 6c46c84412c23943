# SPDX-License-Identifier: GPL-3.0-or-later
"""Action plug-ins that carry files of the controller to a target, and Python distributions that lie here as sources."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.pdlab.pdlab.plugins.plugin_utils.recorded import RecordedAction

SKIPPED_PARTS = {"__pycache__", ".venv", "dist", "build"}


class CarryingAction(RecordedAction):
    """Finds files by their names in a role, sends them, and builds wheels of local distributions."""

    # True would make a folder on the target at once; `send` makes it when there is something to send.
    TRANSFERS_FILES = False

    def find(self, name: Any, option: str) -> Path:
        """A file or folder of the controller, as a role or playbook names it. Raises AnsibleError."""
        path = Path(self._find_needle("files", str(name))) if name else None
        if path is None:
            raise AnsibleActionFail(f"{self._task.action.rpartition('.')[2]} needs `{option}`")
        return path

    def send(self, source: Path) -> str:
        """Copy a file into the task's temporary folder on the target and return its path there."""
        if not self._connection._shell.tmpdir:
            self._make_tmp_path()
        target = self._connection._shell.join_path(self._connection._shell.tmpdir, source.name)
        self._transfer_file(str(source), target)
        self._fixup_perms2([self._connection._shell.tmpdir, target])
        return str(target)

    def wheels(self, sources: list[Path]) -> list[Path]:
        """Build a wheel of each local distribution with the controller's uv; needs no network (uv_build)."""
        if not sources:
            return []
        uv = shutil.which("uv", path=os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", ""))
        if uv is None:
            raise AnsibleActionFail("uv is missing beside the controller's Python; `pip install uv` there")
        out = Path(tempfile.mkdtemp(prefix="pdlab-wheels-"))
        self._built = out
        for source in sources:
            built = subprocess.run(
                [uv, "build", "--quiet", "--wheel", "--out-dir", str(out), str(source)],
                capture_output=True,
                text=True,
                check=False,
            )
            if built.returncode != 0:
                raise AnsibleActionFail(f"the distribution {source} could not be built: {built.stderr.strip()}")
        return sorted(out.glob("*.whl"))

    def cleanup(self, force: bool = False) -> None:
        shutil.rmtree(getattr(self, "_built", ""), ignore_errors=True)
        super().cleanup(force)


def tree_sha256(sources: list[Path]) -> str:
    """One hash over the names and contents of all source files, in a fixed order; empty for no sources."""
    if not sources:
        return ""
    digest = hashlib.sha256()
    for source in sources:
        # Judged by the path below the source: the checkout itself may lie in a folder called build.
        for path in sorted(source.rglob("*")):
            relative = path.relative_to(source)
            if path.is_file() and not SKIPPED_PARTS & set(relative.parts):
                digest.update(str(relative).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
