"""The review page's content: every page of the run, its image where the original is there, what differs from another run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from PIL import Image

from pagemill.jobs.cli.review import ReviewWish, write_review
from pagemill.jobs.errors import InputError
from pagemill.jobs.review.review import differences
from tests.jobs.reviewed_run import make_inputs, make_run


def shown(path: Path) -> dict[str, object]:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', path.read_text("utf-8"), re.DOTALL)
    assert found
    data: dict[str, object] = json.loads(found[1])
    return data


@pytest.fixture
def run(tmp_path: Path) -> Path:
    inputs = make_inputs(tmp_path / "in")
    make_run(tmp_path / "out", inputs)
    make_run(tmp_path / "other", inputs, last_words="and one page")
    inputs[-1].unlink()
    return tmp_path / "out"


def test_every_page_is_there_with_status_text_and_image(run: Path) -> None:
    assert write_review(run, ReviewWish()) == 0
    pages = shown(run / "review.html")["pages"]
    assert isinstance(pages, list)
    assert [(page["document"], page["page"], page["status"]) for page in pages] == [
        ("four.tif", 1, "ok"),
        ("four.tif", 2, "blank"),
        ("four.tif", 3, "ok"),
        ("four.tif", 4, "looped"),
        ("gone.png", 1, "failed"),
        ("one.png", 1, "low_confidence"),
    ]
    assert [page["confidence"] for page in pages] == [0.99, None, 0.8187, 0.2231, None, 0.0498]
    assert [page["image"] is None for page in pages] == [False, False, False, False, True, False]
    for page in pages:
        if page["image"]:
            with Image.open(run / page["image"]) as image:
                assert (image.format, max(image.size)) == ("JPEG", 308)
    assert len(list((run / "review_images").iterdir())) == 5


def test_text_of_the_model_stays_text(run: Path) -> None:
    write_review(run, ReviewWish(longest_edge_px=0))
    content = (run / "review.html").read_text("utf-8")
    assert content.count("<script") == 2
    assert "onerror" not in re.sub(r'<script id="data".*?</script>', "", content, flags=re.DOTALL)
    pages = shown(run / "review.html")["pages"]
    assert isinstance(pages, list)
    assert "<script" not in pages[5]["html"]
    assert "<img" not in pages[5]["html"]


def test_images_that_are_there_are_not_drawn_again(run: Path) -> None:
    write_review(run, ReviewWish())
    before = {path: path.stat().st_mtime_ns for path in (run / "review_images").iterdir()}
    write_review(run, ReviewWish())
    assert {path: path.stat().st_mtime_ns for path in (run / "review_images").iterdir()} == before


def test_difference_to_another_run_is_shown_word_by_word(run: Path) -> None:
    write_review(run, ReviewWish(run.parent / "r" / "diff.html", run.parent / "other", 0))
    data = shown(run.parent / "r" / "diff.html")
    assert data["compared"] is True
    pages = data["pages"]
    assert isinstance(pages, list)
    assert pages[2]["changes"] == [["=", "three and"], ["-", "one"], ["+", "the last"], ["=", "page"]]
    assert [bool(page["changes"]) for page in pages] == [False, False, True, False, False, False]


def test_differences_of_long_pages_are_not_compared_word_by_word() -> None:
    assert differences("a " * 15_000, "b " * 15_000) == [("-", "a " * 15_000), ("+", "b " * 15_000)]


def test_folder_without_a_run_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected an output folder of Pagemill"):
        write_review(tmp_path, ReviewWish())


def test_other_file_names_are_refused(run: Path) -> None:
    with pytest.raises(InputError, match=r"ends in \.html"):
        write_review(run, ReviewWish(run / "four.tif"))
