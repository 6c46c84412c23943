# SPDX-License-Identifier: Apache-2.0
"""A box that nobody recorded, derived from one that was: h200-x8 is h200-x2 with its GPUs four times.

    .venv/bin/python tests/boxes/from_recording.py

writes its tree beside this file. Repeated are the GPUs in every answer of the driver and on the PCI bus, all joined by
the same NVLinks; the number of CPUs and the memory are those of the larger machine of the same kind. All the rest is
the small box to the letter. What it cannot know: how such a machine's nodes are cut, and what its PCI bus looks like.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parents[1] / ".collections"))

from ansible_collections.pdlab.pdlab.plugins.module_utils.facts import recording  # noqa: E402 - the path first

SOURCE = HERE / "h200-x2"
NAME = "h200-x8"
GPUS, CPUS, MEMORY_KIB = 8, 128, 560 * 1024**2
ABOUT = {
    "what": f"{GPUS}x NVIDIA H200 with NVLink (18 links each), {CPUS} CPUs, 1 NUMA node, Ubuntu 24.04, in a "
    "virtual machine without systemd; the GPUs' NUMA node is -1 and no IOMMU or bridge is shown to the guest",
    "kind": "derived",
    "from": "the recording h200-x2, its GPUs repeated by from_recording.py. Never seen.",
}
SMI = f"{recording.COMMANDS}/nvidia-smi"
DEVICES = f"{recording.ROOT}/sys/bus/pci/devices"
_GPU = re.compile(r"\t<gpu id=.*?\n\t</gpu>\n", re.DOTALL)


def address(gpu: int) -> str:
    """Where a GPU lies on the PCI bus: they follow each other, as the two do."""
    return f"0000:00:{6 + gpu:02x}.0"


def tree() -> dict[str, str]:
    """{path in the recording: text}."""
    source = {str(path.relative_to(SOURCE)): path.read_text() for path in SOURCE.rglob("*") if path.is_file()}
    gpu = f"{DEVICES}/{address(0)}/"
    found = {name: text for name, text in source.items() if not name.startswith((gpu, f"{DEVICES}/{address(1)}/"))}
    for number in range(GPUS):
        found.update(
            {name.replace(address(0), address(number)): text for name, text in source.items() if name.startswith(gpu)}
        )
    found[recording.BOX] = recording.about_yaml(ABOUT)
    found[f"{SMI}-q-x.out"] = smi_xml(source[f"{SMI}-q-x.out"])
    found[f"{SMI}-topo-m.out"] = topology(source[f"{SMI}-topo-m.out"])
    for way in "rw":
        found[f"{SMI}-topo-p2p-{way}.out"] = peers(source[f"{SMI}-topo-p2p-{way}.out"])
    capability = next(name for name in source if name.startswith(f"{SMI}-query-gpu"))
    found[capability] = "".join(f"0000{address(number).upper()}, 9.0\n" for number in range(GPUS))
    links = {name: target for name, target in json.loads(source[recording.LINKS]).items() if address(1) not in name}
    first = f"/sys/bus/pci/devices/{address(0)}"
    for number in range(1, GPUS):
        links[first.replace(address(0), address(number))] = links[first].replace(address(0), address(number))
    found[recording.LINKS] = json.dumps(links, indent=1) + "\n"
    answers = json.loads(source[recording.ANSWERS_FILE])
    answers["cpus"] = {"count": CPUS, "usable": CPUS}
    found[recording.ANSWERS_FILE] = json.dumps(answers, indent=1) + "\n"
    found[f"{recording.ROOT}/sys/devices/system/node/node0/cpulist"] = f"0-{CPUS - 1}\n"
    found[f"{recording.ROOT}/proc/meminfo"] = memory(source[f"{recording.ROOT}/proc/meminfo"])
    return found


def smi_xml(text: str) -> str:
    """`nvidia-smi -q -x` with each GPU's part made from the two that are there, in turn."""
    both = _GPU.findall(text)
    head, tail = text.split(both[0])[0], text.split(both[1])[1]
    # Between two GPUs stands an empty line.
    body = "\n".join(_smi_gpu(both[number % 2], number) for number in range(GPUS))
    return head.replace("<attached_gpus>2<", f"<attached_gpus>{GPUS}<") + body + tail


def _smi_gpu(text: str, number: int) -> str:
    device = f"{6 + number:02X}"
    replaced = {
        r'gpu id="[^"]*"': f'gpu id="00000000:00:{device}.0"',
        r"<uuid>[^<]*<": f"<uuid>GPU-00000000-0000-0000-0000-{number + 1:012d}<",
        r"<minor_number>\d+<": f"<minor_number>{number}<",
        r"<board_id>[^<]*<": f"<board_id>0x{6 + number:x}<",
        r"<module_id>\d+<": f"<module_id>{number + 1}<",
        r"<pci_device>[^<]*<": f"<pci_device>{device}<",
        r"<pci_bus_id>[^<]*<": f"<pci_bus_id>00000000:00:{device}.0<",
    }
    for pattern, words in replaced.items():
        text, times = re.subn(pattern, words, text)
        assert times == 1, pattern
    return text


def topology(text: str) -> str:
    """`nvidia-smi topo -m`: the word of the pair for every pair."""
    head, _first, _second, *rest = text.splitlines(keepends=True)
    words = [["NV18" if a != b else " X " for b in range(GPUS)] for a in range(GPUS)]
    rows = [f"GPU{a}\t" + "\t".join(row) + f"\t0-{CPUS - 1}\t0\t\tN/A\n" for a, row in enumerate(words)]
    return "".join([head.replace("GPU0\tGPU1", _names()), *rows, *rest])


def peers(text: str) -> str:
    """`nvidia-smi topo -p2p`: the word of the pair for every pair."""
    head, _first, _second, *rest = text.splitlines(keepends=True)
    rows = [f" GPU{a}\t" + "".join("X\t" if a == b else "OK\t" for b in range(GPUS)) + "\n" for a in range(GPUS)]
    return "".join([head.replace("GPU0\tGPU1", _names()), *rows, *rest])


def _names() -> str:
    return "\t".join(f"GPU{number}" for number in range(GPUS))


def memory(text: str) -> str:
    """/proc/meminfo: as much in use as there, of more."""
    total = int(text.split()[1])
    more = {
        name: int(kib) + MEMORY_KIB - total
        for name, kib in re.findall(r"^(MemTotal|MemFree|MemAvailable): +(\d+) kB", text, re.MULTILINE)
    }
    return re.sub(
        r"^(MemTotal|MemFree|MemAvailable): +\d+ kB",
        lambda found: f"{found[1] + ':':<15} {more[found[1]]:>9} kB",
        text,
        flags=re.MULTILINE,
    )


def main() -> None:
    shutil.rmtree(HERE / NAME, ignore_errors=True)
    for name, text in tree().items():
        path = HERE / NAME / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    print(HERE / NAME)


if __name__ == "__main__":
    main()
