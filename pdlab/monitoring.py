# SPDX-License-Identifier: Apache-2.0
"""The files of `pdlab monitoring`: what a Prometheus and a Grafana that are there already need to watch a deployment."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.pdlab.pdlab.plugins.module_utils import scrape_files
from ansible_collections.pdlab.pdlab.plugins.module_utils.text_file import replace_text

from pdlab.collection import collection_root


def files(plan: Mapping[str, Any]) -> dict[str, str]:
    """Every file's text by its name."""
    shipped = collection_root() / "roles" / "observability" / "files"
    interval_s = plan["monitoring"]["interval_s"]
    return {
        scrape_files.CONFIG: scrape_files.config_text(interval_s),
        scrape_files.SCRAPE: scrape_files.scrape_text(interval_s),
        scrape_files.TARGETS: scrape_files.targets_text(scrape_files.targets(plan)),
        **{name: (shipped / name).read_text(encoding="utf-8") for name in (scrape_files.RULES, scrape_files.DASHBOARD)},
    }


def write_files(plan: Mapping[str, Any], folder: Path) -> dict[Path, bool]:
    """Write them all; return for each whether that changed it. Raises OSError when the folder cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    return {folder / name: replace_text(str(folder / name), text) for name, text in files(plan).items()}


def notes(plan: Mapping[str, Any], folder: Path) -> list[str]:
    """What to do with them, and what stands in the way."""
    here = folder.resolve()
    lines = [
        "A Prometheus of its own:",
        f"  prometheus --config.file={shlex.quote(str(here / scrape_files.CONFIG))}",
        "A Prometheus that is there, 2.43 or newer: add to its prometheus.yml",
        f"  scrape_config_files: [{here / scrape_files.SCRAPE}]",
        f"  rule_files: [{here / scrape_files.RULES}]",
        f"Grafana: Dashboards, New, Import; choose {scrape_files.DASHBOARD}",
    ]
    alone = scrape_files.loopback_hosts(plan)
    if alone:
        who = ", ".join(alone)
        lines.append(
            f"Note: what listens on a loopback address of {who} can be asked from {who} only. To ask from elsewhere"
        )
        lines.append("  set pd_address of the host, and pd_router.prometheus_host.")
    return lines
