"""Are the files that are being read still those that were looked at?  Originals are only ever read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pagemill.jobs.run.identity import hash_file
from pagemill.pipeline import PageRef

Signature = tuple[int, int, int, int]


class Originals:
    """Remembers size, time and place of files before they are hashed; a file that then looks different is hashed again."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._seen = {path: _signature(path) for path in paths}

    def are_same(self, ref: PageRef) -> bool:
        """Does the page's file have the bytes of its hash?  True for what is no file of its own (a member of an archive)."""
        seen, now = self._seen.get(ref.document), _signature(ref.document)
        if seen is None or seen == now:
            return True
        try:
            is_same = now is not None and hash_file(ref.document) == ref.document_hash
        except OSError:
            return False
        if is_same:
            self._seen[ref.document] = now
        return is_same


def _signature(path: Path) -> Signature | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino, found.st_dev
