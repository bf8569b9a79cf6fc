"""Files that arrive in watched folders: what a scan sees, which names are never documents, when a file has settled.

A scan asks the file system and nothing else, so that it is true on network shares and after lost events.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import translate
from functools import cache
from pathlib import Path, PurePath
from stat import S_ISREG
from typing import NamedTuple

from pagemill.jobs.inputs.discover import Found, is_document

#: Names, of files and folders, that browsers, editors, cameras and servers leave; compared without case.
IGNORED = (
    *(".*", "~$*", "*~", "~*.tmp", "*.tmp", "*.temp", "*.part", "*.partial", "*.filepart", "*.crdownload", "*.download"),
    *("*.opdownload", "*.aria2", "*.swp", "*.lock", "thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r", "@eadir"),
    *("#recycle", "#snapshot", "$recycle.bin", "system volume information", "lost+found", "__macosx"),
)

FOLDER_FILE = "pagemill.yaml"  # settings of a folder
KNOWN_NAMES = frozenset({FOLDER_FILE})


class Stamp(NamedTuple):
    """What changes when a file changes: bytes, nanoseconds of its last change, inode (a rename into place brings another)."""

    size: int
    mtime_ns: int
    inode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival(Found):
    """A settled file on its way into a batch.  root: the watched folder; stamp: as it was seen settled.

    identity: its path as the ledger shall call it where that is not the path it lies at: a file that will be moved away
    frees its name for another one, whose text must not replace this one's.
    """

    root: Path
    stamp: Stamp
    identity: Path | None = None

    @property
    def source(self) -> str:
        """The file as the ledger calls it."""
        return Found(self.identity or self.path, self.relative).source


@dataclass(frozen=True, slots=True)
class Scan:
    """What lies in the watched folders.  roots: of each file; problems: folders that could not be read, and why.

    foreign: files that are no documents by their names; nobody reads them, so somebody should hear of them.
    """

    stamps: Mapping[Path, Stamp]
    roots: Mapping[Path, Path]
    foreign: tuple[Path, ...]
    problems: tuple[str, ...]


def scan(roots: Iterable[Path], ignore: tuple[str, ...] = ()) -> Scan:
    """Every document-like file below ``roots``; folders reached by links are not entered.  Never raises OSError."""
    ignored = ignored_names(ignore)
    found: dict[Path, os.DirEntry[str]] = {}
    homes: dict[Path, Path] = {}
    problems: list[str] = []
    for root in roots:
        folders = [root]
        while folders:
            folder = folders.pop()
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except OSError as error:
                if folder == root or not isinstance(error, FileNotFoundError):  # a subfolder may go between two looks
                    problems.append(f"{folder}: cannot be read ({error.strerror or error}); waiting until it can")
                continue
            for entry in entries:
                path = Path(entry.path)
                if ignored.match(entry.name.casefold()) or path in homes:
                    continue
                if _is_folder(entry):
                    folders.append(path)
                else:
                    found[path], homes[path] = entry, root
    stamps = {path: stamp for path in found if is_document(path.name) and (stamp := _stamp_of_file(path)) is not None}
    foreign = tuple(path for path in found if not is_document(path.name) and path.name not in KNOWN_NAMES)
    return Scan(stamps, homes, foreign, tuple(problems))


@cache
def ignored_names(more: tuple[str, ...] = ()) -> re.Pattern[str]:
    """Matches names, in folded case, of files and folders to leave alone."""
    return re.compile("|".join(translate(pattern.casefold()) for pattern in (*IGNORED, *more)))


def stamp_of(path: Path) -> Stamp | None:
    """A file as it is now; None when it is not there."""
    try:
        status = path.stat()
    except OSError:
        return None
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ino)


class Settling:
    """Tells files that are still written from those that are whole: size, time and inode unchanged over two scans.

    Never looks at how old a file says it is: copies keep old times.  An empty file is given longer, since some programs
    create first and fill later.
    """

    def __init__(self, settle_seconds: float, empty_seconds: float) -> None:
        self._settle_seconds, self._empty_seconds = settle_seconds, empty_seconds
        self._seen: dict[Path, tuple[Stamp, float]] = {}

    def note(self, stamps: Mapping[Path, Stamp], now: float) -> None:
        """Take in a scan; what it does not hold is forgotten."""
        before = self._seen
        self._seen = {}
        for path, stamp in stamps.items():
            last = before.get(path)
            self._seen[path] = last if last is not None and last[0] == stamp and last[1] <= now else (stamp, now)

    def has_settled(self, path: Path, now: float) -> bool:
        """True when the file has been the same for long enough."""
        stamp, since = self._seen[path]
        return now - since >= (self._settle_seconds if stamp.size else max(self._empty_seconds, self._settle_seconds))


def relative_to(path: Path, root: Path) -> PurePath:
    """The place of a file below its watched folder."""
    return PurePath(path.relative_to(root))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _stamp_of_file(path: Path) -> Stamp | None:
    """None for what is gone, and for what is no file: a pipe would be waited for without end."""
    try:
        status = path.stat()  # not the entry's, which may be as old as the listing on some systems
    except OSError:
        return None
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ino) if S_ISREG(status.st_mode) else None
