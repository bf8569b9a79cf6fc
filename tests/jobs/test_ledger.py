"""The ledger: every page claimed once at a time, finished once, and never lost."""

from __future__ import annotations

import dataclasses
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pagemill.jobs.errors import LedgerError, OutputError
from pagemill.jobs.ledger.ledger import Claim, Ledger, Outcome
from pagemill.jobs.ledger.migrations import MIGRATIONS
from pagemill.jobs.ledger.owner import Owner, is_dead, this_process
from pagemill.pipeline.page import WHOLE_DOCUMENT, Attempt, PageRef

LEASE = 100.0
OK = Outcome("ok", tokens=7, mean_log_prob=-0.5, timings={"render": 1.0})

Open = Callable[..., Ledger]


def refs(pages: int, document: str = "d") -> list[PageRef]:
    return [PageRef(document, page) for page in range(pages)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out" / ".pagemill" / "ledger.sqlite3"


@pytest.fixture
def open_ledger(path: Path) -> Iterator[Open]:
    opened: list[Ledger] = []

    def open_one(worker: str = "a", pages: int = 5, owner: Owner | None = None) -> Ledger:
        ledger = Ledger(path, owner or dataclasses.replace(this_process(), worker=worker))
        opened.append(ledger)
        ledger.begin("m", "s", "{}", 0)
        ledger.want(refs(pages), ["d.pdf"] * pages)
        return ledger

    yield open_one
    for ledger in opened:
        ledger.close()


def query(path: Path, sql: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def pages(claims: list[Claim]) -> list[int]:
    return [claim.ref.page for claim in claims]


def test_pages_are_claimed_in_order_and_once(open_ledger: Open) -> None:
    a, b = open_ledger("a"), open_ledger("b")
    assert pages(a.claim(0, 2, LEASE)) == [0, 1]
    assert pages(b.claim(0, 2, LEASE)) == [2, 3]
    assert pages(a.claim(0, 9, LEASE)) == [4]
    assert a.claim(0, 9, LEASE) == b.claim(0, 9, LEASE) == []
    assert a.unfinished() == 5


def test_finished_page_is_done_for_every_later_run(open_ledger: Open) -> None:
    ledger = open_ledger()
    for claim in ledger.claim(0, 9, LEASE):
        assert ledger.finish([(claim, OK)], 1) == [True]
        assert ledger.finish([(claim, OK)], 1) == [False]
    later = open_ledger("b")
    assert later.claim(2, 9, LEASE) == []
    assert later.unfinished() == 0
    assert later.is_complete("d")
    assert list(later.outcomes().values()) == [dataclasses.replace(OK, timings={})] * 5


@pytest.mark.parametrize("other", [("x", "m", "s"), ("d", "x", "s"), ("d", "m", "x")], ids=["content", "model", "settings"])
def test_other_content_model_or_settings_is_other_work(open_ledger: Open, other: tuple[str, str, str]) -> None:
    ledger = open_ledger(pages=1)
    ledger.finish([(ledger.claim(0, 1, LEASE)[0], OK)], 1)
    document, model, settings = other
    ledger.begin(model, settings, "{}", 1)
    ledger.want(refs(1, document), ["d.pdf"])
    assert [claim.ref for claim in ledger.claim(2, 9, LEASE)] == refs(1, document)


def test_document_that_did_not_open_is_another_page_than_those_it_has(open_ledger: Open) -> None:
    whole = PageRef("w", WHOLE_DOCUMENT)
    ledger = open_ledger("a", pages=0)
    ledger.want([whole], ["w.pdf"])
    ledger.finish([(ledger.claim(0, 9, LEASE)[0], Outcome("failed", "needs a password"))], 1)
    stamp = ledger.stamp("w")
    assert (whole.number, ledger.is_complete("w")) == (1, True)
    later = open_ledger("b", pages=0)
    later.want(refs(2, "w"), ["w.pdf"] * 2)
    assert not later.is_complete("w")
    assert pages(later.claim(2, 9, LEASE)) == [0, 1]
    assert later.stamp("w") != stamp


def test_two_paths_of_one_content_are_one_work(open_ledger: Open) -> None:
    ledger = open_ledger(pages=2)
    ledger.want(refs(2), ["copy.pdf"] * 2)
    assert len(ledger.claim(0, 9, LEASE)) == 2


def test_rows_of_other_jobs_are_left_alone(open_ledger: Open) -> None:
    open_ledger("a", pages=5)
    assert pages(open_ledger("b", pages=2).claim(0, 9, LEASE)) == [0, 1]


def test_late_lease_passes_to_another_and_its_finish_is_refused(open_ledger: Open, path: Path) -> None:
    a, b = open_ledger("a", pages=1), open_ledger("b", pages=1)
    late = a.claim(0, 1, LEASE)[0]
    assert b.claim(LEASE - 1, 1, LEASE) == []
    taken = b.claim(LEASE + 1, 1, LEASE)[0]
    assert (taken.number, taken.retries) == (2, 0)
    assert a.finish([(late, OK)], LEASE + 2) == [False]
    assert b.finish([(taken, OK)], LEASE + 3) == [True]
    assert query(path, "select number, ended from attempt order by number") == [(1, "lost"), (2, "finished")]


def test_renewed_lease_is_kept(open_ledger: Open) -> None:
    a, b = open_ledger("a", pages=1), open_ledger("b", pages=1)
    claim = a.claim(0, 1, LEASE)[0]
    a.renew(LEASE - 1, LEASE)
    assert b.claim(LEASE + 1, 1, LEASE) == []
    assert a.finish([(claim, OK)], LEASE + 2) == [True]


def test_released_pages_are_free_at_once(open_ledger: Open, path: Path) -> None:
    a, b = open_ledger("a"), open_ledger("b")
    a.finish([(a.claim(0, 3, LEASE)[0], OK)], 1)
    assert a.release(2) == 2
    assert pages(b.claim(2, 9, LEASE)) == [1, 2, 3, 4]
    assert query(path, "select count(*) from attempt where ended = 'released'") == [(2,)]
    assert pages(a.claim(2, 9, LEASE)) == []


def test_page_that_asks_for_another_attempt_counts_its_retries(open_ledger: Open) -> None:
    ledger = open_ledger(pages=2)
    first, _ = ledger.claim(0, 2, LEASE)
    ledger.give_back([(first, "crashed")], 1)
    (again,) = ledger.claim(1, 2, LEASE)
    assert (again.ref, again.number, again.retries) == (first.ref, 2, 1)


def test_failed_pages_are_kept_until_asked_for(open_ledger: Open) -> None:
    ledger = open_ledger(pages=2)
    for claim, outcome in zip(ledger.claim(0, 2, LEASE), (OK, Outcome("failed", "unreadable")), strict=True):
        ledger.finish([(claim, outcome)], 1)
    again = open_ledger("b", pages=2)
    assert again.claim(2, 9, LEASE) == []
    assert again.retry(["failed"]) == 1
    assert pages(again.claim(2, 9, LEASE)) == [1]


def test_reopened_page_is_claimed_again(open_ledger: Open) -> None:
    ledger = open_ledger(pages=2)
    for claim in ledger.claim(0, 2, LEASE):
        ledger.finish([(claim, OK)], 1)
    before = ledger.stamp("d")
    ledger.reopen(refs(1))
    assert pages(ledger.claim(2, 9, LEASE)) == [0]
    assert ledger.stamp("d") != before


def test_lease_of_a_dead_process_is_freed_without_waiting(open_ledger: Open, path: Path) -> None:
    here = this_process()
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    dead = Owner("dead", here.host, here.boot, child.pid, "1")
    rebooted = Owner("rebooted", here.host, "another boot", os.getpid(), here.process_start)
    reused = Owner("reused pid", here.host, here.boot, os.getpid(), "another start")
    alive = dataclasses.replace(here, worker="alive")
    away = dataclasses.replace(dead, worker="away", host="another host")
    for owner in (dead, rebooted, reused, alive, away):
        open_ledger(owner=owner).claim(0, 1, LEASE)
    ledger = open_ledger("me")
    expected_free = [0, 1, 2] if here.process_start else [0, 1]
    assert ledger.release_dead(1) == len(expected_free)
    assert pages(ledger.claim(1, 9, LEASE)) == expected_free
    assert ("dead",) not in query(path, "select worker from owner")


def test_this_process_is_alive() -> None:
    assert not is_dead(this_process(), this_process())


def test_claims_of_many_threads_never_overlap(open_ledger: Open, path: Path) -> None:
    code = (
        "import dataclasses, sys; from pathlib import Path\n"
        "from pagemill.jobs.ledger.ledger import *; from pagemill.jobs.ledger.owner import this_process\n"
        f"ledger = Ledger(Path({str(path)!r}), this_process())\n"
        "ledger.begin('m', 's', '{}', 0)\n"
        "ledger.want([PageRef('d', page) for page in range(300)], ['d.pdf'] * 300)\n"
        "while claims := ledger.claim(0, 7, 100.0):\n"
        "    assert all(ledger.finish([(claim, Outcome('ok')) for claim in claims], 1))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    children = [subprocess.Popen([sys.executable, "-c", code], env=environment) for _ in range(3)]
    assert [child.wait(60) for child in children] == [0, 0, 0]
    assert query(path, "select count(*), sum(state = 'done'), sum(attempts) from page") == [(300, 300, 300)]


def test_output_name_is_owned_for_good(open_ledger: Open) -> None:
    ledger = open_ledger()
    assert ledger.name_outputs(lambda owned: {"/a/x.pdf": "x"}, str.upper) == {"/a/x.pdf": "x"}
    assert open_ledger("b").name_outputs(lambda owned: {}, str.upper) == {"/a/x.pdf": "x"}
    assert ledger.output_stamp("/a/x.pdf") == ""
    for wrote, stamp, expected in ((True, "1", "1"), (False, "2", "1")):
        ledger.write_output("/a/x.pdf", stamp, lambda last, wrote=wrote: [] if wrote else None)
        assert open_ledger("b").output_stamp("/a/x.pdf") == expected


def test_ledger_of_a_newer_version_is_refused(open_ledger: Open, path: Path) -> None:
    open_ledger().close()
    connection = sqlite3.connect(path)
    connection.execute(f"pragma user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    with pytest.raises(LedgerError, match="newer Pagemill"):
        open_ledger()


def test_damaged_ledger_is_refused(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no database " * 100)
    with pytest.raises(LedgerError, match="expected a Pagemill ledger"):
        Ledger(path, this_process())


def test_folder_that_cannot_be_made_is_an_output_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(OutputError, match="expected a folder that can be written"):
        Ledger(tmp_path / "file" / ".pagemill" / "ledger.sqlite3", this_process())


def test_every_reading_of_an_attempt_is_kept_with_its_reason(open_ledger: Open, path: Path) -> None:
    ledger = open_ledger(pages=1)
    attempts = (Attempt("looped", "the last 1 tokens repeat", 512, -0.1), Attempt("ok", "", 7, -0.2, temperature=0.2))
    outcome = Outcome("ok", tries=2, timings={"decode": 3.0}, measures={"mark_px": 9.0}, attempts=attempts)
    ledger.finish([(ledger.claim(0, 1, LEASE)[0], outcome)], 1)
    ((kept, seconds),) = query(path, "select readings, timings from attempt")
    assert [Attempt(**one) for one in json.loads(str(kept))] == list(attempts)
    assert json.loads(str(seconds)) == {"decode": 3.0}
    (found,) = ledger.outcomes().values()
    assert (found.final_status, found.tries, found.measures) == ("retried", 2, {"mark_px": 9.0})


def test_ledger_of_the_first_version_is_brought_up_to_date(path: Path) -> None:
    path.parent.mkdir(parents=True)
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in MIGRATIONS[0]:
        connection.execute(statement)
    connection.execute("pragma user_version = 1")
    connection.execute(
        "insert into page(document_hash, page, model_hash, settings_hash, source, state, status) "
        "values('d', 0, 'm', 's', 'd.pdf', 'done', 'ok')"
    )
    connection.close()
    ledger = Ledger(path, this_process())
    ledger.begin("m", "s", "{}", 0)
    ledger.want(refs(1), ["d.pdf"])
    assert [outcome.status for outcome in ledger.outcomes().values()] == ["ok"]
    ledger.close()


@pytest.mark.parametrize("change", ["removed", "replaced"])
def test_ledger_that_was_taken_away_is_noticed_before_anything_is_written(open_ledger: Open, path: Path, change: str) -> None:
    ledger = open_ledger()
    path.unlink()
    if change == "replaced":
        path.write_bytes(b"")
    with pytest.raises(OutputError, match="found it removed or replaced"):
        ledger.claim(0, 1, LEASE)
