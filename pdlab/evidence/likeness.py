# SPDX-License-Identifier: Apache-2.0
"""Whether legs may be laid side by side: the same model, engine, GPUs and workloads. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

from pdlab.evidence.asked import asked_of
from pdlab.evidence.comparisons import load_words
from pdlab.evidence.legs import Leg
from pdlab.evidence.measured import servers_of
from pdlab.loose import as_mapping, as_rows, as_text
from pdlab.rehearsal import kind_of_run


def unlike_reasons(legs: Sequence[Leg]) -> list[str]:
    """Each thing in which legs differ that a comparison would blame on the arms. A thing that no record names is not
    held against anyone."""
    return [*unlike_stacks(legs), *(reason for reason in _unlike_workloads(legs) if reason)]


def unlike_stacks(legs: Sequence[Leg]) -> list[str]:
    """The same without the workloads: other models, engines or GPUs."""
    found = [
        _differing(what, legs, fact)
        for what, fact in (("kind of run", rehearsal), ("model", model), ("engine", engine), ("GPUs", gpus))
    ]
    return [reason for reason in found if reason]


def rehearsal(leg: Leg) -> str | None:
    """A CPU's figures beside a GPU's, the canary's beside another model's."""
    return kind_of_run(leg.contents.plan, leg.report.rehearsal)


def model(leg: Leg) -> str | None:
    """The models' fingerprints on the hosts, else where the plan finds the model."""
    seen = sorted({one.fingerprint for one in leg.report.models if one.fingerprint})
    return ", ".join(seen) or as_text(as_mapping((leg.contents.plan or {}).get("model")).get("path"))


def engine(leg: Leg) -> str | None:
    """The engines' fingerprints on the hosts."""
    return ", ".join(sorted({one.fingerprint for one in leg.report.engines if one.fingerprint})) or None


def gpus(leg: Leg) -> str | None:
    """How many GPUs the servers hold, and of which kind."""
    count = servers_of(leg.contents.plan or {}).gpus
    names = {
        str(gpu.get("name"))
        for record in leg.contents.host_records("preflight").values()
        for gpu in as_rows(as_mapping(as_mapping(record.get("facts")).get("gpu")).get("gpus"))
        if gpu.get("name")
    }
    return None if count is None else " ".join([f"{count} x", *sorted(names)] if names else [f"{count}"])


def _differing(what: str, legs: Sequence[Leg], fact: Callable[[Leg], str | None]) -> str | None:
    by_value: dict[str, list[str]] = {}
    for leg in legs:
        value = fact(leg)
        if value is not None:
            by_value.setdefault(value, []).append(leg.id)
    return _said(what, by_value) if len(by_value) > 1 else None


def _said(what: str, by_value: Mapping[str, Sequence[str]]) -> str:
    parts = [f"{value} ({_some(ids)})" for value, ids in by_value.items()]
    return f"other {what}: {' against '.join(parts)}"


def _some(ids: Sequence[str]) -> str:
    return ", ".join(ids) if len(ids) < 4 else f"{ids[0]} and {len(ids) - 1} more"


def _unlike_workloads(legs: Sequence[Leg]) -> list[str]:
    """A load of a workload that was asked in two ways: other lengths, other prompts, another data set."""
    seen: dict[tuple[str, str], dict[Hashable, list[str]]] = {}
    for leg in legs:
        plan = leg.contents.plan or {}
        for point in leg.report.points:
            asked = asked_of(point, plan)
            if asked.load.concurrency is None and asked.load.rate_s is None:
                continue
            lengths = f"{point.input_len} in, {point.output_len} out, range ratio {point.range_ratio}"
            said = f"{lengths}, {point.requested} prompts, {point.dataset or 'random-ids'}"
            seen.setdefault((asked.workload, load_words(asked.load)), {}).setdefault(said, []).append(leg.id)
    return [
        _said(f"workload {workload} at {load}", {str(value): ids for value, ids in ways.items()})
        for (workload, load), ways in seen.items()
        if len(ways) > 1
    ]
