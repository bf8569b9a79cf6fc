"""The durable list of pages: who does which, what became of it.

All SQL of jobs is here, in ``migrations`` and in ``ledger_view``.  A page is claimed by a lease, and finished only after its
record is durable; a lease whose owner is dead or late goes back to the queue.  SQLite in WAL mode, in the output folder,
which must not be a network file system.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import astuple, dataclass, field
from pathlib import Path

from pagemill.jobs.ledger.database import use_write_ahead_log
from pagemill.jobs.ledger.disk import database_errors
from pagemill.jobs.ledger.migrations import migrate
from pagemill.jobs.ledger.owner import Owner, is_dead
from pagemill.jobs.ledger.records import file_identity, gone
from pagemill.pipeline import Attempt

BUSY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Work:
    """A page's identity: same document bytes, page, model and settings are the same work, whatever the file is called."""

    document_hash: str
    page: int
    model_hash: str
    settings_hash: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A page that this worker may do until its lease ends.  retries: how often the page asked for another attempt."""

    work: Work
    page_id: int
    attempt: int
    retries: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a page ended.

    tries: readings and renderings in all.  measures: what was measured before it was read.  readings: of the last attempt.
    """

    status: str
    reason: str = ""
    tokens: int = 0
    mean_log_prob: float | None = None
    timings: Mapping[str, float] = field(default_factory=dict)
    tries: int = 1
    measures: Mapping[str, float] = field(default_factory=dict)
    readings: tuple[Attempt, ...] = ()

    @property
    def final_status(self) -> str:
        """The status as people are told: a page that is ok after another try is "retried"."""
        return "retried" if self.status == "ok" and self.tries > 1 else self.status


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file as it was written.  path: below the output folder, with "/"."""

    path: str
    sha256: str
    size_bytes: int


class Ledger:
    """One connection of one worker.  ``want`` says which pages this run is about; the other rows are left alone."""

    def __init__(self, path: Path, owner: Owner, busy_seconds: float = BUSY_SECONDS) -> None:
        self._path, self._owner, self._busy_seconds = path, owner, busy_seconds
        self._run = 0
        self._cursor = -1  # sequence of the last claimed page, so that a claim does not walk over what is done
        with self._errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, isolation_level=None, timeout=busy_seconds)
        try:
            self._prepare()
        except BaseException:
            self._db.close()
            raise

    def begin(self, model_hash: str, settings_hash: str, settings: str, now: float) -> None:
        """Notes a run: what was asked for, so that it can be asked for again.  Before ``want``."""
        with self._transaction() as db:
            self._run = db.execute(
                "insert into run(worker, started_at, model_hash, settings_hash, settings) values(?, ?, ?, ?, ?) returning id",
                (self._owner.worker, now, model_hash, settings_hash, settings),
            ).fetchone()[0]

    def end(self, how: str, now: float) -> None:
        """Notes how the run ended."""
        with self._transaction() as db:
            db.execute("update run set ended_at = ?, ended = ? where id = ?", (now, how, self._run))

    def want(self, pages: Sequence[Work], sources: Sequence[str]) -> None:
        """Adds pages to this run's list, in order; queues those that the ledger does not know.  sources: a path each."""
        keys = [(work.document_hash, work.page, work.model_hash, work.settings_hash) for work in pages]
        with self._transaction() as db:
            db.executemany(
                "insert into page(document_hash, page, model_hash, settings_hash, source, run) values(?, ?, ?, ?, ?, ?) "
                "on conflict do update set source = excluded.source, run = excluded.run",
                [(*key, source, self._run) for key, source in zip(keys, sources, strict=True)],
            )
            db.executemany(
                "insert or ignore into wanted(page_id) select id from page "
                "where document_hash = ? and page = ? and model_hash = ? and settings_hash = ?",
                keys,
            )

    def retry(self, statuses: Sequence[str]) -> int:
        """Queues this run's pages again that ended so; returns how many."""
        with self._transaction() as db:
            marks = ", ".join("?" * len(statuses))
            return db.execute(
                "update page set state = 'queued', status = null, reason = '' "
                f"where state = 'done' and status in ({marks}) and id in (select page_id from wanted)",
                tuple(statuses),
            ).rowcount

    def reopen(self, pages: Sequence[Work]) -> None:
        """Queues finished pages again whose output has gone."""
        with self._transaction() as db:
            db.executemany(
                "update page set state = 'queued', status = null, reason = '' where state = 'done' "
                "and document_hash = ? and page = ? and model_hash = ? and settings_hash = ?",
                [(work.document_hash, work.page, work.model_hash, work.settings_hash) for work in pages],
            )

    def release_dead(self, now: float) -> int:
        """Ends the leases of processes of this machine that have died; returns how many pages that frees."""
        with self._transaction() as db:
            owners = [Owner(*row) for row in db.execute("select worker, host, boot, pid, process_start from owner")]
            dead = [owner.worker for owner in owners if owner.worker != self._owner.worker and is_dead(owner, self._owner)]
            freed = sum(self._release(db, worker, now, "lost", "its process died") for worker in dead)
            db.executemany("delete from owner where worker = ?", [(worker,) for worker in dead])
            return freed

    def claim(self, now: float, limit: int, lease_seconds: float) -> list[Claim]:
        """Up to ``limit`` wanted pages in order, leased to this worker; empty when none is free at present."""
        with self._transaction() as db:
            rows = self._free(db, now, limit)
            if not rows and self._cursor >= 0:  # look again from the front: a lease may have ended there
                self._cursor = -1
                rows = self._free(db, now, limit)
            claims = [self._take(db, row, now, lease_seconds) for row in rows]
            if rows:
                self._cursor = rows[-1][0]
            return claims

    def renew(self, now: float, lease_seconds: float) -> None:
        """Moves the end of all this worker's leases."""
        with self._transaction() as db:
            db.execute(
                "update page set lease_until = ? where state = 'claimed' and worker = ?",
                (now + lease_seconds, self._owner.worker),
            )

    def finish(self, ended: Sequence[tuple[Claim, Outcome]], now: float) -> list[bool]:
        """Marks pages done, their records being durable.  False for a lost lease: another worker has the page."""
        with self._transaction() as db:
            return [self._finish(db, claim, outcome, now) for claim, outcome in ended]

    def give_back(self, claims: Sequence[tuple[Claim, str]], now: float) -> None:
        """Queues pages again for another attempt, which may go differently.  Each with the reason."""
        with self._transaction() as db:
            for claim, reason in claims:
                if self._requeue(db, claim):
                    self._end(db, claim, now, "retry", reason, {})
        self._cursor = -1

    def release(self, now: float) -> int:
        """Gives back all that this worker holds and has not finished; returns how many pages."""
        with self._transaction() as db:
            freed = self._release(db, self._owner.worker, now, "released", "interrupted")
        self._cursor = -1
        return freed

    def is_complete(self, work: Work) -> bool:
        """True when every known page of the work's document, under its model and settings, is done."""
        with self._errors():
            row = self._db.execute(
                "select 1 from page where document_hash = ? and model_hash = ? and settings_hash = ? and state <> 'done' "
                "limit 1",
                (work.document_hash, work.model_hash, work.settings_hash),
            ).fetchone()
            return row is None

    def unfinished(self) -> int:
        """How many wanted pages are not done."""
        with self._errors():
            query = "select count(*) from wanted join page on page.id = page_id where state <> 'done'"
            return int(self._db.execute(query).fetchone()[0])

    def outcomes(self) -> dict[Work, Outcome]:
        """The wanted pages that are done, in order."""
        with self._errors():
            rows = self._db.execute(
                "select document_hash, page, model_hash, settings_hash, status, reason, tokens, mean_log_prob, tries, measures "
                "from wanted join page on page.id = page_id where state = 'done' order by sequence"
            )
            return {Work(*row[:4]): _outcome(*row[4:]) for row in rows}

    def stamp(self, work: Work) -> str:
        """The state of a document's finished pages; it differs when one was done again."""
        with self._errors():
            (attempts, pages) = self._db.execute(
                "select total(attempts), count(*) from page where document_hash = ? and model_hash = ? and settings_hash = ?",
                (work.document_hash, work.model_hash, work.settings_hash),
            ).fetchone()
        return f"{work.document_hash}:{work.model_hash}:{work.settings_hash}:{int(pages)}:{int(attempts)}"

    def name_outputs(
        self, choose: Callable[[Mapping[str, str]], Mapping[str, str]], key: Callable[[str], str]
    ) -> dict[str, str]:
        """Which output name each source owns, for good: source -> name.

        choose: those that are owned -> those to add, while no other process adds any.  key: equal for names that are the same.
        """
        with self._transaction() as db:
            owned = dict(db.execute("select source, name from output").fetchall())
            new = choose(owned)
            rows = [(key(name), name, source) for source, name in new.items()]
            db.executemany("insert into output(name_key, name, source) values(?, ?, ?)", rows)
            return {**owned, **new}

    def output_stamp(self, source: str) -> str:
        """The stamp with which a source's outputs were last written, "" before that."""
        with self._errors():
            row = self._db.execute("select stamp from output where source = ?", (source,)).fetchone()
            return str(row[0]) if row else ""

    def write_output(self, source: str, stamp: str, write: Callable[[str], Sequence[OutputFile] | None]) -> None:
        """Calls ``write`` with the last stamp, while no other process writes outputs; notes ``stamp`` and the files it made.

        None from ``write``: nothing was written, nothing is noted.
        """
        with self._transaction() as db:
            files = write(self.output_stamp(source))
            if files is None:
                return
            db.execute("update output set stamp = ? where source = ?", (stamp, source))
            db.execute("delete from output_file where source = ?", (source,))
            rows = [(file.path, source, file.sha256, file.size_bytes) for file in files]
            db.executemany("insert or replace into output_file values(?, ?, ?, ?)", rows)

    def close(self) -> None:
        """Ends the connection; leases that are still held are left to ``release_dead``."""
        self._db.close()

    def _finish(self, db: sqlite3.Connection, claim: Claim, outcome: Outcome, now: float) -> bool:
        kept = db.execute(
            "update page set state = 'done', worker = null, lease_until = null, status = ?, reason = ?, tokens = ?, "
            "mean_log_prob = ?, finished_at = ?, tries = ?, measures = ? "
            "where id = ? and state = 'claimed' and worker = ? and attempts = ?",
            (
                *(outcome.status, outcome.reason, outcome.tokens, outcome.mean_log_prob, now, outcome.tries),
                *(json.dumps(dict(outcome.measures), sort_keys=True), claim.page_id, self._owner.worker, claim.attempt),
            ),
        ).rowcount
        if kept:
            self._end(db, claim, now, "finished", outcome.reason, outcome.timings)
            if outcome.readings:
                readings = json.dumps([astuple(reading) for reading in outcome.readings])
                where = (readings, claim.page_id, claim.attempt)
                db.execute("update attempt set readings = ? where page_id = ? and number = ?", where)
        return bool(kept)

    def _prepare(self) -> None:
        owner = self._owner
        with self._errors():
            use_write_ahead_log(self._db, self._busy_seconds)
            self._db.execute("pragma synchronous = normal")  # a commit lost with the power is a page done again, no more
            self._db.execute("pragma foreign_keys = on")
            self._db.execute("pragma temp_store = memory")
            migrate(self._db)
            self._db.execute("create temp table wanted(sequence integer primary key, page_id integer not null unique)")
            self._db.execute(
                "insert or replace into owner values(?, ?, ?, ?, ?)",
                (owner.worker, owner.host, owner.boot, owner.pid, owner.process_start),
            )
            self._file = file_identity(self._path)

    def _free(self, db: sqlite3.Connection, now: float, limit: int) -> list[tuple[int, int, int, str, str, int, str, str]]:
        return db.execute(
            "select sequence, id, attempts, coalesce(worker, ''), document_hash, page, model_hash, settings_hash "
            "from wanted join page on page.id = page_id "
            "where sequence > ? and (state = 'queued' or (state = 'claimed' and lease_until < ?)) order by sequence limit ?",
            (self._cursor, now, limit),
        ).fetchall()

    def _take(
        self,
        db: sqlite3.Connection,
        row: tuple[int, int, int, str, str, int, str, str],
        now: float,
        lease_seconds: float,
    ) -> Claim:
        _, page_id, attempts, late_worker, *identity = row
        work = Work(*identity)  # type: ignore[arg-type]  # four columns in the order of the fields
        if late_worker:
            late = Claim(work, page_id, attempts, 0)
            self._end(db, late, now, "lost", "its lease ended", {})
        db.execute(
            "update page set state = 'claimed', worker = ?, lease_until = ?, attempts = attempts + 1 where id = ?",
            (self._owner.worker, now + lease_seconds, page_id),
        )
        db.execute(
            "insert into attempt(page_id, number, worker, started_at) values(?, ?, ?, ?)",
            (page_id, attempts + 1, self._owner.worker, now),
        )
        query = "select count(*) from attempt where page_id = ? and ended = 'retry'"
        return Claim(work, page_id, attempts + 1, db.execute(query, (page_id,)).fetchone()[0])

    def _requeue(self, db: sqlite3.Connection, claim: Claim) -> bool:
        return bool(
            db.execute(
                "update page set state = 'queued', worker = null, lease_until = null "
                "where id = ? and state = 'claimed' and worker = ? and attempts = ?",
                (claim.page_id, self._owner.worker, claim.attempt),
            ).rowcount
        )

    @staticmethod
    def _end(db: sqlite3.Connection, claim: Claim, now: float, ended: str, reason: str, timings: Mapping[str, float]) -> None:
        db.execute(
            "update attempt set ended_at = ?, ended = ?, reason = ?, timings = ? where page_id = ? and number = ?",
            (now, ended, reason, json.dumps(dict(timings), sort_keys=True), claim.page_id, claim.attempt),
        )

    @staticmethod
    def _release(db: sqlite3.Connection, worker: str, now: float, ended: str, reason: str) -> int:
        db.execute(
            "update attempt set ended_at = ?, ended = ?, reason = ? where ended is null and (page_id, number) in "
            "(select id, attempts from page where state = 'claimed' and worker = ?)",
            (now, ended, reason, worker),
        )
        return db.execute(
            "update page set state = 'queued', worker = null, lease_until = null where state = 'claimed' and worker = ?",
            (worker,),
        ).rowcount

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        if file_identity(self._path) != self._file:
            raise gone(self._path)
        with self._errors():
            self._db.execute("begin immediate")
            try:
                yield self._db
            except BaseException:
                if self._db.in_transaction:  # a full disk has ended it already
                    self._db.execute("rollback")
                raise
            self._db.execute("commit")

    def _errors(self) -> AbstractContextManager[None]:
        return database_errors(self._path, self._busy_seconds)


def _outcome(status: str, reason: str, tokens: int, mean_log_prob: float | None, tries: int, measures: str) -> Outcome:
    return Outcome(status, reason, tokens, mean_log_prob, {}, tries, json.loads(measures))
