# SPDX-License-Identifier: Apache-2.0
"""A bundle: one folder from which a controller and a box are made without a network.

Wheels of every requirement of the controller, the engine and supervisor, for some Python versions of one platform,
with uv's binary, pdlab itself, the requirements with their hashes, and a short script.

uv cannot download wheels for later, so pip does. pip judges environment markers by the Python that runs it, whatever
--python-version says (pip issue 11664), so they are judged here, by `packaging`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from pdlab import __version__
from pdlab.collection import CHECKOUT, PACKAGE, collection_root

PIP = "pip>=25"
SHIPPED = Path(__file__).resolve().parent / "bundle_files"
# glibc 2.35 is that of Ubuntu 22.04: wheels for it run there and on everything newer.
DEFAULT_GLIBC = "2.35"
MACHINES = ("x86_64", "aarch64")
_OLDEST_GLIBC_MINOR = {"x86_64": 5, "aarch64": 17}
_LEGACY = {"x86_64": ("manylinux2014", "manylinux2010", "manylinux1"), "aarch64": ("manylinux2014",)}
_TAIL_LINES = 15


class BundleError(Exception):
    """A bundle cannot be made; the message says why and what to do."""


@dataclass(frozen=True)
class Target:
    """For whom: Python versions ("3.12"), the machine as `uname -m` says, and its glibc ("2.35")."""

    pythons: tuple[str, ...]
    machine: str = "x86_64"
    glibc: str = DEFAULT_GLIBC

    def __post_init__(self) -> None:
        """Raises BundleError for what pip would misunderstand."""
        for version in self.pythons:
            major, _dot, minor = version.partition(".")
            if major != "3" or not minor.isdigit():
                raise BundleError(f"--python {version}: write a version as 3.12")
        major, _dot, minor = self.glibc.partition(".")
        if major != "2" or not minor.isdigit():
            raise BundleError(f"--glibc {self.glibc}: write a version as 2.35 (`ldd --version` says it)")
        if self.machine not in MACHINES:
            raise BundleError(f"--machine {self.machine}: known are {', '.join(MACHINES)}")

    def platforms(self) -> list[str]:
        """The platform tags that such a machine takes, the newest first (PEP 600 and its predecessors)."""
        newest, oldest = int(self.glibc.split(".")[1]), _OLDEST_GLIBC_MINOR[self.machine]
        tags = [f"manylinux_2_{minor}_{self.machine}" for minor in range(newest, oldest - 1, -1)]
        return [*tags, *(f"{name}_{self.machine}" for name in _LEGACY[self.machine]), f"linux_{self.machine}"]

    def environments(self, python: str) -> list[dict[str, str]]:
        """What markers are judged by there (PEP 508): for the first release of that Python and for a last one."""
        return [self._environment(python, patch) for patch in ("0", "99")]

    def _environment(self, python: str, patch: str) -> dict[str, str]:
        return {
            "implementation_name": "cpython",
            "implementation_version": f"{python}.{patch}",
            "os_name": "posix",
            "platform_machine": self.machine,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": f"{python}.{patch}",
            "python_version": python,
            "sys_platform": "linux",
            "extra": "",
        }


@dataclass(frozen=True)
class Sources:
    """What goes in: requirements with hashes by name ("engine", "controller" …), further files by their place."""

    requirements: Mapping[str, str]
    files: Mapping[str, Path] = field(default_factory=dict)


def own_sources(engine: Iterable[str]) -> Sources:
    """pdlab's own requirements and those of the engine (several when hosts differ)."""
    controller = (CHECKOUT or PACKAGE) / "requirements.txt"
    supervisor = collection_root() / "roles" / "servers" / "files" / "supervisor.txt"
    texts = list(engine)
    named = {f"engine{'' if index == 0 else f'-{index + 1}'}": text for index, text in enumerate(texts)}
    own = {"controller": controller.read_text("utf-8"), "supervisor": supervisor.read_text("utf-8")}
    return Sources({**own, **named})


def make_bundle(
    folder: Path, target: Target, sources: Sources, *, index_url: str | None, say: Callable[[str], None]
) -> None:
    """Make the bundle in a folder that is new, empty, or a bundle already. Raises BundleError."""
    if folder.exists() and any(folder.iterdir()) and not (folder / "bundle.json").is_file():
        raise BundleError(f"{folder} is not empty and no bundle; name a new folder with -o")
    wheels, requirements = folder / "wheels", folder / "requirements"
    for part in (wheels, requirements, folder / "bin"):
        part.mkdir(parents=True, exist_ok=True)
    # First of all, so that a bundle that was cut short is gone on with.
    (folder / "bundle.json").write_text(json.dumps(description(target, sources), indent=1) + "\n", encoding="utf-8")
    for name, text in sources.requirements.items():
        (requirements / f"{name}.txt").write_text(text, encoding="utf-8")
        for python in target.pythons:
            wanted = for_target(text, target.environments(python))
            say(f"{name}: {len(wanted)} wheels for Python {python}")
            download(wanted, wheels, target, python, index_url)
    say("pdlab itself")
    own_wheel(wheels)
    unpack_uv(wheels, folder / "bin" / "uv", target.machine)
    for place, source in sources.files.items():
        _copy(source, folder / place)
    for shipped in sorted(SHIPPED.iterdir()):
        made = folder / shipped.name
        text = shipped.read_text(encoding="utf-8")
        for word, value in (
            ("@VERSION@", __version__),
            ("@PYTHONS@", " ".join(target.pythons)),
            ("@PLATFORM@", f"{target.machine}, glibc {target.glibc} or newer"),
        ):
            text = text.replace(word, value)
        made.write_text(text, encoding="utf-8")
        made.chmod(0o755 if made.suffix == ".sh" else 0o644)
    write_sums(folder)


def description(target: Target, sources: Sources) -> dict[str, object]:
    """What bundle.json says."""
    sums = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in sources.requirements.items()}
    return {
        "schema_version": 1,
        "pdlab": __version__,
        "pythons": list(target.pythons),
        "machine": target.machine,
        "glibc": target.glibc,
        "requirements_sha256": sums,
    }


def for_target(text: str, environments: Sequence[Mapping[str, str]]) -> list[str]:
    """The lines of a requirements file that hold for one of some environments, each with its hashes and without its marker.

    Raises BundleError for a line that is no pinned requirement with hashes.
    """
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        line = line.split(" #")[0].strip()
        if not line or line.startswith("#"):
            continue
        head, *hashes = line.split(" --hash=")
        try:
            requirement = Requirement(head)
        except InvalidRequirement as error:
            raise BundleError(f"{head!r} is no requirement: {error}") from error
        if not hashes:
            raise BundleError(f"{head!r} has no hash; make the lock with `uv pip compile --generate-hashes`")
        marker = requirement.marker
        if marker is None or any(marker.evaluate(dict(environment)) for environment in environments):
            requirement.marker = None
            found.append(" ".join([str(requirement), *(f"--hash={item.strip()}" for item in hashes)]))
    return found


def download(lines: list[str], wheels: Path, target: Target, python: str, index_url: str | None) -> None:
    """Fetch one wheel for each line; one that is there already is not fetched again. Raises BundleError."""
    names = ["--implementation", "cp", "--abi", "cp" + python.replace(".", ""), "--abi", "abi3", "--abi", "none"]
    platforms = [item for tag in target.platforms() for item in ("--platform", tag)]
    index = ["--index-url", index_url] if index_url else []
    requirements = wheels.parent / f".wanted-{python}.txt"
    requirements.write_text("\n".join(lines) + "\n", encoding="utf-8")
    flags = ["--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--python-version", python]
    try:
        _run(
            [_uv(), "tool", "run", "--quiet", "--from", PIP, "pip", "download", *flags, *names, *platforms, *index,
             "--find-links", str(wheels), "--dest", str(wheels), "--requirement", str(requirements)],
            f"a wheel for Python {python} on {target.machine} with glibc {target.glibc} could not be fetched",
            "check the network and the index (--index-url); a newer --glibc admits more wheels, when the box has it",
        )  # fmt: skip
    finally:
        requirements.unlink()


def own_wheel(wheels: Path) -> Path:
    """pdlab's own wheel: built from the checkout, or packed again from what is installed. Raises BundleError."""
    for old in wheels.glob("pdlab-*.whl"):
        old.unlink()
    if CHECKOUT:
        argv = [_uv(), "build", "--quiet", "--wheel", "--out-dir", str(wheels), str(CHECKOUT)]
        _run(argv, "pdlab's own wheel could not be built", "hatchling must be reachable: check the network")
        (wheels / ".gitignore").unlink(missing_ok=True)
        return next(wheels.glob("pdlab-*.whl"))
    return installed_wheel("pdlab", wheels)


def installed_wheel(name: str, wheels: Path) -> Path:
    """A pure wheel of an installed distribution, from its RECORD: what the installer added is left out."""
    installed = distribution(name)
    added = {"INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "RECORD"}
    kept = [
        path
        for path in installed.files or []
        if ".." not in path.parts and "__pycache__" not in path.parts and path.name not in added
    ]
    info = next(path.parts[0] for path in kept if path.parts[0].endswith(".dist-info"))
    target = wheels / f"{info.removesuffix('.dist-info')}-py3-none-any.whl"
    rows = [f"{path.as_posix()},{path.hash.mode}={path.hash.value},{path.size}" for path in kept if path.hash]
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in kept:
            archive.write(str(path.locate()), path.as_posix())
        archive.writestr(f"{info}/RECORD", "\n".join([*rows, f"{info}/RECORD,,"]) + "\n")
    return target


def unpack_uv(wheels: Path, target: Path, machine: str) -> None:
    """uv's binary, from its wheel. Raises BundleError when there is none."""
    found = sorted(wheels.glob(f"uv-*{machine}.whl"))
    if not found:
        raise BundleError("the controller's requirements have no uv for this machine; report this")
    with zipfile.ZipFile(found[-1]) as archive:
        name = next(item for item in archive.namelist() if item.endswith("/scripts/uv"))
        target.write_bytes(archive.read(name))
    target.chmod(0o755)


def write_sums(folder: Path) -> None:
    """SHA256SUMS of everything in the folder, as `sha256sum --check` reads it."""
    lines = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != "SHA256SUMS":
            with path.open("rb") as stream:
                lines.append(
                    f"{hashlib.file_digest(stream, 'sha256').hexdigest()}  {path.relative_to(folder).as_posix()}\n"
                )
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def _uv() -> str:
    beside = Path(sys.executable).parent / "uv"
    found = str(beside) if beside.is_file() else shutil.which("uv")
    if not found:
        raise BundleError("uv is missing beside the controller's Python; `pip install uv` there")
    return found


def _run(argv: list[str], what: str, cure: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = "\n".join((done.stderr or done.stdout).strip().splitlines()[-_TAIL_LINES:])
        raise BundleError(f"{what}:\n{said}\nWhat to do: {cure}.")
