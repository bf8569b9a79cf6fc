"""Errors of a disk that cannot be written, as messages for people: full, locked, gone, or not ours."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pagemill.jobs.errors import DiskFull, JobError, LedgerError, OutputError

FULL = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT})
FULL_CODES = frozenset(  # a file size limit shows as a write error, a full memory disk as one of the shared index
    {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_FSYNC}
)
GONE_WORDS = ("unable to open", "readonly", "read-only", "disk I/O")


def cannot_write(folder: Path, error: OSError) -> OutputError:
    """The error of a folder that does not take what was made."""
    if error.errno in FULL:
        return DiskFull(f"{folder}: the disk is full ({error.strerror}); free some space")
    return OutputError(
        f"{folder}: expected a folder that can be written, found: {error.strerror or error}; free the disk or mend its "
        "rights, then give the same command again"
    )


@contextmanager
def database_errors(path: Path, busy_seconds: float) -> Iterator[None]:
    """Turns what SQLite and the file system raise about ``path`` into a JobError."""
    try:
        yield
    except sqlite3.Error as error:
        raise _as_job_error(path, error, busy_seconds) from error
    except OSError as error:
        if error.errno in FULL:
            raise cannot_write(path.parent, error) from error
        raise OutputError(
            f"{path.parent}: expected a folder that can be written, found: {error.strerror or error}; "
            "free or mend it, or choose another with -o"
        ) from error


def _as_job_error(path: Path, error: sqlite3.Error, busy_seconds: float) -> JobError:
    text = str(error)
    if "locked" in text or "busy" in text:
        return LedgerError(
            f"{path}: expected the ledger to be free within {busy_seconds:g} s, found it locked by another "
            "process; wait for that one, or stop it"
        )
    if getattr(error, "sqlite_errorcode", None) in FULL_CODES:
        return DiskFull(f"{path}: the disk is full, or the file may not grow ({text}); free some space")
    if any(word in text for word in GONE_WORDS):
        return OutputError(
            f"{path}: expected a ledger that can be written, found: {text}; free the disk or mend its rights, "
            "then give the same command again"
        )
    return LedgerError(
        f"{path}: expected a Pagemill ledger, found: {text}; move the file away to begin anew (pages are then done again)"
    )
