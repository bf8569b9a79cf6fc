"""Where finished pages wait, durably, until their document is complete: one SQLite file for a model and its settings.

Pages may be called finished once ``put`` has returned: their records then survive kill -9 and a power cut, all of one call
or none.  One commit for many pages is what makes it fast.  Outputs are made from the records when all pages of a document
are there, so an interrupted run ends in the same bytes as any other.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pagemill.jobs.ledger.database import use_write_ahead_log
from pagemill.pipeline import Attempt, PageRef, PageText, Picture

RECORD_VERSION = 3
FILE_NAME = "records.sqlite3"
BUSY_SECONDS = 30.0

_TABLE = """create table if not exists record(
    document_hash text not null,
    page integer not null,
    version integer not null,
    content text not null,
    primary key(document_hash, page)
) strict, without rowid"""


class PageStore:
    """Page records under ``folder``, found by document hash and page.  Raises sqlite3.Error and OSError.

    A record of the same page is replaced.  Whether a record fits today's model and settings is for the caller to judge, by
    its provenance.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME
        folder.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(self.path, isolation_level=None, timeout=BUSY_SECONDS)
        try:
            use_write_ahead_log(self._db, BUSY_SECONDS)
            self._db.execute("pragma synchronous = full")
            self._db.execute("pragma fullfsync = on")  # macOS: past the drive's cache
            self._db.execute(_TABLE)
        except BaseException:
            self._db.close()
            raise

    def put(self, pages: Sequence[PageText]) -> None:
        """Write the records; durable on return, all or none."""
        rows = [(page.ref.document_hash, page.ref.page, RECORD_VERSION, _written(page)) for page in pages]
        self._db.execute("begin immediate")  # all of a call or none
        try:
            self._db.executemany("insert or replace into record values(?, ?, ?, ?)", rows)
            self._db.execute("commit")
        except BaseException:
            if self._db.in_transaction:  # a full disk has ended it already
                self._db.execute("rollback")
            raise

    def get(self, ref: PageRef) -> PageText | None:
        """The page as ``put`` wrote it, under this reference; None where there is no whole record: read the page again."""
        query = "select content from record where document_hash = ? and page = ? and version = ?"
        row = self._db.execute(query, (ref.document_hash, ref.page, RECORD_VERSION)).fetchone()
        try:
            return None if row is None else _read(ref, row[0])
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def pages(self, document_hash: str) -> set[int]:
        """The pages of a document that have a record."""
        query = "select page from record where document_hash = ? and version = ?"
        return {page for (page,) in self._db.execute(query, (document_hash, RECORD_VERSION))}

    def close(self) -> None:
        """End the connection."""
        self._db.close()


def record_bytes(page: PageText) -> int:
    """What a page's record takes."""
    return len(_written(page))


def _written(page: PageText) -> str:
    record = {
        "text": page.text,
        "status": page.status,
        "reason": page.reason,
        "tokens": page.tokens,
        "mean_log_prob": page.mean_log_prob,
        "timings": dict(page.timings),
        "provenance": dict(page.provenance),
        "attempts": [asdict(attempt) for attempt in page.attempts],
        "chosen": page.chosen,
        "word_confidences": list(page.word_confidences),
        "measures": dict(page.measures),
        "picture": None if page.picture is None else asdict(page.picture),
        "finished_at": page.finished_at,
    }
    return json.dumps(record, separators=(",", ":"))  # ASCII: lone surrogates survive as escapes


def _read(ref: PageRef, content: str) -> PageText:
    record = json.loads(content)
    attempts = tuple(Attempt(**one) for one in record.pop("attempts"))
    words, picture = tuple(record.pop("word_confidences")), record.pop("picture")
    size = None if picture is None else Picture(**picture)
    return PageText(ref, attempts=attempts, word_confidences=words, picture=size, **record)
