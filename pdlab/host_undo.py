# SPDX-License-Identifier: Apache-2.0
"""What `pdlab undo` says: each host's settings that were put back, those that were not, and Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pdlab.loose import as_list, as_mapping
from pdlab.runner import Outcome

FATES = ("put_back", "already_back", "gone", "left_alone")


def undone(outcome: Outcome) -> dict[str, dict[str, Any]]:
    """By host: the settings of each fate, as {"setting", "was", "set", "now"}, and the packages that stay.

    `prometheus`: what was done to remove it; empty where there was none. `prometheus_data`: what it measured, which stays.
    """
    hosts: dict[str, dict[str, Any]] = {
        result.host: {name: as_list(result.result.get(name)) for name in (*FATES, "packages")}
        for result in outcome.of_action("host_settings")
    }
    for result in outcome.of_action("prometheus"):
        host = hosts.setdefault(result.host, {name: [] for name in (*FATES, "packages")})
        host["prometheus"] = as_list(result.result.get("actions"))
        host["prometheus_data"] = result.result.get("data")
    return hosts


def undone_lines(hosts: Mapping[str, Mapping[str, Any]], *, check: bool) -> list[str]:
    """The same for a person, one line a setting."""
    lines = []
    for host, found in hosts.items():
        said = [f"{word}: {text}" for word, text in _said(found, check)]
        lines += [f"{host}: {line}" for line in said or ["nothing is remembered, so nothing was put back"]]
    return lines


def _said(found: Mapping[str, Any], check: bool) -> list[tuple[str, str]]:
    said = []
    for name, entries in ((name, found[name]) for name in FATES):
        for entry in map(as_mapping, entries):
            setting, was, given, now = (str(entry.get(key)) for key in ("setting", "was", "set", "now"))
            if name == "put_back":
                said.append(("would put back" if check else "put back", f"{setting}: {now} -> {was}"))
            elif name == "already_back":
                said.append(("was back already", f"{setting}: {was}"))
            elif name == "gone":
                said.append(("is not there any more", setting))
            else:
                text = f"{setting}: it was {was}, pdlab set {given}, somebody made it {now}"
                said.append(("LEFT ALONE", f"{text}; `pdlab undo --force` puts {was} back"))
    if found.get("prometheus"):
        said.append(("would be removed" if check else "removed", "Prometheus, its unit and its files"))
        if found.get("prometheus_data"):
            path = found["prometheus_data"]
            said.append(("stays", f"what Prometheus measured; remove by hand: sudo rm -r {path}"))
    if found["packages"]:
        names = " ".join(map(str, found["packages"]))
        said.append(("packages stay", f"{names}; remove by hand: sudo apt-get remove {names}"))
    return said
