"""The card's figures: which pages are drawn, how `pagemill eval`'s answer becomes a table; needs no torch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pagemill.jobs.evaluate.evaluate import Errors
from pagemill.jobs.evaluate.readings import read_truth
from samples.model.train.card import HEAD, KINDS, SETS, Measures, draw, scores, table
from samples.model.train.markers import put_between
from tests.samples.test_train_pages import needs_fonts


def measures(read: dict[str, Errors]) -> Measures:
    """The same three times."""
    return Measures(read, read, read)


def cells(line: str) -> list[str]:
    """Of a row of the table."""
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_every_set_is_of_a_kind_with_a_name() -> None:
    assert {name.partition(":")[0] for name in SETS} == set(KINDS)


@needs_fonts
def test_drawn_pages_and_their_truth_have_the_same_names(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.json"
    corpus.write_text(json.dumps({"train": [], "held_out": ["In the beginning God created the heaven."], "words": ["mill"]}))
    count = draw(tmp_path, share=0.02, corpus_cache=corpus)
    pages = {path.relative_to(tmp_path / "pages").as_posix() for path in (tmp_path / "pages").rglob("*.png")}
    truth = read_truth(tmp_path / "truth")
    assert set(truth) == pages
    assert len(pages) == count
    assert all(bool(text[1]) != name.startswith("blank/") for name, text in truth.items())


def test_a_row_is_the_pages_of_its_kind_and_size() -> None:
    read = {f"clean/112x336/{number:03}.png": Errors(number, 0, 0, 100) for number in range(4)}
    read |= {"clean/448x448/001.png": Errors(0, 0, 50, 100), "blank/112x336/001.png": Errors(0, 0, 7, 0)}
    found = [cells(line) for line in table(measures(read)).splitlines()]
    assert found[0] == list(HEAD)
    assert found[2][:4] == [KINDS["clean"], "all", "5", "500"]
    strips = next(row for row in found if row[1] == "336 x 112")
    assert strips[2:4] == ["4", "400"]
    assert strips[4].startswith("1.5 % (")
    assert strips[5:7] == ["1.5 %", "1"]
    assert found[-1][4:] == ["7 characters on 1 pages", "-", "0", "7 characters on 1 pages", "7 characters on 1 pages"]


def test_blank_pages_without_a_text_are_said_to_be_so() -> None:
    last = table(measures({"blank/112x336/001.png": Errors(0, 0, 0, 0)})).splitlines()[-1]
    assert cells(last)[2:5] == ["1", "0", "empty text"]


def test_a_page_that_was_not_read_is_refused() -> None:
    with pytest.raises(SystemExit, match="expected every page to be read"):
        scores({"run": "out", "unread": [["clean/112x336/001.png", 1]], "pages": []})


def test_a_table_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    document = tmp_path / "README.md"
    document.write_text("a\n\n<!-- figures -->\nold\n<!-- end of figures -->\n\nb\n")
    for text in ("new\n", "newer"):
        put_between(document, "figures", text)
    assert document.read_text() == "a\n\n<!-- figures -->\n\nnewer\n\n<!-- end of figures -->\n\nb\n"
    with pytest.raises(SystemExit, match="expected the comments <!-- other -->"):
        put_between(document, "other", "text")
