"""The review page in a browser, from a file: address: filter, next, zoom, differences."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from pagemill.jobs.cli.review import ReviewWish, write_review
from tests.jobs.reviewed_run import make_inputs, make_run

pytestmark = pytest.mark.slow

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("needs Chromium: install it, on Debian as chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright, of the extra dev")
    folder = tmp_path_factory.mktemp("review")
    inputs = make_inputs(folder / "in")
    make_run(folder / "out", inputs)
    make_run(folder / "other", inputs, last_words="and one page")
    inputs[-1].unlink()
    write_review(folder / "out", ReviewWish(against=folder / "other"))
    with playwright.sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": 1400, "height": 800})
        troubles: list[str] = []
        opened.on("pageerror", lambda error: troubles.append(str(error)))
        opened.on("request", lambda request: troubles.append(request.url) if not request.url.startswith("file:") else None)
        opened.goto((folder / "out" / "review.html").as_uri())
        yield opened
        browser.close()
        assert troubles == []


@pytest.fixture(autouse=True)
def from_the_start(page: Any) -> None:
    page.reload()
    page.locator("#list div").first.click()


def names(page: Any) -> list[str]:
    return [text.split("\n")[0] for text in page.locator("#list .name").all_inner_texts()]


def test_first_page_shows_its_image_and_its_text(page: Any) -> None:
    assert page.title().startswith("Review of ")
    assert "four.tif, page 1: ok 99 %" in page.inner_text("#title")
    assert page.locator("#said h1").inner_text() == "First"
    assert page.locator("#said td").all_inner_texts() == ["sure", "unsure"]
    page.wait_for_function("document.querySelector('#picture img').naturalWidth > 0")


def test_next_and_previous_go_through_the_pages(page: Any) -> None:
    page.click("#next")
    assert "page 2: blank" in page.inner_text("#title")
    assert "no ink" in page.inner_text("#why")
    page.keyboard.press("j")
    assert "page 3: ok" in page.inner_text("#title")
    page.click("#previous")
    page.keyboard.press("k")
    page.keyboard.press("ArrowUp")
    assert "page 1: ok" in page.inner_text("#title")
    for _ in range(9):
        page.click("#next")
    assert "one.png, page 1: low_confidence" in page.inner_text("#title")


def test_filters_leave_the_pages_that_fit(page: Any) -> None:
    page.select_option("#status", "looped")
    assert names(page) == ["four.tif, 4"]
    assert "page 4: looped" in page.inner_text("#title")
    assert page.inner_text("#count") == "1 of 6 pages"
    page.select_option("#status", "")
    page.fill("#confidence", "50")
    assert names(page) == ["four.tif, 4", "one.png, 1"]
    page.select_option("#order", "confidence")
    assert names(page) == ["one.png, 1", "four.tif, 4"]
    page.fill("#confidence", "100")
    page.fill("#find", "UNSURE")
    assert names(page) == ["four.tif, 1"]
    page.fill("#find", "not on any page")
    assert names(page) == []
    assert "no page fits" in page.inner_text("#title")


def test_zoom_changes_the_size_of_the_image_and_fit_brings_it_back(page: Any) -> None:
    page.wait_for_function("document.querySelector('#picture img').naturalWidth > 0")
    width = "document.querySelector('#picture img').clientWidth"
    fitted = page.evaluate(width)
    page.click("#larger")
    assert page.evaluate(width) == pytest.approx(1.25 * fitted, abs=2)
    page.keyboard.press("+")
    assert page.evaluate(width) == pytest.approx(1.25**2 * fitted, abs=2)
    for _ in range(3):
        page.click("#smaller")
    assert page.evaluate(width) == pytest.approx(fitted / 1.25, abs=2)
    page.keyboard.press("0")
    assert page.evaluate(width) == fitted


def test_difference_to_the_other_run_is_marked(page: Any) -> None:
    page.check("#changed")
    assert names(page) == ["four.tif, 3"]
    assert page.locator("#said del").all_inner_texts() == ["one"]
    assert page.locator("#said ins").all_inner_texts() == ["the last"]


def test_words_are_marked_by_confidence(page: Any) -> None:
    page.locator("#list div").nth(2).click()
    page.select_option("#view", "source")
    assert page.locator("#said .unsure").all_inner_texts() == ["and"]
    assert page.locator("#said .doubtful").all_inner_texts() == ["the"]


def test_text_of_the_model_runs_nothing(page: Any) -> None:
    page.locator("#list div").nth(5).click()
    assert "document.title='owned'" in page.inner_text("#said")
    page.select_option("#view", "source")
    assert page.title().startswith("Review of ")


def test_page_without_its_original_says_so(page: Any) -> None:
    page.locator("#list div").nth(4).click()
    assert "No image" in page.inner_text("#picture")


def test_address_of_a_page_opens_it(page: Any) -> None:
    page.locator("#list div").nth(3).click()
    assert page.url.endswith("#four.tif:4")
    page.reload()
    assert "page 4: looped" in page.inner_text("#title")
