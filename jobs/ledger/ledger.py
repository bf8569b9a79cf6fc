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
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath

from pagemill.jobs.ledger.database import use_write_ahead_log
from pagemill.jobs.ledger.disk import database_errors
from pagemill.jobs.ledger.migrations import migrate
from pagemill.jobs.ledger.owner import Owner, is_dead
from pagemill.jobs.ledger.records import file_identity, gone
from pagemill.pipeline import WHOLE_DOCUMENT, Attempt, OutputFile, PageRef

BUSY_SECONDS = 30.0
THIS_PAGE = "document_hash = ? and page = ? and model_hash = ? and settings_hash = ?"
THIS_DOCUMENT = (
    "document_hash = ? and model_hash = ? and settings_hash = ? and exists (select 1 from wanted where page_id = page.id)"
)


@dataclass(frozen=True, slots=True)
class Claim:
    """A page that this worker may do until its lease ends.

    row: of the page in the ledger.  number: which claim of the page it is.  retries: how often the page asked for another.
    """

    ref: PageRef
    row: int
    number: int
    retries: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a page ended.

    tries: readings and renderings in all.  measures: what was measured before it was read.  attempts: of the last claim.
    """

    status: str
    reason: str = ""
    tokens: int = 0
    mean_log_prob: float | None = None
    timings: Mapping[str, float] = field(default_factory=dict)
    tries: int = 1
    measures: Mapping[str, float] = field(default_factory=dict)
    attempts: tuple[Attempt, ...] = ()

    @property
    def final_status(self) -> str:
        """The status for reports: a page that is ok after another try is "retried"."""
        return "retried" if self.status == "ok" and self.tries > 1 else self.status


class Ledger:
    """One connection of one worker.

    ``begin`` says under which model and settings it works: the same page is other work under others.  ``want`` says which
    pages this run is about; the other rows are left alone.
    """

    def __init__(self, path: Path, owner: Owner, busy_seconds: float = BUSY_SECONDS) -> None:
        self._path, self._owner, self._busy_seconds = path, owner, busy_seconds
        self._run = 0
        self._work = ("", "")  # hashes of model and settings
        self._cursor = -1  # sequence of the last claimed page, so that a claim does not walk over what is done
        with self._errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            # no implicit transactions: every write names its own, so that it takes the lock at its beginning
            self._db = sqlite3.connect(path, isolation_level=None, timeout=busy_seconds)
        try:
            self._prepare()
        except BaseException:
            self._db.close()
            raise

    def begin(self, model_hash: str, settings_hash: str, settings: str, now: float) -> None:
        """Records a run: what was asked for, so that it can be asked for again.  Before all that is about pages."""
        self._work = model_hash, settings_hash
        with self._transaction() as db:
            self._run = db.execute(
                "insert into run(worker, started_at, model_hash, settings_hash, settings) values(?, ?, ?, ?, ?) returning id",
                (self._owner.worker, now, model_hash, settings_hash, settings),
            ).fetchone()[0]

    def end(self, how: str, now: float) -> None:
        """Records how the run ended."""
        with self._transaction() as db:
            db.execute("update run set ended_at = ?, ended = ? where id = ?", (now, how, self._run))

    def want(self, pages: Sequence[PageRef], sources: Sequence[str]) -> None:
        """Adds pages to this run's list, in order; queues those that the ledger does not know.  sources: a path each."""
        keys = [(ref.document_hash, ref.page, *self._work) for ref in pages]
        with self._transaction() as db:
            db.executemany(
                "insert into page(document_hash, page, model_hash, settings_hash, source, run) values(?, ?, ?, ?, ?, ?) "
                "on conflict do update set source = excluded.source, run = excluded.run",
                [(*key, source, self._run) for key, source in zip(keys, sources, strict=True)],
            )
            db.executemany(f"insert or ignore into wanted(page_id) select id from page where {THIS_PAGE}", keys)

    def retry(self, statuses: Sequence[str]) -> int:
        """Queues this run's pages again that ended so; returns how many."""
        with self._transaction() as db:
            marks = ", ".join("?" * len(statuses))
            return db.execute(
                "update page set state = 'queued', status = null, reason = '' "
                f"where state = 'done' and status in ({marks}) and id in (select page_id from wanted)",
                tuple(statuses),
            ).rowcount

    def reopen(self, pages: Sequence[PageRef]) -> None:
        """Queues finished pages again whose record has gone."""
        with self._transaction() as db:
            db.executemany(
                f"update page set state = 'queued', status = null, reason = '' where state = 'done' and {THIS_PAGE}",
                [(ref.document_hash, ref.page, *self._work) for ref in pages],
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
            for place, claim, late_worker in rows:
                self._take(db, claim, late_worker, now, lease_seconds)
                self._cursor = place
            return [claim for _, claim, _ in rows]

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

    def is_complete(self, document_hash: str) -> bool:
        """True when every wanted page of the document is done."""
        with self._errors():
            query = f"select 1 from page where {THIS_DOCUMENT} and state <> 'done' limit 1"
            return self._db.execute(query, (document_hash, *self._work)).fetchone() is None

    def unfinished(self) -> int:
        """How many wanted pages are not done."""
        with self._errors():
            query = "select count(*) from wanted join page on page.id = page_id where state <> 'done'"
            return int(self._db.execute(query).fetchone()[0])

    def outcomes(self) -> dict[PageRef, Outcome]:
        """The wanted pages that are done, in order."""
        with self._errors():
            rows = self._db.execute(
                "select document_hash, page, status, reason, tokens, mean_log_prob, tries, measures "
                "from wanted join page on page.id = page_id where state = 'done' order by sequence"
            )
            return {PageRef(*row[:2]): _outcome(*row[2:]) for row in rows}

    def stamp(self, document_hash: str) -> str:
        """The state of a document's wanted pages; it differs when one was done again."""
        key = (document_hash, *self._work)
        with self._errors():
            query = f"select total(attempts), count(*), min(page) from page where {THIS_DOCUMENT}"
            claims, pages, first = self._db.execute(query, key).fetchone()
        return ":".join((*key, str(pages), str(int(claims)), *(["unopened"] if first == WHOLE_DOCUMENT else [])))

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
            rows = [(file.name, source, file.sha256, file.size_bytes) for file in files]
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
                *(json.dumps(dict(outcome.measures), sort_keys=True), claim.row, self._owner.worker, claim.number),
            ),
        ).rowcount
        if kept:
            self._end(db, claim, now, "finished", outcome.reason, outcome.timings)
            if outcome.attempts:
                attempts = json.dumps([asdict(attempt) for attempt in outcome.attempts])
                where = (attempts, claim.row, claim.number)
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

    def _free(self, db: sqlite3.Connection, now: float, limit: int) -> list[tuple[int, Claim, str]]:
        """(place in the list, the next claim of the page, the worker whose lease on it ended or "")."""
        rows = db.execute(
            "select sequence, document_hash, page, source, id, page.attempts + 1, coalesce(page.worker, ''), "
            "(select count(*) from attempt where page_id = page.id and ended = 'retry') "
            "from wanted join page on page.id = wanted.page_id "
            "where sequence > ? and (state = 'queued' or (state = 'claimed' and lease_until < ?)) order by sequence limit ?",
            (self._cursor, now, limit),
        )
        return [
            (place, Claim(PageRef(document_hash, page, PurePosixPath(source).name), row, number, retries), late)
            for place, document_hash, page, source, row, number, late, retries in rows.fetchall()
        ]

    def _take(self, db: sqlite3.Connection, claim: Claim, late_worker: str, now: float, lease_seconds: float) -> None:
        if late_worker:
            self._end(db, replace(claim, number=claim.number - 1), now, "lost", "its lease ended", {})
        db.execute(
            "update page set state = 'claimed', worker = ?, lease_until = ?, attempts = ? where id = ?",
            (self._owner.worker, now + lease_seconds, claim.number, claim.row),
        )
        db.execute(
            "insert into attempt(page_id, number, worker, started_at) values(?, ?, ?, ?)",
            (claim.row, claim.number, self._owner.worker, now),
        )

    def _requeue(self, db: sqlite3.Connection, claim: Claim) -> bool:
        return bool(
            db.execute(
                "update page set state = 'queued', worker = null, lease_until = null "
                "where id = ? and state = 'claimed' and worker = ? and attempts = ?",
                (claim.row, self._owner.worker, claim.number),
            ).rowcount
        )

    @staticmethod
    def _end(db: sqlite3.Connection, claim: Claim, now: float, ended: str, reason: str, timings: Mapping[str, float]) -> None:
        db.execute(
            "update attempt set ended_at = ?, ended = ?, reason = ?, timings = ? where page_id = ? and number = ?",
            (now, ended, reason, json.dumps(dict(timings), sort_keys=True), claim.row, claim.number),
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
            self._db.execute("begin immediate")  # a deferred one could fail at its first write, after reads
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
