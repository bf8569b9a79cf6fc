"""Blank pages are told from pages with the least of ink; loops from ledgers, leaders and rules that truly repeat."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from pagemill.pipeline.reading.quality import LONGEST_PERIOD_TOKENS, LoopDetector, is_blank, measure_ink, why_blank

HEIGHT, WIDTH = 1540, 1092
RNG = np.random.default_rng(5)


def paper(level: float = 255.0, noise: float = 0.0) -> NDArray[np.float64]:
    return np.full((HEIGHT, WIDTH, 3), level) + RNG.normal(0, 1, (HEIGHT, WIDTH, 1)) * noise


def pixels(page: NDArray[np.float64]) -> NDArray[np.uint8]:
    return np.clip(np.rint(page), 0, 255).astype(np.uint8)


def yellowed() -> NDArray[np.float64]:
    shade = np.linspace(0, 60, WIDTH)[None, :, None] + np.linspace(0, 40, HEIGHT)[:, None, None]
    return paper(250, 2) - shade * np.array([0.4, 0.6, 1.0])


BLANK = {
    "white": paper(),
    "off-white with noise": paper(236, 3),
    "coarse noise": paper(200, 8),
    "yellowed": yellowed(),
    "grey": paper(128),
    "black": paper(0),
}


def drawn(text: str, size_px: int, ink: int, base: NDArray[np.float64], at: tuple[int, int] = (540, 1470)) -> NDArray[np.uint8]:
    image = Image.fromarray(pixels(base))
    ImageDraw.Draw(image).text(at, text, font=ImageFont.load_default(size_px), fill=(ink, ink, ink))
    return np.asarray(image)


def bordered() -> NDArray[np.uint8]:
    page = pixels(paper(240, 2))
    page[:, :40] = 0
    return page


INKED = {
    "page number": drawn("7", 16, 20, paper()),
    "smallest page number": drawn("1", 12, 60, paper(240, 2)),
    "pencil note": drawn("see vol. 3", 22, 195, paper(236, 2)),
    "white on black": drawn("END", 30, 255, paper(0)),
    "yellow ink": np.where(drawn("paid", 30, 0, paper())[..., :1] < 128, np.uint8([255, 255, 150]), np.uint8([255, 255, 255])),
    "poster letter": drawn("I", 1500, 0, paper(), at=(300, 0)),
    "scanner border": bordered(),  # not our judgement to make: the model sees it
}


@pytest.mark.parametrize("name", BLANK)
def test_plain_paper_is_blank(name: str) -> None:
    ink = measure_ink(pixels(BLANK[name]))
    assert ink.is_blank, ink


@pytest.mark.parametrize("name", INKED)
def test_the_least_of_ink_is_not_blank(name: str) -> None:
    assert not is_blank(np.ascontiguousarray(INKED[name]))


@pytest.mark.parametrize("shape", [(1, 1), (28, 28), (33, 1540), (1540, 31)])
def test_awkward_sizes_are_measured(shape: tuple[int, int]) -> None:
    page = np.full((*shape, 3), 255, np.uint8)
    assert is_blank(page)
    if min(shape) > 20:
        page[10:14, 10:14] = 0
        assert not is_blank(page)


def first_loop(tokens: NDArray[np.int64] | list[int]) -> int | None:
    """After how many tokens a loop is seen."""
    detector = LoopDetector()
    return next((count for count, token in enumerate(tokens, 1) if detector.push(int(token))), None)


def rows(count: int, *cells: int, start: int = 1000) -> list[int]:
    """A table: ``cells`` in every row, with a running number in front where ``start`` is positive."""
    out: list[int] = []
    for row in range(count):
        out += ([start + row] if start else []) + list(cells) + [10]
    return out


WORDS = [int(token) for token in RNG.integers(100, 30_000, 500)]
TRUE_CONTENT = {
    "forty do. rows": WORDS + rows(40, 44, 45, start=0) + WORDS,
    "sixty do. rows of nine tokens": WORDS + rows(60, *range(20, 28), start=0) + WORDS,
    "forty do. rows of thirty tokens": WORDS + rows(40, *range(20, 49), start=0) + WORDS,
    "sixty numbered do. rows": WORDS + rows(60, *range(20, 50)) + WORDS,
    "table rule of 300": [*WORDS, 10, 124, *[45] * 300, 124, 10, *WORDS],
    "forty lines of dot leaders": [
        token for line in range(40) for token in [*WORDS[line : line + 4], *[46] * 90, 900 + line, 10]
    ],
    "leaders of two tokens": [
        token for line in range(40) for token in [*WORDS[line : line + 4], *[46, 32] * 60, 900 + line, 10]
    ],
    "a chorus sung five times": (WORDS[:60] + WORDS[100:180]) * 5,
    "grid of ten by ten empty cells": rows(10, *[60, 61, 62, 63] * 10, start=0),
    "counting": list(range(1000, 5000)),
}


@pytest.mark.parametrize("name", TRUE_CONTENT)
def test_true_repetition_is_not_cut(name: str) -> None:
    assert first_loop(TRUE_CONTENT[name]) is None


@pytest.mark.parametrize("period", [1, 2, 3, 7, 10, 31, 100, 155, 250, 511, LONGEST_PERIOD_TOKENS])
@pytest.mark.parametrize("before", [0, 700])
def test_every_period_is_seen_within_a_page(period: int, before: int) -> None:
    turn = [int(token) for token in np.random.default_rng(period).permutation(5000)[:period]]
    start = [token + 10_000 for token in range(before)]
    seen = first_loop(start + turn * (4096 // period))
    assert seen is not None
    assert seen - before == max(512, min(64 * period, 2048), 6 * period)


def test_loop_inside_a_loop_is_seen() -> None:
    row = [5, 6] * 30 + [7]  # | 0 | 0 | ... and a line end
    assert first_loop(WORDS + row * 60) is not None


def test_one_different_token_begins_the_count_anew() -> None:
    assert first_loop([9] * 511 + [8] + [9] * 511) is None


def test_ending_at_the_cap_is_named() -> None:
    for tokens, expected in [
        (WORDS, False),
        (WORDS[:20] + [1, 2, 3] * 20, True),
        (WORDS[:200] + [1, 2, 3] * 20, False),
        ([], False),
    ]:
        detector = LoopDetector()
        for token in tokens:
            detector.push(token)
        assert detector.ends_in_loop is expected


def written(grey: int, base: NDArray[np.float64], lines: int = 12) -> NDArray[np.uint8]:
    """Lines of writing, flush left."""
    image = Image.fromarray(pixels(base))
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(26)
    for line in range(lines):
        text = "the mill stood by the river and ground the corn"[: 20 + 7 * line % 25]
        draw.text((100, 120 + 60 * line), text, font=font, fill=(grey, grey, grey))
    return np.asarray(image)


FAINT = 255 - round(0.12 * 255)
SHINES_THROUGH = {
    "mirrored 12 % grey": (written(FAINT, paper())[:, ::-1], True),
    "on yellow paper": (written(205, paper(236, 2))[:, ::-1], True),
    "pencil as faint as that": (written(FAINT, paper()), False),
    "mirrored ink": (written(40, paper())[:, ::-1], False),
    "two mirrored lines": (written(FAINT, paper(), lines=2)[:, ::-1], False),
    "with writing over it": (
        np.minimum(written(FAINT, paper())[:, ::-1], drawn("paid", 30, 30, paper(), at=(300, 900))),
        False,
    ),
}


@pytest.mark.parametrize("name", SHINES_THROUGH)
def test_only_what_surely_shines_through_is_bleed(name: str) -> None:
    page, expected = SHINES_THROUGH[name]
    ink = measure_ink(np.ascontiguousarray(page))
    assert ink.is_bleed == expected
    assert not ink.is_blank
    assert bool(why_blank(ink)) == expected
    assert why_blank(ink, skip_bleed=False) == ""


@pytest.mark.parametrize("name", BLANK)
def test_why_a_page_is_blank_is_said_with_its_measurements(name: str) -> None:
    reason = why_blank(measure_ink(pixels(BLANK[name])))
    assert reason.startswith("no ink on the page")
    assert ("which is black" in reason) == (name == "black")
    assert "marked pixels" in reason
