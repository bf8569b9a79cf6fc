"""Where files of a watched folder go when they have ended: the done and failed folders, and the reason beside a failure.

Originals stay untouched unless ``move`` is asked for; then a file goes as it is, under its own name or, where that is another
file's, with a mark of its content.  A reason file lies beside a moved failure, and under the failed folder where the original
stays.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath

from pagemill.jobs.watch.arrivals import Arrival, stamp_of
from pagemill.pipeline import hash_content, temp_path, write_durably

REASON_SUFFIX = ".reason.json"
NAME_BYTES = 255


@dataclass(frozen=True, slots=True)
class Shelves:
    """The two folders.  labels: what comes between them and a file's relative path, by watched folder."""

    done: Path
    failed: Path
    moves: bool
    labels: Mapping[Path, str]

    def reserve(self, root: Path, relative: PurePath, content_hash: str, is_others: Callable[[Path], bool]) -> Path:
        """Where a file shall lie when it is done: a path that nothing has, nor ever had (is_others) with other bytes.

        The name of a file that was moved is free for another one, in the watched folder and, when people take things out of
        it, in the done folder too; as a document it is another one all the same.
        """
        names = _numbered(self.done / self.labels[root] / relative, content_hash[:8])
        return next(place for place in names if not os.path.lexists(place) and not is_others(place))

    def put_done(self, arrival: Arrival) -> str:
        """Take away the reason of an earlier failure; move the original.  Returns where to, "" when it stays."""
        self._reason_path(arrival).unlink(missing_ok=True)
        if not self.moves:
            return ""
        assert arrival.identity is not None
        return _move(arrival, arrival.identity)

    def put_failed(self, arrival: Arrival, reason: Mapping[str, object]) -> str:
        """Write the reason; move the original beside it.  Returns where to, "" when it stays."""
        path = self._reason_path(arrival)
        moved = ""
        if self.moves:
            assert arrival.identity is not None
            names = _numbered(self.failed / arrival.identity.relative_to(self.done))
            place = next(place for place in names if not os.path.lexists(place))
            path = _beside(place)
            moved = _move(arrival, place)
        record = {"file": str(arrival.path), "moved_to": moved or None, **reason}
        write_durably(path, json.dumps(record, indent=1).encode("ascii") + b"\n")
        return moved

    def _reason_path(self, arrival: Arrival) -> Path:
        return _beside(self.failed / self.labels[arrival.root] / arrival.relative)


def root_labels(roots: tuple[Path, ...]) -> dict[Path, str]:
    """A folder name for each watched folder: none for a single one, else its own, numbered where two have the same."""
    if len(roots) == 1:
        return {roots[0]: ""}
    labels: dict[Path, str] = {}
    for root in roots:
        name, number = root.name or "root", 2
        while name in labels.values():
            name, number = f"{root.name}-{number}", number + 1
        labels[root] = name
    return labels


def _beside(path: Path) -> Path:
    """The reason file of a path; a name that would be too long gives way to a hash."""
    name = path.name + REASON_SUFFIX
    if len(os.fsencode(name)) > NAME_BYTES:
        name = hashlib.sha256(os.fsencode(path.name)).hexdigest() + REASON_SUFFIX
    return path.with_name(name)


def _numbered(path: Path, mark: str = "") -> Iterator[Path]:
    """The path, the path with its mark, and then with numbers; names of at most NAME_BYTES."""
    yield path
    endings = [f"-{mark}"] if mark else []
    for ending in itertools.chain(endings, (f" ({number})" for number in itertools.count(2))):
        stem = path.stem
        while len(os.fsencode(name := f"{stem}{ending}{path.suffix}")) > NAME_BYTES:
            stem = stem[:-1]
        yield path.with_name(name)


def _move(arrival: Arrival, place: Path) -> str:
    """Moves the original unless it has changed; across file systems the copy is checked before the original goes."""
    if stamp_of(arrival.path) != arrival.stamp:
        raise OSError(errno.EBUSY, "it changed while it was read, and stays", str(arrival.path))
    place.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(place):
        raise OSError(errno.EEXIST, "another file took its place meanwhile", str(place))
    try:
        arrival.path.rename(place)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _move_across(arrival.path, place)
    return str(place)


def _move_across(path: Path, place: Path) -> None:
    temp = temp_path(place)
    try:
        shutil.copy2(path, temp)
        with temp.open("rb") as file:
            os.fsync(file.fileno())
        if hash_content(temp) != hash_content(path):
            raise OSError(errno.EIO, "its copy differs, so it stays", str(path))
        temp.rename(place)
    finally:
        temp.unlink(missing_ok=True)
    path.unlink()
