"""What a watched folder's files came to, so that a restart does not look into each of them again.

One JSON line a file, appended; a lost or torn line costs a hash of that file and nothing else, for the ledger knows what is
done.  Kept beside the ledger.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pagemill.jobs.watch.arrivals import Stamp
from pagemill.pipeline import write_durably

SPARE_LINES = 1000  # a journal with so many superseded lines is written anew


@dataclass(frozen=True, slots=True)
class Entry:
    """A file's end.  moved_to: where the original went, "" when it stayed."""

    stamp: Stamp
    content_hash: str
    verdict: Literal["done", "failed"]
    moved_to: str = ""


class Journal:
    """``get`` and ``put`` by path.  Raises OSError where it cannot be read or written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: dict[str, Entry] = {}
        self._first: dict[str, str] = {}  # content hash -> the path that had it first
        lines = self._read()
        if lines - len(self._entries) > SPARE_LINES:
            write_durably(path, b"".join(_line(name, entry) for name, entry in self._entries.items()))

    def get(self, path: Path) -> Entry | None:
        """The last entry of a path."""
        return self._entries.get(str(path))

    def put(self, path: Path, entry: Entry) -> None:
        """Durable on return."""
        self._note(str(path), entry)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(_line(str(path), entry))
            file.flush()
            os.fsync(file.fileno())

    def first_with(self, content_hash: str) -> Path | None:
        """The path under which these bytes were first seen."""
        name = self._first.get(content_hash)
        return None if name is None else Path(name)

    def forget_failures(self) -> None:
        """Let failed files be tried again, by this process."""
        self._entries = {name: entry for name, entry in self._entries.items() if entry.verdict != "failed"}

    def _note(self, name: str, entry: Entry) -> None:
        self._entries[name] = entry
        self._first.setdefault(entry.content_hash, name)

    def _read(self) -> int:
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return 0
        lines = content.split(b"\n")
        for line in lines:
            try:
                record = json.loads(line)
                name, stamp = record.pop("path"), Stamp(*record.pop("stamp"))
                self._note(name, Entry(stamp, **record))
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # torn by a crash: its file is hashed again
        if content and not content.endswith(b"\n"):
            with self._path.open("ab") as file:
                file.write(b"\n")
        return len(lines) - 1


def _line(name: str, entry: Entry) -> bytes:
    record = {
        "path": name,
        "stamp": list(entry.stamp),
        "content_hash": entry.content_hash,
        "verdict": entry.verdict,
        "moved_to": entry.moved_to,
    }
    return json.dumps(record).encode("ascii") + b"\n"
