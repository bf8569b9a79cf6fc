"""Read-only queries of an output folder's ledger, for commands that only look: status, verify, and what to retry."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pagemill.jobs.errors import InputError, LedgerError
from pagemill.jobs.ledger.disk import database_errors
from pagemill.jobs.ledger.ledger import BUSY_SECONDS
from pagemill.jobs.ledger.migrations import MIGRATIONS
from pagemill.jobs.ledger.output_folder import OutputFolder
from pagemill.jobs.ledger.owner import Owner, is_dead, this_process
from pagemill.pipeline import OutputFile, PageRef

FINAL_STATUS = (
    "case when state = 'queued' then 'left' when state = 'claimed' then 'in work' "
    "when status = 'ok' and tries > 1 then 'retried' else status end"
)
NEWEST = "run = (select max(run) from page as other where other.source = page.source)"


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A command that worked on the folder.  ended: "finished", "interrupted", or "" while it runs or after a kill.

    settings: as JSON, to give it again.
    """

    number: int
    worker: str
    started_at: float
    ended: str
    model_hash: str
    settings_hash: str
    settings: str


@dataclass(frozen=True, slots=True)
class PageRow:
    """One page.  status: its final one."""

    source: str
    ref: PageRef
    model_hash: str
    settings_hash: str
    status: str
    reason: str


class LedgerView:
    """Reads the ledger of ``folder``; writes nothing."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._db = database

    def last_run(self) -> RunRecord | None:
        """The newest command; None where there was none."""
        row = self._db.execute(
            "select id, worker, started_at, ended, model_hash, settings_hash, settings from run order by id desc limit 1"
        ).fetchone()
        return None if row is None else RunRecord(*row)

    def pages(self, run: RunRecord | None = None) -> Iterator[PageRow]:
        """The pages that a run asked for, by document and number, whoever did them; of each document's last run for None."""
        query = (
            f"select source, document_hash, page, model_hash, settings_hash, {FINAL_STATUS}, reason from page "
            f"where {NEWEST if run is None else 'run = :run'} order by source, page"
        )
        for source, document_hash, page, *rest in self._db.execute(query, {"run": None if run is None else run.number}):
            yield PageRow(source, PageRef(document_hash, page, PurePosixPath(source).name), *rest)

    def done(self, model_hash: str, settings_hash: str) -> set[PageRef]:
        """What is done under a model and settings."""
        query = "select document_hash, page from page where state = 'done' and model_hash = ? and settings_hash = ?"
        return {PageRef(*row) for row in self._db.execute(query, (model_hash, settings_hash))}

    def output_files(self) -> list[OutputFile]:
        """Every file as it was last written."""
        return [OutputFile(*row) for row in self._db.execute("select path, sha256, bytes from output_file order by path")]

    def unwritten(self) -> list[str]:
        """Documents whose pages are all done and for which no output is noted."""
        query = (
            f"select source from page where {NEWEST} and source not in (select source from output_file) "
            "group by source having sum(state <> 'done') = 0 order by source"
        )
        return [source for (source,) in self._db.execute(query)]

    def workers(self) -> list[tuple[str, int, bool]]:
        """Who holds pages: worker, how many pages, whether it surely is dead."""
        here = this_process()
        query = (
            "select owner.worker, host, boot, pid, process_start, count(*) from owner join page "
            "on page.worker = owner.worker and state = 'claimed' group by owner.worker order by owner.worker"
        )
        return [(row[0], row[5], is_dead(Owner(*row[:5]), here)) for row in self._db.execute(query)]

    def damage(self) -> list[str]:
        """What SQLite finds wrong with the file; empty for a sound one."""
        return [text for (text,) in self._db.execute("pragma quick_check") if text != "ok"]


@contextmanager
def open_view(folder: Path, oldest: int = len(MIGRATIONS)) -> Iterator[LedgerView]:
    """The ledger of an output folder.  Raises InputError where there is none, LedgerError for one that cannot be read.

    oldest: the earliest version that has what is asked for; ``done`` is answered by all.
    """
    path = OutputFolder(folder).ledger
    if not path.is_file():
        raise InputError(
            f"{folder}: expected an output folder of Pagemill, found no {path.relative_to(folder)} in it; check the path"
        )
    with database_errors(path, BUSY_SECONDS):
        database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_SECONDS)
        try:
            (version,) = database.execute("pragma user_version").fetchone()
            if not oldest <= version <= len(MIGRATIONS):
                raise LedgerError(
                    f"{path}: expected a ledger of version {len(MIGRATIONS)}, found version {version}; "
                    + ("use a newer Pagemill" if version > len(MIGRATIONS) else "give its run command again, which renews it")
                )
            yield LedgerView(database)
        finally:
            database.close()
