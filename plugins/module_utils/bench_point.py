# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a benchmark point counts, and the record that it leaves. Pure.

A figure exists only when everything that was asked for came back: the client calls a request successful as soon as
its HTTP stream ended without an exception, and exits with 0 when all of them failed. So every request is looked at.
Field names are those of the client's JSONL object (sglang 0.5.23, sglang/benchmark/serving.py).
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils.bench_command import RANDOM_IDS
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_log import explaining, is_benign
from ansible_collections.pdlab.pdlab.plugins.module_utils.engine_log import plain as plain_text

# One value or one list a request: too much for a record; they stay in the raw file.
PER_REQUEST = (
    "input_lens",
    "output_lens",
    "ttfts",
    "itls",
    "generated_texts",
    "errors",
    "cached_tokens",
    "cached_tokens_details",
)
# The servers' own description, many kilobytes; a router answers 404 and the field is null then.
NOT_A_RESULT = ("server_info",)

# The client's words for the numbers of a POINT; those of lengths are its defaults for other data sets.
_ARGUMENTS = {"max_concurrency": "concurrency", "request_rate": "rate_s"}
_LENGTH_ARGUMENTS = {
    "random_input_len": "input_len",
    "random_output_len": "output_len",
    "random_range_ratio": "range_ratio",
}
FAULT, DOUBT = "fault", "doubt"
_ERROR_LINES = 40
_LINE_LENGTH = 500
_FAULT = re.compile(
    r"error|exception|fatal|fail|abort|crash|kill|signal|refused|timed out|unreachable|lost|panic", re.IGNORECASE
)
# The client prints each request's exception as one Python literal, traceback and all.
_PRINTED_ERROR = re.compile(r"^output\.error=(['\"].*['\"])$", re.MULTILINE)
# What it says on every good day, too.
_CLIENT_NOISE = re.compile(
    r"UserWarning|warnings\.warn|RLIMIT_NOFILE|^benchmark_args=|^Namespace\(|Failed requests?:\s*0|it/s\]|s/it\]"
)


def read_output(text: str) -> dict[str, Any] | None:
    """The client's result: the last whole JSON object of its JSONL file; None when there is none.

    The client appends one line a run; a line that was cut off is not a result.
    """
    for line in reversed(text.splitlines()):
        if line.strip():
            try:
                value = json.loads(line)
            except ValueError:
                return None
            return value if isinstance(value, dict) else None
    return None


def judge(
    point: Mapping[str, Any],
    output: Mapping[str, Any] | None,
    job: Mapping[str, Any],
    died: Sequence[Mapping[str, Any]] = (),
    asked: Mapping[str, int | None] | None = None,
    came_back: int | None = None,
) -> list[dict[str, Any]]:
    """The checks of the client's own output: [{"id", "ok", "seen", "wanted", "grade"}], named after what they find.

    What servers, router and client showed beside it is judged in bench_checks. A "fault" fails the point, a "doubt" only
    keeps it out of verdicts; all of these are faults.

    `point` is the POINT that was asked for; `output` the client's object (read_output);
    `job` how the client ended: {"reason", "exit_code", "seconds"} (leased_job, and "vanished" when that left no word);
    `died` the servers that were lost meanwhile: [{"name", "why"}];
    `asked` the tokens that the client drew in all: {"input", "output"} (bench_progress.asked_tokens);
    `came_back` how many requests had ended, well or not, by its last progress bar.
    Checks that only record something are always ok and say so in "wanted".
    """
    checks = [
        check(
            "server_died",
            not died,
            "; ".join(f"{server['name']}: {server['why']}" for server in died) or "none",
            "no server dies or restarts during the point",
        ),
        check(
            "over_time_limit",
            job.get("reason") != "limit",
            _seconds(job.get("seconds")),
            f"at most {point['limit_s']} s",
        ),
        _client_failed(job, bool(died)),
    ]
    if output is None:
        seen = f"none ({came_back} of {point['prompts']} requests had come back)" if came_back is not None else "none"
        checks.append(check("no_output", False, seen, "one JSON object in the client's output file"))
        return checks
    missing = [name for name in ("completed", *PER_REQUEST[:6]) if name not in output]
    if missing:
        checks.append(check("no_output", False, "without " + ", ".join(missing), "the client's whole JSON object"))
        return checks
    checks.append(check("no_output", True, "one JSON object", "one JSON object in the client's output file"))
    checks.append(_wrong_point(point, output))
    checks += _requests(point, output)
    checks += _lengths(point, output, asked or {})
    checks += _text(output)
    checks += _noted(output)
    return checks


def reasons(checks: Iterable[Mapping[str, Any]]) -> list[str]:
    """One line for each failed check, faults first: what was found and what was wanted."""
    failed = sorted((item for item in checks if not item["ok"]), key=lambda item: bool(item["grade"] != FAULT))
    return [f"{item['id']}: {item['seen']} (wanted: {item['wanted']})" for item in failed]


def record(
    point: Mapping[str, Any],
    output: Mapping[str, Any] | None,
    job: Mapping[str, Any],
    checks: Sequence[Mapping[str, Any]],
    error_lines: Sequence[str] = (),
    watched: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The document records/point-LABEL.json of a run. `watched` has "engine", "box" and "client" (bench_watched).

    A failed point says why and carries the error lines of the engine and of the client, and no figure: its
    "result" is None. Values that JSON cannot hold become text ("inf") or None (not a number).
    """
    ok = all(item["ok"] for item in checks if item["grade"] == FAULT)
    seen = watched or {}
    lines: list[str] = []
    if not ok:
        lines = list(dict.fromkeys([*client_errors(output), *error_lines]))[:_ERROR_LINES]
    return {
        "label": point["label"],
        "workload": point.get("workload"),
        "loop": point.get("loop") or "closed",
        "concurrency": point.get("concurrency"),
        "rate_s": point.get("rate_s"),
        "limits": [
            {name: value for name, value in limits.items() if value is not None} for limits in point.get("limits") or []
        ],
        "dataset": point.get("dataset") or "random-ids",
        "requested": point["prompts"],
        "completed": _completed(output),
        "input_len": point["input_len"],
        "output_len": point["output_len"],
        "range_ratio": point["range_ratio"],
        "seed": point["seed"],
        "ok": ok,
        "counts": all(item["ok"] for item in checks),
        "why": reasons(checks),
        "error_lines": lines,
        "seconds": job.get("seconds"),
        "checks": [dict(item) for item in checks],
        "client": {
            **{name: job.get(name) for name in ("argv", "reason", "exit_code", "seconds", "cpu_s")},
            **seen.get("client", {}),
        },
        "warmup": seen.get("warmup"),
        "engine": seen.get("engine"),
        "box": seen.get("box"),
        "result": figures(output) if ok and output is not None else None,
    }


def figures(output: Mapping[str, Any]) -> dict[str, Any]:
    """The client's object without what it keeps per request, in plain JSON values."""
    return {name: plain(value) for name, value in output.items() if name not in PER_REQUEST + NOT_A_RESULT}


def plain(value: Any) -> Any:
    """The same value with infinities as text and not-a-number as None, so that strict JSON can hold it."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def client_errors(output: Mapping[str, Any] | None) -> list[str]:
    """The requests' errors as the client kept them, the same one told once: "client: 17 × HTTP error text"."""
    counted = Counter(_last_line(error) for error in (output or {}).get("errors") or [] if error)
    return [
        f"client: {count} × {error[:_LINE_LENGTH]}" if count > 1 else f"client: {error[:_LINE_LENGTH]}"
        for error, count in counted.most_common()
    ]


def tells_fault(line: str) -> bool:
    """Whether a log line speaks of something that went wrong."""
    return _FAULT.search(line) is not None and not is_benign(line)


def client_log_errors(log: str, limit: int) -> list[str]:
    """The lines of the client's log that tell of a fault, the same one told once, at most `limit`.

    Needed where the client was ended before it could write its output.
    """
    printed = Counter(_last_line(_literal(text)) for text in _PRINTED_ERROR.findall(log))
    lines = [f"{count} × {line}" if count > 1 else line for line, count in printed.most_common()]
    rest = [
        line
        for line in plain_text(_PRINTED_ERROR.sub("", log)).splitlines()
        if tells_fault(line) and not _CLIENT_NOISE.search(line)
    ]
    return [line[:_LINE_LENGTH] for line in [*lines, *explaining(rest, limit)]][:limit]


def _literal(text: str) -> str:
    try:
        return str(ast.literal_eval(text))
    except (SyntaxError, ValueError):
        return text


def _client_failed(job: Mapping[str, Any], server_died: bool) -> dict[str, Any]:
    reason, code = job.get("reason"), job.get("exit_code")
    wanted = "the client ends by itself with exit status 0"
    if reason == "exited":
        seen = f"exit status {code}" if code is None or code >= 0 else f"ended by signal {-code}"
        return check("client_failed", code == 0, seen, wanted)
    seen = {
        "limit": "ended at the time limit",
        "lease": "ended, because the controller had not asked for its progress for too long",
        "stopped": "ended, because a server had died" if server_died else "ended by somebody",
        "vanished": "gone without a word (killed, or the machine restarted)",
        None: "never started",
    }.get(reason, str(reason))
    return check("client_failed", False, seen, wanted)


def _wrong_point(point: Mapping[str, Any], output: Mapping[str, Any]) -> dict[str, Any]:
    words = {**_ARGUMENTS, **(_LENGTH_ARGUMENTS if output.get("dataset_name") == RANDOM_IDS else {})}
    different = [
        f"{theirs} {output.get(theirs)}, not {point.get(ours)}"
        for theirs, ours in words.items()
        if _said(output.get(theirs)) != point.get(ours)
    ]
    return check(
        "wrong_point", not different, "; ".join(different) or "as asked", "the output file tells of the point asked for"
    )


def _requests(point: Mapping[str, Any], output: Mapping[str, Any]) -> list[dict[str, Any]]:
    requested, errors = point["prompts"], [error for error in output["errors"] if error]
    seen = f"{output['completed']} of {requested}"
    if len(output["errors"]) != requested:
        seen += f", {len(output['errors'])} sent"
    return [
        check(
            "requests_missing",
            output["completed"] == requested and len(output["errors"]) == requested,
            seen,
            f"{requested} of {requested} completed",
        ),
        check(
            "request_errors",
            not errors,
            f"{len(errors)}: {_last_line(errors[0])[:_LINE_LENGTH]}" if errors else "0",
            "no request ends with an error",
        ),
    ]


def _lengths(
    point: Mapping[str, Any], output: Mapping[str, Any], asked: Mapping[str, int | None]
) -> list[dict[str, Any]]:
    return [
        _length(
            "input_length_wrong", output["input_lens"], point["input_len"], point["range_ratio"], asked.get("input")
        ),
        _length(
            "output_length_wrong", output["output_lens"], point["output_len"], point["range_ratio"], asked.get("output")
        ),
    ]


def _length(identity: str, lengths: Sequence[int], full: int, ratio: float, asked: int | None) -> dict[str, Any]:
    """Each request within what the client may draw, and all together what it said that it drew."""
    least = full if ratio >= 1.0 else max(int(full * ratio), 1)
    wrong = [length for length in lengths if not least <= length <= full]
    total = sum(lengths)
    wanted = f"{full} tokens a request" if least == full else f"{least} to {full} tokens a request"
    if asked is not None:
        wanted += f", {asked} in all"
    seen = (
        f"{total} in all" if not wrong else f"{len(wrong)} requests with {min(wrong)} to {max(wrong)}, {total} in all"
    )
    return check(identity, not wrong and (asked is None or total == asked), seen, wanted)


def _text(output: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The client stamps the first token at the first text, so tokens without text have a TTFT of 0 and no TPOT."""
    rows = [
        (ttft, length, text)
        for ttft, length, text, error in zip(  # noqa: B905  strict= came with Python 3.10
            output["ttfts"], output["output_lens"], output["generated_texts"], output["errors"]
        )
        if not error
    ]
    zero = sum(1 for ttft, _length_, _text_ in rows if not ttft > 0)
    silent = sum(1 for _ttft, length, text in rows if length > 0 and not text)
    return [
        check("ttft_zero", not zero, f"{zero} requests", "every first token has a time"),
        check("tokens_without_text", not silent, f"{silent} requests", "output tokens have text"),
    ]


def _noted(output: Mapping[str, Any]) -> list[dict[str, Any]]:
    noted = []
    total, again = output.get("total_output_tokens"), output.get("total_output_tokens_retokenized")
    if total and again is not None:
        noted.append(
            check(
                "retokenized_drift",
                True,
                f"{again} of {total} tokens ({again / total - 1.0:+.1%})",
                "noted: the output's text, tokenized again",
            )
        )
    return noted


def _completed(output: Mapping[str, Any] | None) -> int:
    """Requests that ended without an error, as the client counts them; 0 when it left no word."""
    completed = (output or {}).get("completed")
    return completed if isinstance(completed, int) else 0


def check(identity: str, ok: bool, seen: str, wanted: str, grade: str = FAULT) -> dict[str, Any]:
    """One check's result."""
    return {"id": identity, "ok": ok, "seen": seen, "wanted": wanted, "grade": grade}


def _said(value: Any) -> Any:
    """The client's request rate without a limit is infinity, which is how a closed loop is asked for."""
    return None if value in (math.inf, "inf") else value


def _last_line(text: str) -> str:
    """Of a traceback the line that names the fault; of anything else its last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _seconds(value: Any) -> str:
    return "unknown" if value is None else f"{value:.1f} s"
