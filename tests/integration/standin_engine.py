# SPDX-License-Identifier: Apache-2.0
"""A whole inventory around the stand-in: a wheel of it that a lock installs, a checkpoint of a few bytes, two servers.

What it proves is everything around an engine: environment, overlay, services, lock, bundle. The stand-in serves nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import zipfile
from pathlib import Path

from .conftest import HERE

# No index has this one, so that nothing but the stand-in can be taken for it.
VERSION = "0.5.23+standin"


def wheel(folder: Path) -> Path:
    """The stand-in as a wheel that calls itself sglang."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"sglang-{VERSION}-py3-none-any.whl"
    info = f"sglang-{VERSION}.dist-info"
    source = HERE / "standin"
    contents = {str(file.relative_to(source)): file.read_text() for file in sorted(source.rglob("*.py"))}
    contents[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: sglang\nVersion: {VERSION}\n"
    contents[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    rows = []
    for name, text in contents.items():
        sum_ = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        rows.append(f"{name},sha256={sum_},{len(text.encode())}")
    contents[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,"]) + "\n"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in contents.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return path


def engine_lock(folder: Path) -> Path:
    """A lock with hashes that has the stand-in's wheel, from this folder."""
    made = wheel(folder)
    path = folder / "engine.txt"
    sum_ = hashlib.sha256(made.read_bytes()).hexdigest()
    path.write_text(f"sglang @ {made.as_uri()} \\\n    --hash=sha256:{sum_}\n")
    return path


def index_lock(folder: Path) -> Path:
    """A lock with hashes that has the stand-in by name, from whatever index or folder of wheels is asked."""
    made = wheel(folder)
    path = folder / "by-name.txt"
    path.write_text(f"sglang=={VERSION} \\\n    --hash=sha256:{hashlib.sha256(made.read_bytes()).hexdigest()}\n")
    return path


def checkpoint(folder: Path) -> Path:
    """A checkpoint that is whole: one tensor of four bytes."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama"}))
    (folder / "tokenizer.json").write_text("{}")
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 4)
    return folder


def inventory(folder: Path, root: Path, lock: Path, model: Path, ports: list[int], **more: object) -> Path:
    """An inventory with two colocated servers under supervisor; `more` are further variables, null removes one."""
    folder.mkdir(parents=True, exist_ok=True)
    variables = {
        "pd_root": str(root),
        "pd_device": "cpu",
        "pd_rehearsal": False,
        "pd_service_manager": "supervisor",
        "pd_model": {"path": str(model), "served_name": "m"},
        "pd_engine": {"lock": str(lock), "uv": "{{ ansible_playbook_python | dirname }}/uv"},
        "pd_servers": [
            {"name": "one", "role": "colocated", "port": ports[0], "nccl_port": ports[2]},
            {
                "name": "two",
                "role": "colocated",
                "port": ports[1],
                "nccl_port": ports[3],
                "env": {"HUB_TOKEN": "s3cret"},
            },
        ],
        "pd_server_args": {"page-size": 16},
        **more,
    }
    host = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    hosts = {"all": {"children": {"pdlab": {"hosts": {"box": host}, "vars": variables}}}}
    (folder / "hosts.yml").write_text(json.dumps(hosts))
    return folder
