# SPDX-License-Identifier: GPL-3.0-or-later
"""Fetches one pinned revision of a hub repository, whole: a stand-alone script for the engine's Python.

    python3 hub_download.py --repo OWNER/NAME --revision REVISION --path DIR --report FILE [--secrets FIFO]
                            [--endpoint URL] [--exclude PATTERN]… [--margin-bytes N] [--plan]

What talks to the hub is huggingface_hub, which the engine brings. Two things are not left to it:
- A part of a file that came over stays when this process ends, and the next one goes on behind it.
  huggingface_hub 1.33 throws it away (file_download.py, _download_to_tmp_and_move): 99 % of a shard, lost.
- Every file is hashed while it comes over and compared with what the hub says it is (SHA-256 for LFS files, the
  Git blob's SHA-1 for the others), so that no second reading is needed.

In DIR, while it is filled, `.pdlab-download/` holds the parts, what has been checked, and a lock, which makes a
second host with the same network folder wait. Written last, `pdlab-manifest.json` says that all is there.

`--secrets` names a FIFO (or a file) with one JSON object: {"token": text or null, "environment": {name: text}}.
The token is never in the argument list, the environment or a file; what is said is cleaned of it.

The report is JSON, replaced whole: {"phase": "asking"|"checking"|"waiting"|"fetching"|"done", "ok": null|true|false, "kind",
"message", "commit", "files", "files_done", "bytes", "bytes_done", "bytes_at_start", "to_fetch_bytes",
"free_bytes"}. `kind` names a failure: usage, unauthorized, gated, no_repository, no_revision, branch, foreign,
no_space, unreachable, mismatch, hub, disk, unexpected. With `--plan` nothing is fetched or made.
Exit status: 0 when all is there (or planned), 1 otherwise.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import dataclasses
import errno
import fcntl
import fnmatch
import hashlib
import io
import json
import os
import posixpath
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

MANIFEST = "pdlab-manifest.json"
WORK = ".pdlab-download"
DEFAULT_ENDPOINT = "https://huggingface.co"
WORKERS = 8
REPORT_EVERY_S = 0.5
# Attempts of one file in a row that bring no byte.
FRUITLESS_ATTEMPTS = 5
LONGEST_PAUSE_S = 30.0
BLOCK_BYTES = 8 * 1024 * 1024
COMMIT = re.compile(r"[0-9a-f]{40}\Z")
# Signed addresses (of a content network) carry their key in the query.
_QUERY = re.compile(r"(https?://[^\s?\"'<>]+)\?[^\s\"'<>]+")
_CREDENTIALS = re.compile(r"(https?://)[^\s/@\"'<>]+@")


class Refused(Exception):
    """The revision cannot be fetched as things are; `kind` names the fault, the text says what to do."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclasses.dataclass(frozen=True)
class RemoteFile:
    """A file of the revision: `digest` is the hub's, by `algorithm` "sha256" or "git-sha1"."""

    name: str
    size: int
    algorithm: str
    digest: str


class Cleaner:
    """Takes secrets out of what is said: the token, credentials in an address, the query of a signed address."""

    def __init__(self) -> None:
        self.secrets: list[str] = []

    def __call__(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return _CREDENTIALS.sub(r"\1***@", _QUERY.sub(r"\1", text))


clean = Cleaner()


class CleanStream(io.TextIOBase):
    """Standard error for whatever libraries say."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(clean(text))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()


def replace_json(path: str, value: Any) -> None:
    """Write a JSON file, whole or not at all. Raises OSError."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "w", encoding="utf-8") as stream:
            json.dump(value, stream, indent=1, sort_keys=True)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def size_text(count: float) -> str:
    """Bytes for a person."""
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


class Report:
    """How far the download is, for whoever watches; written by a thread of its own."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self.state: dict[str, Any] = {
            "phase": "asking",
            "ok": None,
            "kind": None,
            "message": None,
            "commit": None,
            "files": 0,
            "files_done": 0,
            "bytes": 0,
            "bytes_done": 0,
            "bytes_at_start": 0,
            "to_fetch_bytes": 0,
            "free_bytes": None,
        }

    def set(self, **values: Any) -> None:
        """Change some of it and write it now."""
        with self._lock:
            self.state.update(values)
            replace_json(self._path, self.state)

    def add(self, key: str, count: int) -> None:
        """Count; written with the next beat."""
        with self._lock:
            self.state[key] += count

    def __enter__(self) -> Report:
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def _beat(self) -> None:
        while not self._end.wait(REPORT_EVERY_S):
            with contextlib.suppress(OSError):
                self.set()


# --- what there is on the hub ----------------------------------------------------------------------------------------


def read_secrets(path: str | None) -> str | None:
    """Take the token and the environment that is not to be seen; returns the token. Raises OSError, ValueError."""
    if not path:
        return None
    with open(path, encoding="utf-8") as stream:
        secrets = json.loads(stream.read() or "{}")
    os.environ.update(secrets.get("environment") or {})
    token = secrets.get("token") or None
    if token:
        clean.secrets.append(token)
    return token


def pinned_commit(api: Any, repo: str, revision: str) -> str:
    """The commit of a revision that is one, or is a tag. Raises Refused for a branch, and what huggingface_hub does."""
    if COMMIT.match(revision):
        return revision
    refs = api.list_repo_refs(repo)
    if any(tag.name == revision for tag in refs.tags):
        commit = api.model_info(repo, revision=revision).sha
        return str(commit)
    for branch in refs.branches:
        if branch.name == revision:
            raise Refused(
                "branch",
                f"pd_model.revision: {revision!r} is a branch of {repo}, and a branch moves; "
                f"write the commit where it stands now: {branch.target_commit}",
            )
    tags = ", ".join(sorted(tag.name for tag in refs.tags)[:10]) or "none"
    raise Refused(
        "no_revision",
        f"pd_model.revision: {repo} has no tag {revision!r} (its tags: {tags}); write a full commit or one of its tags",
    )


def wanted_files(api: Any, repo: str, commit: str, exclude: list[str]) -> list[RemoteFile]:
    """The files of a commit less the excluded ones, small ones first. Raises Refused for names that leave the folder."""
    found = []
    for entry in api.list_repo_tree(repo, recursive=True, revision=commit):
        blob = getattr(entry, "blob_id", None)
        if blob is None or any(fnmatch.fnmatchcase(entry.path, pattern) for pattern in exclude):
            continue
        parts = entry.path.split("/")
        if posixpath.isabs(entry.path) or ".." in parts or "" in parts or parts[0] in (WORK, MANIFEST):
            raise Refused(
                "hub", f"{repo} names a file {entry.path!r}, which cannot be written below the model's folder"
            )
        lfs = entry.lfs
        if lfs is not None:
            found.append(RemoteFile(entry.path, lfs.size, "sha256", lfs.sha256))
        else:
            found.append(RemoteFile(entry.path, entry.size, "git-sha1", blob))
    return sorted(found, key=lambda file: (file.size, file.name))


# --- what there is here ----------------------------------------------------------------------------------------------


def read_manifest(path: str) -> dict[str, Any]:
    """What an earlier download left; empty when there is none."""
    try:
        with open(os.path.join(path, MANIFEST), encoding="utf-8") as stream:
            manifest = json.load(stream)
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


class Folder:
    """The folder that is being filled."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.work = os.path.join(path, WORK)
        self._journal = os.path.join(self.work, "checked.jsonl")
        self._lock = threading.Lock()
        self.checked: dict[str, dict[str, Any]] = {}

    @property
    def ours(self) -> bool:
        """Whether pdlab has put files here before."""
        return os.path.isdir(self.work) or read_manifest(self.path).get("source") == "hub"

    def full(self, name: str) -> str:
        """Where a file is to lie."""
        return os.path.join(self.path, *name.split("/"))

    def part(self, file: RemoteFile) -> str:
        """Where its beginning lies while it comes over."""
        return os.path.join(self.work, f"{file.name.replace('/', '--')}.{file.digest[:16]}.part")

    def read_checked(self) -> None:
        """Learn what was hashed before: {name: {"size", "mtime_ns", "digest"}}, from the manifest and the journal."""
        self.checked = dict(read_manifest(self.path).get("files") or {})
        with contextlib.suppress(OSError), open(self._journal, encoding="utf-8") as stream:
            for line in stream:
                with contextlib.suppress(ValueError, KeyError):
                    entry = json.loads(line)
                    self.checked[entry.pop("name")] = entry

    def note_checked(self, file: RemoteFile) -> None:
        """Remember that a file is what the hub says. Raises OSError."""
        entry = self.entry(file)
        with self._lock, open(self._journal, "a", encoding="utf-8") as stream:
            self.checked[file.name] = entry
            stream.write(json.dumps({"name": file.name, **entry}) + "\n")

    def entry(self, file: RemoteFile) -> dict[str, Any]:
        """What is remembered of a file. Raises OSError."""
        status = os.stat(self.full(file.name))
        return {
            "size": status.st_size,
            "mtime_ns": status.st_mtime_ns,
            "algorithm": file.algorithm,
            "digest": file.digest,
        }

    def is_checked(self, file: RemoteFile) -> bool:
        """Whether the file that is there has been hashed and has not been touched since."""
        known = self.checked.get(file.name)
        try:
            return known is not None and file.digest == known.get("digest") and self.entry(file) == known
        except OSError:
            return False

    def size_of(self, path: str) -> int | None:
        """Bytes of a file, None when there is none."""
        try:
            return os.stat(path).st_size
        except OSError:
            return None

    def still_to_fetch(self, file: RemoteFile) -> int:
        """Bytes of a file that must come over; 0 when one of its size is there."""
        if self.size_of(self.full(file.name)) == file.size:
            return 0
        return max(0, file.size - (self.size_of(self.part(file)) or 0))

    def sweep(self, files: list[RemoteFile]) -> None:
        """Remove parts that belong to no file of this revision. Raises OSError."""
        wanted = {self.part(file) for file in files}
        for name in os.listdir(self.work):
            full = os.path.join(self.work, name)
            if name.endswith(".part") and full not in wanted:
                os.unlink(full)

    @contextlib.contextmanager
    def held(self, report: Report) -> Iterator[None]:
        """Hold the folder against another download, of this host or another one. Raises OSError."""
        path = os.path.join(self.work, "lock")
        while True:
            os.makedirs(self.work, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Whoever held it before may have removed the folder with it: this would be a lock that nobody sees.
                if os.stat(path).st_ino == os.fstat(descriptor).st_ino:
                    break
            except FileNotFoundError:
                pass
            except BlockingIOError:
                report.set(phase="waiting")
                time.sleep(1.0)
            os.close(descriptor)
        try:
            yield
        finally:
            os.close(descriptor)


def free_bytes(path: str) -> int:
    """What is free where `path` lies or will lie. Raises OSError."""
    while not os.path.isdir(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def new_hash(file: RemoteFile) -> Any:
    """A hash of the file's kind; Git puts a header before a blob (gitformat-pack's "object name")."""
    if file.algorithm == "sha256":
        return hashlib.sha256()
    digest = hashlib.sha1(usedforsecurity=False)
    digest.update(b"blob %d\0" % file.size)
    return digest


class HashedFile:
    """A file that is hashed while it is written: what http_get of huggingface_hub needs of one, and no more."""

    def __init__(self, stream: Any, file: RemoteFile, report: Report, stop: threading.Event) -> None:
        self._stream = stream
        self._file = file
        self._report = report
        self._stop = stop
        self._digest = new_hash(file)
        self.size = 0

    def absorb(self) -> None:
        """Take in what an earlier attempt left."""
        self._stream.seek(0)
        while block := self._stream.read(BLOCK_BYTES):
            self._digest.update(block)
            self.size += len(block)

    def write(self, block: bytes) -> int:
        if self._stop.is_set():
            raise Stopped
        self._stream.write(block)
        self._digest.update(block)
        self.size += len(block)
        self._report.add("bytes_done", len(block))
        return len(block)

    def tell(self) -> int:
        return self.size

    def seek(self, position: int, _whence: int = 0) -> int:
        if position != 0:
            raise OSError("only the beginning can be gone back to")
        return position

    def truncate(self) -> int:
        """Begin anew: the server sends the file from its start whatever it was asked for."""
        self._report.add("bytes_done", -self.size)
        self._stream.seek(0)
        self._stream.truncate()
        self._digest, self.size = new_hash(self._file), 0
        return 0

    def hexdigest(self) -> str:
        return str(self._digest.hexdigest())


class Stopped(Exception):
    """Another file has failed."""


def digest_of(path: str, file: RemoteFile, stop: threading.Event) -> str:
    """The digest of a file that is there. Raises OSError, Stopped."""
    digest = new_hash(file)
    with open(path, "rb") as stream:
        while block := stream.read(BLOCK_BYTES):
            if stop.is_set():
                raise Stopped
            digest.update(block)
    return str(digest.hexdigest())


# --- the download ----------------------------------------------------------------------------------------------------


class Download:
    """One revision on its way into one folder."""

    def __init__(self, options: argparse.Namespace, token: str | None, report: Report) -> None:
        self.options = options
        self.token = token
        self.report = report
        self.folder = Folder(options.path)
        self.endpoint = (options.endpoint or DEFAULT_ENDPOINT).rstrip("/")
        self.stop = threading.Event()

    def run(self) -> None:
        """Plan and, unless only that is wanted, fetch all that is missing. Raises Refused and what libraries raise."""
        from huggingface_hub import HfApi

        options, folder = self.options, self.folder
        # False: no token, not even one that somebody left in a home directory.
        api = HfApi(endpoint=self.endpoint, token=self.token or False)
        commit = pinned_commit(api, options.repo, options.revision)
        files = wanted_files(api, options.repo, commit, options.exclude)
        if not files:
            raise Refused("hub", f"{options.repo} at {commit} has no files that are not excluded")
        self.report.set(commit=commit, files=len(files), bytes=sum(file.size for file in files))
        try:
            adopted = [] if folder.ours else self.adopted(files)
            if options.plan:
                self.check_space(files)
                return
            os.makedirs(folder.path, exist_ok=True)
            with folder.held(self.report):
                folder.read_checked()
                folder.sweep(files)
                for file in adopted:
                    folder.note_checked(file)
                self.check_space(files)
                self.fetch_all(files)
                self.finish(commit, files)
        except OSError as error:
            fault = self.disk_fault(error)
            if fault is error:
                raise
            raise fault from error

    def adopted(self, files: list[RemoteFile]) -> list[RemoteFile]:
        """The files that somebody else put into the folder. Raises Refused when one is not this revision's.

        They are judged before anything is made there: pdlab never writes over files that it did not bring.
        """
        sizes = {file: self.folder.size_of(self.folder.full(file.name)) for file in files}
        present = [file for file in files if sizes[file] is not None]
        others = [file.name for file in present if sizes[file] != file.size]
        if present and not others and not self.options.plan:
            self.report.set(phase="checking")
            with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
                digests = pool.map(lambda file: digest_of(self.folder.full(file.name), file, self.stop), present)
                others = [file.name for file, digest in zip(present, digests, strict=True) if digest != file.digest]
        if others:
            more = f" and {len(others) - 1} more" if len(others) > 1 else ""
            raise Refused(
                "foreign",
                f"{self.folder.path} holds {others[0]}{more}, which pdlab did not fetch and which is not that of this "
                "revision; choose another pd_model.path, or leave it out",
            )
        return present

    def check_space(self, files: list[RemoteFile]) -> None:
        """Refuse when what must come over does not fit, with the margin, where the folder lies."""
        missing = sum(self.folder.still_to_fetch(file) for file in files)
        free = free_bytes(self.folder.path)
        self.report.set(
            to_fetch_bytes=missing,
            free_bytes=free,
            bytes_done=self.report.state["bytes"] - missing,
            bytes_at_start=self.report.state["bytes"] - missing,
        )
        if missing and missing + self.options.margin_bytes > free:
            raise Refused(
                "no_space",
                f"{size_text(missing)} of {self.options.repo} are still to be fetched to {self.folder.path}, and "
                f"{size_text(free)} are free there (pdlab keeps {size_text(self.options.margin_bytes)} free); "
                "free space, or set pd_model.path to a folder on a larger disk",
            )

    def fetch_all(self, files: list[RemoteFile]) -> None:
        """Fetch or check every file, some at a time; the first failure ends them all."""
        self.report.set(phase="fetching")
        failure: BaseException | None = None
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            for future in concurrent.futures.as_completed([pool.submit(self.one, file) for file in files]):
                error = future.exception()
                if error is not None and not isinstance(error, Stopped):
                    failure = failure or error
                    self.stop.set()
        if failure is not None:
            raise failure

    def one(self, file: RemoteFile) -> None:
        """See to it that one file is there and is what the hub says."""
        full = self.folder.full(file.name)
        if self.stop.is_set():
            raise Stopped
        if not self.folder.is_checked(file):
            if self.folder.size_of(full) == file.size and digest_of(full, file, self.stop) == file.digest:
                self.folder.note_checked(file)
            else:
                self.replace(file, full)
        self.report.add("files_done", 1)

    def replace(self, file: RemoteFile, full: str) -> None:
        if self.folder.size_of(full) == file.size:
            # Counted as there, and it is not what it should be.
            self.report.add("bytes_done", self.folder.size_of(self.folder.part(file)) or 0)
            self.report.add("bytes_done", -file.size)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        self.fetch(file)
        os.replace(self.folder.part(file), full)
        self.folder.note_checked(file)

    def fetch(self, file: RemoteFile) -> None:
        """Bring the whole file over into its part, going on behind what is there."""
        fruitless, anew = 0, False
        while True:
            before = self.folder.size_of(self.folder.part(file)) or 0
            try:
                digest = self.attempt(file)
            except Exception as error:
                fault = self.lasting_fault(error, file)
                if fault is error:
                    raise
                if fault is not None:
                    raise fault from error
                fruitless = 0 if (self.folder.size_of(self.folder.part(file)) or 0) > before else fruitless + 1
                if fruitless >= FRUITLESS_ATTEMPTS:
                    raise self.unreachable(error) from error
                print(f"{file.name}: {error}; trying again", file=sys.stderr, flush=True)
                if self.stop.wait(min(2.0**fruitless, LONGEST_PAUSE_S)):
                    raise Stopped from error
                continue
            if digest == file.digest:
                return
            os.unlink(self.folder.part(file))
            self.report.add("bytes_done", -file.size)
            if anew:
                raise Refused(
                    "mismatch",
                    f"{file.name} came over twice with the {file.algorithm} {digest}, and the hub says {file.digest}; "
                    f"whatever stands between here and {self.endpoint} changes what it carries",
                )
            anew = True

    def attempt(self, file: RemoteFile) -> str:
        """One try at what is missing of a file; returns the digest of the whole."""
        from huggingface_hub import hf_hub_url
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils import build_hf_headers

        part = self.folder.part(file)
        if (self.folder.size_of(part) or 0) > file.size:
            os.unlink(part)
        # Compressed on its way, a file would have no byte at which to go on.
        headers = {**build_hf_headers(token=self.token or False), "accept-encoding": "identity"}
        url = hf_hub_url(self.options.repo, file.name, revision=self.report.state["commit"], endpoint=self.endpoint)
        with open(part, "r+b" if os.path.exists(part) else "w+b") as stream:
            target = HashedFile(stream, file, self.report, self.stop)
            target.absorb()
            try:
                http_get(
                    url,
                    target,
                    resume_size=target.size,
                    headers=headers,
                    expected_size=file.size,
                    displayed_filename=file.name,
                )
            finally:
                stream.flush()
            os.fsync(stream.fileno())
            return target.hexdigest()

    def finish(self, commit: str, files: list[RemoteFile]) -> None:
        """Say that all is there, then take the working files away."""
        replace_json(
            os.path.join(self.folder.path, MANIFEST),
            {
                "source": "hub",
                "repo": self.options.repo,
                "revision": self.options.revision,
                "commit": commit,
                "exclude": sorted(self.options.exclude),
                "files": {file.name: self.folder.entry(file) for file in files},
            },
        )
        shutil.rmtree(self.folder.work, ignore_errors=True)

    # --- what went wrong ---------------------------------------------------------------------------------------------

    def disk_fault(self, error: OSError) -> Exception:
        """Tell a fault of the disk from one of the network; the libraries' own are OSErrors, too."""
        if error.errno is None or type(error).__module__.split(".")[0] in ("httpx", "httpcore", "huggingface_hub"):
            return error
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            cure = "free space (or raise the quota) and deploy again: it goes on where it stopped"
            return Refused("no_space", f"{self.folder.path}: {error.strerror}; {cure}")
        return Refused("disk", f"{error.filename or self.folder.path}: {error.strerror}")

    def lasting_fault(self, error: Exception, file: RemoteFile) -> Exception | None:
        """What another attempt would not mend, or None."""
        import httpx
        from huggingface_hub.errors import HfHubHTTPError

        if isinstance(error, (Stopped, Refused)):
            return error
        if isinstance(error, HfHubHTTPError):
            status = error.response.status_code
            return None if status >= 500 or status in (408, 429) else error
        if isinstance(error, httpx.TransportError):
            return None
        if isinstance(error, OSError):
            return None if error.errno is None else self.disk_fault(error)
        if isinstance(error, ValueError) and "too large" in str(error):
            return Refused(
                "hub",
                f"{file.name} has {size_text(file.size)}, more than the hub sends over plain HTTP; fetch the model with "
                "`hf download` and write `source: local`",
            )
        return error

    def unreachable(self, error: BaseException) -> Refused:
        """The hub does not answer."""
        return Refused(
            "unreachable",
            f"{self.endpoint} cannot be reached from this host: {' '.join(str(error).split()) or type(error).__name__}; "
            "let it through, name a mirror with pd_model.endpoint, or bring the files here and write `source: local`. "
            "What came over stays, and the next deployment goes on behind it",
        )

    def explain(self, error: BaseException) -> Refused:
        """A failure as the user shall read it."""
        if isinstance(error, Refused):
            return error
        if isinstance(error, ImportError):
            return Refused("usage", f"the engine's Python has no huggingface_hub ({error}); deploy the engine first")
        import httpx
        from huggingface_hub.errors import (
            GatedRepoError,
            HfHubHTTPError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )

        repo, options = self.options.repo, self.options
        if isinstance(error, HfHubHTTPError):
            status = error.response.status_code
            if isinstance(error, GatedRepoError):
                whose = "the token's account" if self.token else "an account, and set pd_hub_token to a token of it"
                return Refused("gated", f"{repo} is gated: accept its terms at {self.endpoint}/{repo} with {whose}")
            if isinstance(error, RevisionNotFoundError):
                return Refused(
                    "no_revision",
                    f"pd_model.revision: {repo} has no revision {options.revision!r}; write a full commit or a tag of it",
                )
            if status in (401, 403) and self.token:
                return Refused(
                    "unauthorized",
                    f"{self.endpoint} refuses the token of pd_hub_token for {repo} ({status}): it is wrong, has expired, "
                    "or may not read this repository",
                )
            if isinstance(error, RepositoryNotFoundError) or status in (401, 403, 404):
                private = "" if self.token else ", or it is private: then set pd_hub_token"
                return Refused("no_repository", f"pd_model.repo: {self.endpoint} shows no repository {repo}{private}")
            if status >= 500 or status in (408, 429):
                return self.unreachable(error)
            return Refused("hub", f"{self.endpoint} answered {status} for {repo}: {' '.join(str(error).split())}")
        if isinstance(error, (httpx.HTTPError, OSError)):
            return self.unreachable(error)
        return Refused("unexpected", f"{type(error).__name__}: {error}")


def main() -> int:
    """Read the command line, fetch, say how it went."""
    parser = argparse.ArgumentParser(description="Fetch one pinned revision of a hub repository.")
    parser.add_argument("--repo", required=True)
    parser.add_argument("--revision", required=True)
    parser.add_argument("--path", required=True)
    parser.add_argument("--report", required=True)
    parser.add_argument("--secrets")
    parser.add_argument("--endpoint")
    parser.add_argument("--exclude", action="append", default=[])
    parser.add_argument("--margin-bytes", type=int, default=0)
    parser.add_argument("--plan", action="store_true")
    options = parser.parse_args()
    sys.stderr = CleanStream(sys.stderr)
    # The servers' account must be able to read what is fetched here by root.
    os.umask(0o022)
    token = read_secrets(options.secrets)
    with Report(options.report) as report:
        download = Download(options, token, report)
        try:
            report.set()
            download.run()
        except Exception as error:
            refused = download.explain(error)
            if refused.kind == "unexpected":
                import traceback

                traceback.print_exception(error)
            outcome = {"ok": False, "kind": refused.kind, "message": clean(str(refused))}
        else:
            outcome = {"ok": True}
    report.set(phase="done", **outcome)
    print(outcome.get("message") or "all is there", file=sys.stderr, flush=True)
    return 0 if outcome["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
