"""What SQLite leaves to its callers."""

from __future__ import annotations

import sqlite3
import time

PAUSE_SECONDS = 0.01


def use_write_ahead_log(db: sqlite3.Connection, busy_seconds: float) -> None:
    """Turn the log on, waiting for others that do the same.  Raises sqlite3.OperationalError once `busy_seconds` are over.

    SQLite does not wait here as it does elsewhere: where two connections turn a new file's log on at once, each holds what
    the other needs, and one gets SQLITE_BUSY at once.
    """
    end = time.monotonic() + busy_seconds
    while True:
        try:
            db.execute("pragma journal_mode = wal")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= end:
                raise
        time.sleep(PAUSE_SECONDS)
