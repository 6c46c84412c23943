# SPDX-License-Identifier: GPL-3.0-or-later
"""Carry a lock, local distributions and an overlay to the target, but only when it has not been built from them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleActionFail
from ansible_collections.pdlab.pdlab.plugins.module_utils.faults import Faults
from ansible_collections.pdlab.pdlab.plugins.module_utils.overlay import MANIFEST, digest, document_of
from ansible_collections.pdlab.pdlab.plugins.plugin_utils.recorded import RecordedAction

SKIPPED_PARTS = {"__pycache__", ".venv", "dist", "build"}


class ActionModule(RecordedAction):
    """Asks the module first by hash; sends files and asks again only when there is something to build."""

    TRANSFERS_FILES = True

    def execute(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        if arguments.get("state", "present") == "absent":
            return super().execute(arguments, task_vars)
        lock = self._find(arguments.pop("lock", None), "lock")
        sources = [self._find(path, "distributions") for path in arguments.pop("distributions", None) or []]
        arguments["lock_sha256"] = hashlib.sha256(lock.read_bytes()).hexdigest()
        arguments["distributions_sha256"] = _tree_sha256(sources) if sources else ""
        overlay = _overlay(arguments.pop("overlay", None))
        arguments["overlay_sha256"] = digest(overlay)
        result = super().execute(arguments, task_vars)
        if not result.get("wants_files") and not result.get("wants_overlay"):
            return result
        if overlay:
            arguments["overlay_document"] = overlay
        if not result.get("wants_files"):
            return super().execute(arguments, task_vars)
        arguments["lock_path"] = self._send(lock, task_vars)
        arguments["wheel_paths"] = [self._send(wheel, task_vars) for wheel in self._wheels(sources)]
        return super().execute(arguments, task_vars)

    def _find(self, name: Any, option: str) -> Path:
        path = Path(self._find_needle("files", str(name))) if name else None
        if path is None:
            raise AnsibleActionFail(f"locked_venv needs `{option}`")
        return path

    def _send(self, source: Path, task_vars: dict[str, Any]) -> str:
        if not self._connection._shell.tmpdir:
            self._make_tmp_path()
        target = self._connection._shell.join_path(self._connection._shell.tmpdir, source.name)
        self._transfer_file(str(source), target)
        self._fixup_perms2([self._connection._shell.tmpdir, target])
        return str(target)

    def _wheels(self, sources: list[Path]) -> list[Path]:
        """Build a wheel of each local distribution with the controller's uv; needs no network (uv_build)."""
        if not sources:
            return []
        uv = shutil.which("uv", path=os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", ""))
        if uv is None:
            raise AnsibleActionFail("uv is missing beside the controller's Python; `pip install uv` there")
        out = Path(tempfile.mkdtemp(prefix="pdlab-wheels-"))
        wheels = []
        for source in sources:
            built = subprocess.run(
                [uv, "build", "--quiet", "--wheel", "--out-dir", str(out), str(source)],
                capture_output=True,
                text=True,
                check=False,
            )
            if built.returncode != 0:
                raise AnsibleActionFail(f"the distribution {source} could not be built: {built.stderr.strip()}")
        wheels = sorted(out.glob("*.whl"))
        self._built = out
        return wheels

    def cleanup(self, force: bool = False) -> None:
        shutil.rmtree(getattr(self, "_built", ""), ignore_errors=True)
        super().cleanup(force)


def _overlay(name: Any) -> dict[str, Any] | None:
    """The overlay in a folder, as a document. Raises AnsibleActionFail with all of its faults."""
    if not name:
        return None
    folder = Path(str(name)).expanduser()
    try:
        manifest = yaml.safe_load((folder / MANIFEST).read_text(encoding="utf-8"))
        texts = {path.name: path.read_bytes().decode() for path in sorted(folder.glob("*.patch"))}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise AnsibleActionFail(
            f"the overlay {folder} cannot be read: {error}. It is a folder on the controller with {MANIFEST} "
            "and patches in UTF-8, as docs/rebuild.md shows."
        ) from error
    faults = Faults()
    document = document_of(manifest, texts, faults)
    if document is None:
        lines = "\n".join(f"- {fault}" for fault in faults)
        raise AnsibleActionFail(f"the overlay {folder} has faults; nothing was touched:\n{lines}")
    return document


def _tree_sha256(sources: list[Path]) -> str:
    """One hash over the names and contents of all source files, in a fixed order."""
    digest = hashlib.sha256()
    for source in sources:
        # Judged by the path below the source: the checkout itself may lie in a folder called build.
        for path in sorted(source.rglob("*")):
            relative = path.relative_to(source)
            if path.is_file() and not SKIPPED_PARTS & set(relative.parts):
                digest.update(str(relative).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
