"""Are the files that are being read still those that were looked at?  Originals are only ever read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pagemill.pipeline import Replaced, hash_content

Signature = tuple[int, int, int, int]


class Originals:
    """Remembers size, time and place of files before they are hashed; a file that then looks different is hashed again."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._seen = {path: _signature(path) for path in paths}

    def check(self, path: Path, document_hash: str) -> None:
        """Raises Replaced where a file no longer has the content of its hash.

        What is no file of its own (a member of an archive, a download) is not looked at.
        """
        seen, now = self._seen.get(path), _signature(path)
        if seen is None or seen == now:
            return
        try:
            is_same = now is not None and hash_content(path) == document_hash
        except OSError:
            is_same = False
        if not is_same:
            raise Replaced("the file was changed or replaced during the run: run again to read it anew")
        self._seen[path] = now


def _signature(path: Path) -> Signature | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino, found.st_dev
