"""The page store: what was put comes back, all of one call or none, and a damaged record counts as none."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagemill.jobs.ledger.store import PageStore
from pagemill.pipeline.page import Attempt, PageRef, PageText, Picture

HASH = "a" * 64


def ref(page: int) -> PageRef:
    return PageRef(HASH, page, "scan.pdf")


FULL = PageText(
    ref(0),
    "Zwei Wörter \ud800 \U0001f600",
    "low_confidence",
    "unsure",
    7,
    -0.7,
    {"render": 0.5, "decode": 2.0},
    {"software": "test"},
    (Attempt("looped", "again", 600, -0.1, seconds=2.0), Attempt("low_confidence", "unsure", 7, -0.7, 90, 0.8, 0.2, 2, 1.5)),
    1,
    (90, 3, 0, 100),
    {"mark_px": 12.0},
    Picture(100, 200, 72.0),
    finished_at=1_700_000_000,
)
PAGES = [FULL, PageText(ref(1), "", "failed", "unreadable"), PageText(ref(2), "x", "ok")]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PageStore]:
    store = PageStore(tmp_path)
    yield store
    store.close()


def test_store_returns_what_was_put(store: PageStore) -> None:
    assert store.get(ref(0)) is None
    store.put(PAGES)
    assert [store.get(ref(page)) for page in range(4)] == [*PAGES, None]
    assert store.pages(HASH) == {0, 1, 2}
    assert store.pages("b" * 64) == set()


def test_record_of_the_same_page_is_replaced(store: PageStore) -> None:
    store.put(PAGES)
    store.put([PageText(ref(0), "new", "ok")])
    assert store.get(ref(0)) == PageText(ref(0), "new", "ok")


def test_document_is_known_by_its_content(store: PageStore) -> None:
    store.put(PAGES)
    moved = PageRef(HASH, 1, "copy.pdf")
    found = store.get(moved)
    assert found is not None
    assert (found.ref.name, found.reason) == ("copy.pdf", "unreadable")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"text": "a"}', "null"])
def test_damaged_record_counts_as_none(store: PageStore, content: str) -> None:
    store.put(PAGES)
    connection = sqlite3.connect(store.path)
    connection.execute("update record set content = ? where page = 0", (content,))
    connection.commit()
    connection.close()
    assert store.get(ref(0)) is None


def test_record_of_another_version_counts_as_none(store: PageStore) -> None:
    store.put(PAGES)
    connection = sqlite3.connect(store.path)
    connection.execute("update record set version = 1")
    connection.commit()
    connection.close()
    assert store.get(ref(0)) is None
    assert store.pages(HASH) == set()


def test_one_call_is_all_or_nothing(store: PageStore) -> None:
    bad = PageText(ref(9), "x", "ok", measures={"a": object()})  # type: ignore[dict-item]
    with pytest.raises(TypeError):
        store.put([PAGES[0], bad])
    assert store.pages(HASH) == set()


def test_two_connections_see_each_other(store: PageStore, tmp_path: Path) -> None:
    other = PageStore(tmp_path)
    other.put(PAGES)
    assert store.get(ref(2)) == PAGES[2]
    other.close()
