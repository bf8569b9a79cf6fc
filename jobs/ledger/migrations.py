"""The ledger's tables, as a list of migrations that only grows: never edit one that was released, append another."""

from __future__ import annotations

import sqlite3

from pagemill.jobs.errors import LedgerError

FIRST = (
    # One row a page of work; the four identity columns are what makes two pages the same work.
    """create table page(
        id integer primary key,
        document_hash text not null,
        page integer not null,
        model_hash text not null,
        settings_hash text not null,
        source text not null,
        state text not null default 'queued' check(state in ('queued', 'claimed', 'done')),
        attempts integer not null default 0,
        worker text,
        lease_until real,
        status text,
        reason text not null default '',
        tokens integer not null default 0,
        mean_log_prob real,
        finished_at real,
        unique(document_hash, model_hash, settings_hash, page)
    ) strict""",
    "create index unfinished on page(document_hash, model_hash, settings_hash) where state <> 'done'",
    "create index held on page(worker) where state = 'claimed'",
    # What became of every claim; a page is done once when exactly one of its attempts ended 'finished'.
    """create table attempt(
        page_id integer not null references page(id),
        number integer not null,
        worker text not null,
        started_at real not null,
        ended_at real,
        ended text check(ended in ('finished', 'retry', 'released', 'lost')),
        reason text not null default '',
        timings text not null default '{}',
        primary key(page_id, number)
    ) strict, without rowid""",
    # Who holds leases: enough to tell on this machine whether the process still lives.
    """create table owner(
        worker text primary key,
        host text not null,
        boot text not null,
        pid integer not null,
        process_start text not null
    ) strict, without rowid""",
    # Which document owns an output name, and the state of its pages when the output was last written.
    """create table output(
        name_key text primary key,
        name text not null,
        source text not null,
        stamp text not null default ''
    ) strict, without rowid""",
    "create unique index output_source on output(source)",
)

REPORTS = (
    # How often a page was tried in all, what was measured on it, and the last run that asked for it.
    "alter table page add column tries integer not null default 0",
    "alter table page add column measures text not null default '{}'",
    "alter table page add column run integer not null default 0",
    # A command that worked on this folder: its settings, so that it can be given again, and how it ended.
    """create table run(
        id integer primary key,
        worker text not null,
        started_at real not null,
        ended_at real,
        ended text not null default '',
        model_hash text not null,
        settings_hash text not null,
        settings text not null
    ) strict""",
    # Every file that was written, as it was written.
    """create table output_file(
        path text primary key,
        source text not null,
        sha256 text not null,
        bytes integer not null
    ) strict, without rowid""",
    "create index output_file_source on output_file(source)",
)

READINGS = (
    # What became of each reading within an attempt: a list of the fields of ``Attempt``.
    "alter table attempt add column readings text not null default '[]'",
    "create index if not exists page_source on page(source, run)",
)

WHOLE_DOCUMENTS = (
    # Documents that did not open had settings of their own; they are pages of number -1 now, recorded anew by the next run.
    "delete from attempt where page_id in (select id from page where settings_hash = 'document')",
    "delete from page where settings_hash = 'document'",
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (FIRST, REPORTS, READINGS, WHOLE_DOCUMENTS)


def migrate(connection: sqlite3.Connection) -> None:
    """Brings a ledger of any earlier version to the newest, in one transaction; refuses one of a newer Pagemill."""
    connection.execute("begin immediate")
    try:
        (version,) = connection.execute("pragma user_version").fetchone()
        if version > len(MIGRATIONS):
            raise LedgerError(
                f"expected a ledger of version {len(MIGRATIONS)} or earlier, found version {version}: "
                "it was written by a newer Pagemill; use that one, or another output folder"
            )
        for statements in MIGRATIONS[version:]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"pragma user_version = {len(MIGRATIONS)}")
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:  # a full disk has ended it already
            connection.execute("rollback")
        raise
