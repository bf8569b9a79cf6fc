"""Local copies of what does not lie on this machine, bounded in bytes, for as long as a job runs.

The folder is this process's own and goes with it; one that a killed process left is removed by the next.  A copy that was
evicted is fetched again when its pages are due, and must then be the same.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections import OrderedDict
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from pagemill.jobs.inputs.archives import Archive
from pagemill.jobs.inputs.origins import Origin
from pagemill.pipeline import Unreadable, hash_content

LOCK_NAME = "lock"
NAME_BYTES = 100


class InputCache:
    """``place`` gives the path of an origin's copy, ``ensure`` fetches it.  Close it, or use it in a with.

    limit_bytes: of all copies, and of any one.  kept: the copies last used, which stay whatever the limit, since their pages
    are being rendered.
    """

    def __init__(self, folder: Path, limit_bytes: int, kept: int = 8) -> None:
        self._parent, self._limit_bytes, self._kept = folder, limit_bytes, kept
        self._folder: Path | None = None
        self._lock: IO[bytes] | None = None
        self._origins: dict[Path, Origin] = {}
        self._hashes: dict[Path, str] = {}
        self._sizes: OrderedDict[Path, int] = OrderedDict()  # of the copies that lie here, least recently used first
        self._archives: list[Archive] = []

    def place(self, origin: Origin) -> Path:
        """The path of the copy once it is fetched; the same for one origin, and named like it."""
        if self._folder is None:
            self._folder = self._make_folder()
        digest = hashlib.sha256(origin.label.encode("utf-8", "surrogateescape")).hexdigest()[:24]
        path = self._folder / f"{digest}-{_short(origin.file_name)}"
        self._origins[path] = origin
        return path

    def ensure(self, path: Path) -> None:
        """Bring the file here if its place is one of ours.  Raises PageError; OSError where this machine's disk is at fault."""
        origin = self._origins.get(path)
        if origin is None:
            return
        if path in self._sizes:
            self._sizes.move_to_end(path)
            return
        with path.open("w+b") as file:
            try:
                origin.fetch(file, self._limit_bytes)
            except BaseException:
                path.unlink()
                raise
        self._check(path, origin)
        self._sizes[path] = path.stat().st_size
        self._evict()

    def keep_archive(self, archive: Archive) -> Archive:
        """Close the archive with the cache."""
        self._archives.append(archive)
        return archive

    def close(self) -> None:
        """Remove every copy."""
        for archive in self._archives:
            archive.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()
        self._folder = self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _check(self, path: Path, origin: Origin) -> None:
        """A second copy must equal the first, or pages of two documents would be mixed."""
        found = hash_content(path)
        if self._hashes.setdefault(path, found) != found:
            path.unlink()
            raise Unreadable(f"{origin.label} changed since this run began: start it again")

    def _evict(self) -> None:
        total = sum(self._sizes.values())
        while total > self._limit_bytes and len(self._sizes) > self._kept:
            path, size = self._sizes.popitem(last=False)
            path.unlink(missing_ok=True)
            total -= size

    def _make_folder(self) -> Path:
        self._parent.mkdir(parents=True, exist_ok=True)
        with (self._parent / LOCK_NAME).open("wb") as all_folders:
            fcntl.flock(all_folders, fcntl.LOCK_EX)
            for left in self._parent.iterdir():
                _remove_if_abandoned(left)
            folder = Path(tempfile.mkdtemp(dir=self._parent))
            self._lock = (folder / LOCK_NAME).open("wb")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        return folder


def _short(name: str) -> str:
    """A file name that this machine takes: the end of a long one is kept, for its extension."""
    kept = os.fsencode(name.replace("/", "_").replace("\0", "_"))[-NAME_BYTES:]
    return kept.decode("utf-8", "ignore") or "document"


def _remove_if_abandoned(folder: Path) -> None:
    """Remove the copies of a process that is gone: nobody holds their lock."""
    try:
        with (folder / LOCK_NAME).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:  # held, or not ours
        return
