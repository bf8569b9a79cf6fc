"""Many connections that make one file at the same moment."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from pagemill.jobs.ledger.database import use_write_ahead_log
from pagemill.jobs.ledger.store import PageStore

CONNECTIONS = 8


def test_new_stores_opened_together_wait_for_one_another(tmp_path: Path) -> None:
    barrier = Barrier(CONNECTIONS)

    def open_store(folder: Path) -> None:
        barrier.wait()
        PageStore(folder).close()

    with ThreadPoolExecutor(CONNECTIONS) as threads:
        for attempt in range(20):
            list(threads.map(open_store, [tmp_path / str(attempt)] * CONNECTIONS))


def test_a_log_that_cannot_be_turned_on_is_told_after_the_wait(tmp_path: Path) -> None:
    path = tmp_path / "locked.sqlite3"
    holder, other = (sqlite3.connect(path, isolation_level=None, timeout=0) for _ in range(2))
    holder.execute("create table one(a)")
    holder.execute("begin exclusive")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        use_write_ahead_log(other, 0.05)
    holder.execute("rollback")
    use_write_ahead_log(other, 0.05)
    assert other.execute("pragma journal_mode").fetchone() == ("wal",)
    holder.close()
    other.close()
