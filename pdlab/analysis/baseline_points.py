# SPDX-License-Identifier: Apache-2.0
"""A shipped baseline (pdlab/bench/baselines) as points to analyse, with what it did not note as remarks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pdlab.analysis.measurement import KvFacts, Measurement, Servers, mean_length
from pdlab.loose import as_integer, as_mapping, as_number, as_rows


def baseline_points(document: Mapping[str, Any]) -> tuple[Measurement, ...]:
    """The points of a baseline file's content, arm by arm.

    The baseline notes tok/s, not requests: these are tok/s over the mean output length, which for drawn lengths is that
    of the draw's distribution, not of the draw. A latency whose kind is unstated is taken as a mean. A figure without
    tok/s makes no point.
    """
    lengths, assumed = as_mapping(document.get("lengths")), as_mapping(document.get("assumed"))
    ratio = as_number(lengths.get("range_ratio"))
    input_len = mean_length(as_integer(lengths.get("input_len")) or 1, ratio)
    output_len = mean_length(as_integer(lengths.get("output_len")) or 1, ratio)
    kv = KvFacts(as_number(assumed.get("kv_bytes_per_token_at_most")), as_number(assumed.get("kv_path_gb_s_at_least")))
    found = []
    for name, arm in as_mapping(document.get("arms")).items():
        said = as_mapping(arm)
        counts = as_mapping(said.get("servers"))
        servers = Servers(
            prefill=as_integer(counts.get("prefill")) or 0,
            decode=as_integer(counts.get("decode")) or 0,
            colocated=as_integer(counts.get("colocated")) or 0,
            gpus=as_integer(said.get("gpus")),
        )
        for row in as_rows(document.get("points")):
            figures = as_mapping(row.get(name))
            rate = as_number(figures.get("output_tok_s"))
            if rate is None:
                continue
            ttft, ttft_kind = _latency(as_mapping(figures.get("ttft_ms")))
            tpot, tpot_kind = _latency(as_mapping(figures.get("tpot_ms")))
            notes = [f"TTFT is {ttft_kind}"] if ttft_kind not in ("the mean", "") else []
            notes += [f"TPOT is {tpot_kind}"] if tpot_kind not in ("the mean", "") else []
            notes += ["request rate from tok/s over the mean output length"] if (ratio or 0) < 1 else []
            if servers.disaggregated and kv.bytes_per_token_at_most:
                notes.append("KV bytes a token and the KV path's rate are assumed, not recorded")
            found.append(
                Measurement(
                    label=f"{name}-c{row.get('concurrency')}",
                    arm=str(name),
                    request_s=rate / output_len,
                    input_len=input_len,
                    output_len=output_len,
                    tpot_ms=tpot,
                    ttft_ms=ttft,
                    concurrency=as_number(row.get("concurrency")),
                    requested=as_integer(row.get("prompts")),
                    range_ratio=ratio,
                    servers=servers,
                    kv=kv if servers.disaggregated else KvFacts(),
                    notes=tuple(notes),
                )
            )
    return tuple(found)


def _latency(values: Mapping[str, Any]) -> tuple[float | None, str]:
    """The figure nearest to a mean, and what it is."""
    kinds = {"mean": "the mean", "unstated": "a figure of a kind that was not noted", "median": "a median"}
    for key, kind in kinds.items():
        value = as_number(values.get(key))
        if value is not None:
            return value, kind
    return None, ""
