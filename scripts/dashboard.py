#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the Grafana dashboard from the table of its panels (dashboard.yml). `--check` only says whether it is current.

Grafana's JSON model, as versions 10 to 12 import it. Why no library writes it is in docs/decisions/0022.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

TABLE = Path(__file__).with_suffix(".yml")
DASHBOARD = Path(__file__).resolve().parent.parent / "roles" / "observability" / "files" / "pdlab-dashboard.json"
# Grafana's grid has 24 columns.
WIDTH = 24
ABREAST = {False: 3, True: 6}
HEIGHT = {False: 8, True: 4}
# "datasource" is what whoever imports the dashboard chooses.
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Filters: the variable, what it is called, and where its values are found.
FILTERS = (
    ("arm", "Arm", 'label_values(up{job="pdlab"}, arm)'),
    ("server", "Server", 'label_values(up{job="pdlab", arm=~"$arm"}, server)'),
    ("worker", "Router's worker", 'label_values(smg_worker_health{arm=~"$arm"}, worker)'),
)


def dashboard(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The dashboard's JSON model."""
    return {
        "uid": "pdlab",
        "title": "pdlab: prefill and decode",
        "description": "SGLang with prefill and decode apart: latency, queues, KV transfer, router, GPUs.",
        "tags": ["pdlab", "sglang"],
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "schemaVersion": 38,
        "templating": {"list": [_source(), *(_filter(*entry) for entry in FILTERS)]},
        "panels": list(_panels(rows)),
    }


def promql(legend: str, query: Mapping[str, Any], where: str) -> str:
    """One query of the table, as {form: metric}. Raises ValueError on a form that there is not."""
    ((form, metric),) = query.items()
    labels = re.findall(r"{{(\w+)}}", legend)

    def by(*more: str) -> str:
        return f" by ({', '.join([*labels, *more])}) " if [*labels, *more] else ""

    def rate(name: str, *more: str) -> str:
        return f"sum{by(*more)}(rate({name}{{{where}}}[$__rate_interval]))"

    if form == "promql":
        return str(metric)
    if form in ("sum", "max", "min"):
        return f"{form}{by()}({metric}{{{where}}})"
    if form == "rate":
        return rate(metric)
    if form == "share":
        return f"{rate(metric[0])} / {rate(metric[1])}"
    if form == "mean":
        return f"{rate(metric + '_sum')} / {rate(metric + '_count')}"
    quantile = re.match(r"p(\d\d)\b", legend)
    if form == "quantile" and quantile:
        return f"histogram_quantile(0.{quantile[1]}, {rate(metric + '_bucket', 'le')})"
    raise ValueError(f"{legend}: {form} is no form of a query")


def _source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _filter(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _panels(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """A row's title, then its panels from left to right, one line after the other."""
    number, top = 0, 0
    for row in rows:
        number += 1
        place = {"x": 0, "y": top, "w": WIDTH, "h": 1}
        yield {"id": number, "type": "row", "title": row["title"], "collapsed": False, "gridPos": place, "panels": []}
        top += 1
        stat = any(panel.get("stat") for panel in row["panels"])
        for index, panel in enumerate(row["panels"]):
            number += 1
            line, column = divmod(index, ABREAST[stat])
            width, height = WIDTH // ABREAST[stat], HEIGHT[stat]
            place = {"x": column * width, "y": top + line * height, "w": width, "h": height}
            where = ", ".join(['arm=~"$arm"', *(part["where"] for part in (row, panel) if "where" in part)])
            yield {"id": number, "gridPos": place, **_panel(panel, where)}
        top += HEIGHT[stat] * -(-len(row["panels"]) // ABREAST[stat])


def _panel(panel: Mapping[str, Any], where: str) -> dict[str, Any]:
    stat = bool(panel.get("stat"))
    defaults: dict[str, Any] = {"unit": panel["unit"]}
    options: dict[str, Any] = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "none", "textMode": "auto"}
    if not stat:
        defaults |= {"min": 0, "custom": {"lineWidth": 1, "fillOpacity": 0, "showPoints": "never", "spanNulls": False}}
        options = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
    return {
        "type": "stat" if stat else "timeseries",
        "title": panel["title"],
        "description": panel["says"],
        "datasource": SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "expr": promql(legend, query, where),
                "legendFormat": legend,
                "datasource": SOURCE,
            }
            for index, (legend, query) in enumerate(panel["queries"].items())
        ],
    }


def main() -> int:
    text = json.dumps(dashboard(yaml.safe_load(TABLE.read_text(encoding="utf-8"))), indent=1) + "\n"
    current = DASHBOARD.exists() and DASHBOARD.read_text(encoding="utf-8") == text
    if sys.argv[1:] == ["--check"]:
        if not current:
            print(f"{DASHBOARD} is not what {TABLE} says: run scripts/dashboard.py", file=sys.stderr)
        return int(not current)
    DASHBOARD.write_text(text, encoding="utf-8")
    print(f"{DASHBOARD}: {'unchanged' if current else 'written'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
