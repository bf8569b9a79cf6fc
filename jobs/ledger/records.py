"""The page store of a job, whose disk may be full or gone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pagemill.jobs.errors import OutputError
from pagemill.jobs.ledger.disk import database_errors
from pagemill.jobs.ledger.store import BUSY_SECONDS, FILE_NAME, PageStore
from pagemill.pipeline import PageRef, PageText

DATE_VARIABLE = "SOURCE_DATE_EPOCH"


def today() -> int:
    """What records are dated with: seconds since 1970."""
    value = os.environ.get(DATE_VARIABLE, "")
    return int(value) if value.isdecimal() else int(time.time())


class StoredPages:
    """Finished pages below ``folder``.  Every call raises OutputError, DiskFull among them, or LedgerError.

    date: what a record without a date is dated with.
    """

    def __init__(self, folder: Path, date: Callable[[], int] = today) -> None:
        self._path, self._date = folder / FILE_NAME, date
        with database_errors(self._path, BUSY_SECONDS):
            self._store = PageStore(folder)
            self._file = file_identity(self._path)

    def put(self, pages: Sequence[PageText]) -> None:
        """Date pages and make them durable, all or none."""
        if file_identity(self._path) != self._file:
            raise gone(self._path)
        date = self._date()
        dated = [page if page.finished_at is not None else replace(page, finished_at=date) for page in pages]
        with database_errors(self._path, BUSY_SECONDS):
            self._store.put(dated)

    def get(self, ref: PageRef) -> PageText | None:
        """The page, None where there is no whole record."""
        with database_errors(self._path, BUSY_SECONDS):
            return self._store.get(ref)

    def pages(self, document_hash: str) -> set[int]:
        """The pages of a document that have a record."""
        with database_errors(self._path, BUSY_SECONDS):
            return self._store.pages(document_hash)

    def close(self) -> None:
        """End the connection."""
        self._store.close()


def file_identity(path: Path) -> tuple[int, int] | None:
    """Which file a path leads to; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def gone(path: Path) -> OutputError:
    """The error of an output folder that somebody removed under a run: what would be written now would be lost."""
    return OutputError(
        f"{path}: expected the file that this run opened, found it removed or replaced; "
        "give the same command again: what was removed is done again"
    )
