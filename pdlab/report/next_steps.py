# SPDX-License-Identifier: Apache-2.0
"""What a reader of a report should do next: a few sentences with the command to type. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pdlab.loose import as_mapping, as_rows, as_text
from pdlab.report import formatting
from pdlab.results.model import Report
from pdlab.store import RunContents
from pdlab.typed_options import typed_options


@dataclass(frozen=True)
class Step:
    """One thing to do; `command` is what to type, when there is something to type."""

    text: str
    command: str | None = None


def around_command(advice: str) -> tuple[str, str | None, str]:
    """An advice as its words, the command that stands between backticks in it, and the words after that.

    Without a pair of backticks all of it is words.
    """
    said, _tick, rest = advice.partition("`")
    command, closed, after = rest.partition("`")
    return (said, command, after) if closed else (advice, None, "")


def next_steps(contents: RunContents, report: Report) -> list[Step]:
    """The next things to do, most useful first."""
    option = _options(report)
    if report.status == "running":
        return [Step("This run goes on. See how far it is:", f"pdlab status{option}")]
    if report.ok:
        return _after_success(contents, report, option)
    steps = _cures(contents)
    if _wrong_results(report):
        steps.append(
            Step(
                "Do not use what runs now, nor any figure of it: an answer, the oracle or the KV transfer is wrong. "
                "Start every server anew and ask again:",
                f"pdlab rebuild{option}",
            )
        )
    failed = [point for point in report.points if not point.ok and point.measured]
    if failed or any(point.error_lines for point in report.points):
        steps.append(Step("Read the servers' logs around the failed point:", f"pdlab logs{option}"))
    elif report.stopped_at in ("deploy", "ready"):
        names = _failed_servers(report)
        steps += [Step(f"Read the log of {name}:", f"pdlab logs {shlex.quote(name)}{option}") for name in names]
        if not names:
            steps.append(Step("Read the servers' logs:", f"pdlab logs{option}"))
    again = {"benchmark": "bench", "verify": "verify", "preflight": "preflight"}.get(report.stopped_at or "", "up")
    text = {
        "bench": "When the cause is gone, measure again on what runs:",
        "preflight": "Then look at the host again, which changes nothing on it:",
    }.get(again, "Then run it again; what is already right is left as it is:")
    steps.append(Step(text, f"pdlab {again}{option}"))
    return steps


def curl_line(plan: Mapping[str, Any]) -> str | None:
    """A curl command that asks the running deployment a question; None when the plan has no router."""
    address, name = endpoint(plan), as_text(as_mapping(plan.get("model")).get("served_name"))
    if not address or not name:
        return None
    prompts = [row.get("prompt") for row in as_rows(plan.get("answers"))]
    question = str(next(filter(None, prompts), "What is the capital of France?"))
    body = {"model": name, "messages": [{"role": "user", "content": question}], "max_tokens": 32}
    data = shlex.quote(json.dumps(body, ensure_ascii=False))
    return f"curl -s {address}/v1/chat/completions -H 'Content-Type: application/json' -d {data}"


def endpoint(plan: Mapping[str, Any]) -> str | None:
    """The address of the OpenAI-compatible API, without /v1; None when the plan has no router."""
    return as_text(as_mapping(plan.get("router")).get("url"))


def _after_success(contents: RunContents, report: Report, option: str) -> list[Step]:
    plan = contents.plan or {}
    steps = []
    if (address := endpoint(plan)) and (line := curl_line(plan)):
        steps.append(Step(f"What was deployed answers at {address}/v1 (OpenAI-compatible):", line))
        steps.append(Step("Or ask it from here:", f'pdlab ask "What is the capital of France?"{option}'))
    if report.rehearsal and plan.get("device") == "cuda":
        if as_mapping(plan.get("model")).get("source") == "canary":
            steps.append(Step("To measure a model, name it in pd_model of the inventory, then:", f"pdlab up{option}"))
    elif report.rehearsal:
        steps.append(
            Step(
                "On a machine with GPUs, have an inventory written for it, then run pdlab up -i FOLDER:",
                "pdlab init -o FOLDER",
            )
        )
    steps.append(Step("Stop what runs, when it is no longer wanted:", f"pdlab down{option}"))
    return steps


def _cures(contents: RunContents) -> list[Step]:
    """What preflight itself says about each veto."""
    steps = []
    for host, record in contents.host_records("preflight").items():
        for verdict in as_rows(record.get("verdicts")):
            if verdict.get("severity") == "veto" and not verdict.get("ok"):
                steps.append(Step(f"{host}, {verdict.get('id')}: {verdict.get('cure') or verdict.get('why')}"))
    return steps


def _wrong_results(report: Report) -> bool:
    answers = [*report.answers, *report.stability]
    proofs = [proof.ok for proof in (report.oracle, report.kv_transfer) if proof is not None]
    return not all([answer.ok for answer in answers] + proofs)


def _failed_servers(report: Report) -> list[str]:
    prefix = "server-"
    return [failure.record[len(prefix) :] for failure in report.failures if failure.record.startswith(prefix)]


def _options(report: Report) -> str:
    """The inventory of the run, and what was laid over it with -e: without it, a command would mean another plan."""
    inventory = report.inventory
    named = [] if not inventory or inventory.endswith("inventory/local") else ["-i", inventory]
    laid_over = [word for option in typed_options(report.command) if option[0] == "-e" for word in option]
    words = [*named, *laid_over]
    return f" {formatting.shell_line(words)}" if words else ""
