# SPDX-License-Identifier: GPL-3.0-or-later
"""Action plug-ins whose module's result belongs to the run: it is kept in the run folder, failed or not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.pdlab.pdlab.plugins.module_utils.run_folder import record_path, write_record

# What Ansible adds to a result and what no reader of a record wants.
BOOKKEEPING = ("invocation", "_ansible_parsed", "_ansible_no_log", "_ansible_verbose_always", "deprecations", "diff")
# What a person needs of a failed result when all of it has been kept.
SHOWN_OF_A_FAILURE = (
    "changed",
    "failed",
    "msg",
    "exception",
    "warnings",
    "name",
    "failed_requests",
    "unreachable",
    "held_by",
)


class RecordedAction(ActionBase):
    """Run the module of the same name; write its result to records/NAME.json of the run.

    Task options taken here and not passed on: `run_dir` (the run folder; without it nothing is kept), `record` (the
    record's name; default: the class attribute of that name) and `seen` (what preflight read of this host in the same
    run; where it settles the matter the host is not asked again, see `from_sight`).
    """

    record: str | None = None

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        run_dir = arguments.pop("run_dir", None)
        name = arguments.pop("record", None) or self.record
        self.seen = arguments.pop("seen", None) or {}
        result.update(self.execute(arguments, task_vars or {}))
        if not run_dir or result.get("skipped") or not self.keeps(result):
            return result
        for kept_as, part in self.records(name, result):
            write_record(run_dir, kept_as, self.document(part))
            if part.get("failed"):
                # Ansible prints a failed result whole: the message shall not drown in what the record holds.
                result = {key: value for key, value in result.items() if key in SHOWN_OF_A_FAILURE}
                result["record"] = record_path(run_dir, kept_as)
        return result

    def records(self, name: str | None, result: dict[str, Any]) -> Iterable[tuple[str, dict[str, Any]]]:
        """What is kept, each under its name; the default is the whole result as one."""
        return [(name, result)] if name else []

    def keeps(self, result: dict[str, Any]) -> bool:
        """Whether a result is one of the run's; the default is that every one is."""
        return True

    def document(self, result: dict[str, Any]) -> dict[str, Any]:
        """What of a result is kept; the default is all but Ansible's bookkeeping."""
        kept = {key: value for key, value in result.items() if key not in BOOKKEEPING}
        if kept.get("warnings"):
            kept["warnings"] = [_warning(warning) for warning in kept["warnings"]]
        return kept

    def execute(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Do the work; the default runs the target's module once with `arguments`, unless what was seen is enough."""
        known = self.from_sight(arguments, self.seen) if self.seen else None
        if known is not None:
            return known
        return self._execute_module(module_name=self._task.action, module_args=arguments, task_vars=task_vars)

    def from_sight(self, arguments: dict[str, Any], seen: dict[str, Any]) -> dict[str, Any] | None:
        """The module's result when `seen` shows that there is nothing to do, else None. Must err towards None."""
        return None


def _warning(warning: Any) -> str:
    """A module's warning as its text; since 2.19 ansible-core wraps it (WarningSummary, private to it)."""
    return str(getattr(getattr(warning, "event", None), "msg", warning))
