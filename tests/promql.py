# SPDX-License-Identifier: Apache-2.0
"""The dashboard's and the alerts' queries, and the metrics that a query asks for. Debian's package, fetched for hosts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import yaml

CHECKOUT = Path(__file__).resolve().parents[1]
FILES = CHECKOUT / "roles" / "observability" / "files"
DASHBOARD = json.loads((FILES / "pdlab-dashboard.json").read_text())
RULES = [rule for group in yaml.safe_load((FILES / "pdlab-rules.yml").read_text())["groups"] for rule in group["rules"]]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
EXPRESSIONS = [*QUERIES, *(rule["expr"] for rule in RULES)]
_METRIC = re.compile(r"\b((?:sglang:|smg_|DCGM_)[A-Za-z0-9_]+|up)\b(?=[{\[\s)]|$)")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\([^)]*\)")
_TEXT = re.compile(r'"[^"]*"')
_FILTER = re.compile(r"\$(arm|server|worker)\b")


def metrics(expression: str) -> list[str]:
    """The metrics of a PromQL expression, in order."""
    return _METRIC.findall(_GROUPING.sub("", _TEXT.sub('""', expression)))


def as_grafana_asks(query: str, window: str) -> str:
    """A query of the dashboard with its filters at All, and `window` for the interval that Grafana chooses."""
    return _FILTER.sub(".*", query).replace("$__rate_interval", window)


def fetch_prometheus() -> str | None:
    """Have Debian's prometheus in this machine's cache of packages, which test hosts see, too; or say why not."""
    if shutil.which("apt-get") is None:
        return "no apt-get here"
    command = ["apt-get", "-qq", "-y", "install", "--download-only", "--reinstall", "--no-install-recommends"]
    done = subprocess.run([*command, "prometheus"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"Debian's prometheus cannot be fetched: {done.stderr.strip()[-200:]}"
