# SPDX-License-Identifier: GPL-3.0-or-later
"""Personal details, taken out of a recording: the same one is replaced by the same stand-in everywhere.

Host and user names, addresses, UUIDs, MACs, serial numbers and command lines go. What a reader of facts needs
stays. Stand-in addresses are those that RFC 5737, RFC 3849 and RFC 7042 set aside for documentation.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable
from typing import Any

_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE)
_MAC = re.compile(r"(?<![\w:])[0-9a-f]{2}(?::[0-9a-f]{2}){5}(?![\w:])", re.IGNORECASE)
# systemd's name for a card without a better one holds its MAC.
_MAC_NAME = re.compile(r"\benx[0-9a-f]{12}\b")
_HOME = re.compile(r"(/home/)(?!user-\d+\b)([^/\s:,;\"'<]+)")
_IPV4 = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.])")
_IPV6 = re.compile(r"(?<![\w:.])[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,7}(?![\w:.])", re.IGNORECASE)
_SECRET_TAG = re.compile(r"<(\w*(?:serial|guid|pdi|part_number|license)\w*)>[^<]*</\1>")
_LONG_BLOCK = re.compile(r"[ \t]*<(supported_clocks|accounted_processes)>.*?</\1>\n?", re.DOTALL)
_PROCESS_NAME = re.compile(r"(<process_name>)([^<]*)(</process_name>)")
# The kernel parameters that say something about GPUs, memory and CPUs. All others are left out.
_PARAMETERS = re.compile(
    r"(iommu|amd_iommu|intel_iommu|pci|pcie\w*|hugepages\w*|default_hugepagesz|transparent_hugepage|numa\w*|isolcpus|"
    r"nohz\w*|mitigations|nvidia[\w.-]*|nouveau[\w.-]*|intel_pstate|amd_pstate|cpufreq[\w.]*|processor[\w.]*|"
    r"intel_idle[\w.]*|systemd\.unified_cgroup_hierarchy|cgroup\w*|swiotlb|iomem)(=.*)?"
)
_INITS = {"systemd", "init", "tini", "dumb-init", "docker-init", "catatonit", "s6-svscan", "runit", "supervisord"}
_INITS |= {"bash", "sh", "sleep", "python3", "pause", "openrc-init", "launchd"}
# What distributions write into a kernel's release.
_RELEASE_WORDS = {"generic", "lowlatency", "amd64", "arm64", "x86_64", "aarch64", "cloud", "server", "rt", "pve"}
_RELEASE_WORDS |= {"aws", "azure", "gcp", "oracle", "nvidia", "kvm", "default", "hwe", "deb12", "deb13", "bpo"}
_GROUP = re.compile(r"[0-9a-f]+", re.IGNORECASE)
HOST = "box"
_LOOSE = {"0.0.0.0", "::", "::1", "255.255.255.255"}


# Names of hosts and users that are also words of facts: replacing them everywhere would spoil those.
_COMMON = set(
    [
        "admin",
        "amd",
        "box",
        "centos",
        "data",
        "debian",
        "default",
        "dev",
        "fedora",
        "gpu",
        "host",
        "intel",
        "linux",
        "local",
        "localhost",
        "main",
        "model",
        "models",
        "node",
        "nvidia",
        "opt",
        "python",
        "red",
        "rocky",
        "root",
        "server",
        "suse",
        "system",
        "test",
        "ubuntu",
        "user",
        "vm",
    ]
)
_SHORTEST_WORD = 3


class Redaction:
    """Replaces what is personal, and remembers by what."""

    def __init__(self, host: str, users: Iterable[str]) -> None:
        self._stand_ins: dict[tuple[str, str], str] = {}
        self._words = {name: HOST for name in (host, host.partition(".")[0]) if self._is_telling(name)}
        for user in sorted(users):
            if self._is_telling(user):
                self._words[user] = self._stand_in("user", user, "user-{}")

    @staticmethod
    def _is_telling(word: str) -> bool:
        return len(word) >= _SHORTEST_WORD and word.lower() not in _COMMON

    def text(self, text: str) -> str:
        """A text without what can be told from its look, and without the known words."""
        text = _HOME.sub(lambda found: found[1] + self._stand_in("user", found[2], "user-{}"), text)
        for word, stand_in in sorted(self._words.items(), key=lambda pair: -len(pair[0])):
            text = re.sub(rf"(?<![\w.-]){re.escape(word)}(?![\w-])", stand_in, text)
        uuid = self._numbered("uuid", "00000000-0000-0000-0000-{:012d}")
        mac = self._numbered("mac", "00:00:5e:00:53:{:02x}")
        text = _UUID.sub(uuid, text)
        text = _MAC.sub(mac, text)
        text = _MAC_NAME.sub(lambda found: "enx" + mac(found).replace(":", ""), text)
        text = _IPV4.sub(self._address, text)
        return _IPV6.sub(self._address, text)

    def file(self, path: str, text: str) -> str:
        """The content of a file of the box."""
        if path == "/proc/cmdline":
            return " ".join(word for word in text.split() if _PARAMETERS.fullmatch(word))
        if path == "/proc/cpuinfo":
            # All processors say the same, and hundreds of them.
            text = text.split("\n\n", 1)[0]
        if path == "/proc/1/comm" and text not in _INITS:
            return "init"
        return self.text(text)

    def output(self, argv: Iterable[str], text: str) -> str:
        """The output of a command."""
        if "-x" in argv:
            text = _LONG_BLOCK.sub("", _SECRET_TAG.sub(r"<\1>N/A</\1>", text))
            text = _PROCESS_NAME.sub(lambda found: found[1] + self.command(found[2]) + found[3], text)
        return self.text(text)

    def command(self, command: str) -> str:
        """A stand-in for a process's command line."""
        return self._stand_in("program", command, "program-{}") if command else ""

    def release(self, release: str) -> str:
        """A kernel's release with the distribution's words alone."""
        kept = ""
        for separator, word in re.findall(r"([-.+~]?)(x86_64|[^-.+~_]+)_?", release):
            if re.fullmatch(r"\d+|(el|fc)\d+", word) or word in _RELEASE_WORDS:
                kept += separator + word
        return kept

    def document(self, value: Any) -> Any:
        """Every string of a JSON document, keys included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.document(item) for item in value]
        if isinstance(value, dict):
            return {self.document(key): self.document(item) for key, item in value.items()}
        return value

    def _numbered(self, kind: str, form: str) -> Callable[[re.Match[str]], str]:
        return lambda found: self._stand_in(kind, found[0].lower(), form)

    def _address(self, found: re.Match[str]) -> str:
        try:
            address = ipaddress.ip_address(found[0])
        except ValueError:
            return found[0]
        # `0::/` is a line of /proc/self/cgroup and no address.
        if address.is_loopback or found[0] in _LOOSE or (address.version == 6 and len(_GROUP.findall(found[0])) < 2):
            return found[0]
        form = "192.0.2.{}" if address.version == 4 else "2001:db8::{:x}"
        return self._stand_in(f"ipv{address.version}", found[0].lower(), form)

    def _stand_in(self, kind: str, value: str, form: str) -> str:
        key = (kind, value)
        if key not in self._stand_ins:
            count = sum(known == kind for known, _value in self._stand_ins)
            self._stand_ins[key] = form.format(count + 1)
        return self._stand_ins[key]
