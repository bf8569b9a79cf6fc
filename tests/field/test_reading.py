"""Field complaints 1 to 10: loops are stopped, true repetition is not, and pages without text never reach the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont, ImageOps

from pagemill.pipeline.reading.quality import LoopDetector, measure_ink, why_blank
from tests.field.files import scan

HEIGHT, WIDTH = 1540, 1092
CAP = 4096  # tokens a page may have


def tokens(text: str) -> list[int]:
    """A text as a tokenizer would have it at worst: digits, signs and marks alone, words whole."""
    ids: dict[str, int] = {}
    parts, word = [], ""
    for letter in text:
        if letter.isalpha():
            word += letter
            continue
        parts += [word, letter] if word else [letter]
        word = ""
    return [ids.setdefault(part, len(ids)) for part in [*parts, word]]


def many(text: str, times: int = 10_000) -> Iterator[str]:
    return (text for _ in range(times))


def prose(characters: int) -> str:
    """A passage without a repeated sentence."""
    words = [f"word{chr(97 + index % 26)}{chr(97 + index // 26 % 26)}" for index in range(200)]
    return " ".join(np.random.default_rng(characters).permutation(words))[:characters] + ". "


LEDGER = "\n".join(f"{17 + row} | Hill Farm | barley | do. | do. | {row % 9} | 4 | 0" for row in range(60))
DITTO = "\n".join("do.   do.   do." for _ in range(40))

# name: (item, text that the model gives, may be longer than a page; whether it must be stopped before the cap)
TEXTS: dict[str, tuple[int, Callable[[], str], bool]] = {
    "one word for ever": (1, lambda: "Anno 1712. " + "the " * CAP, True),
    "last sentence for ever": (1, lambda: prose(900) + prose(80) * CAP, True),
    "equal table rows": (2, lambda: "| a | b |\n|---|---|\n" + "| 0 | 0 |\n" * CAP, True),
    "rows of noughts as HTML": (2, lambda: "<table>" + "<tr><td>0</td><td>0</td></tr>" * CAP, True),
    "sixty true equal rows": (2, lambda: "| a | b |\n|---|---|\n" + "| 0 | 0 |\n" * 60 + "Total 0\n", False),
    "ledger of dittos": (3, lambda: DITTO + "\nSum\n", False),
    "ledger of sixty farms": (3, lambda: LEDGER, False),
    "table rule of 300": (3, lambda: "| a |\n|" + "-" * 300 + "|\n| 1 |\n", False),
    "dot leaders": (3, lambda: "".join(f"Chapter {n} " + "." * 90 + f" {n * 7}\n" for n in range(30)), False),
    "empty cells for ever": (4, lambda: "<table><tr>" + "<td></td>" * CAP, True),
    "grid of 12 by 12 empty cells": (4, lambda: "<table>" + ("<tr>" + "<td></td>" * 12 + "</tr>") * 12 + "</table>", False),
    "period of 1": (6, lambda: prose(300) + "#" * CAP, True),
    "period of 7": (6, lambda: prose(300) + "a1 b2; " * CAP, True),
    "period of 250": (6, lambda: prose(300) + prose(250) * CAP, True),
    "period of 600": (6, lambda: prose(300) + prose(600) * CAP, True),
    "combining characters": (6, lambda: prose(300) + "é̂ ǭ " * CAP, True),
    "counting up": (6, lambda: "".join(f"{number}. " for number in range(1, 9 * CAP)), False),
    "until the context ends": (8, lambda: "and so on, " * CAP, True),
}


@pytest.mark.parametrize("name", TEXTS)
def test_loops_are_stopped_before_the_cap_and_true_repetition_never(name: str) -> None:
    _, text, must_stop = TEXTS[name]
    detector = LoopDetector()
    stopped = next((number for number, token in enumerate(tokens(text())[:CAP], 1) if detector.push(token)), None)
    assert (stopped is not None) == must_stop, stopped


def paper(level: float = 255.0, noise: float = 0.0) -> NDArray[np.float64]:
    return np.full((HEIGHT, WIDTH), level) + np.random.default_rng(9).normal(0, 1, (HEIGHT, WIDTH)) * noise


def with_print(page: NDArray[np.float64], ink: int, *, mirrored: bool = False) -> NDArray[np.float64]:
    """Lines of print in this grey; mirrored as they shine through from the other side."""
    image = Image.new("L", (WIDTH, HEIGHT), 255)
    font = ImageFont.load_default(22)
    for line, top in enumerate(range(120, HEIGHT - 120, 34)):
        ImageDraw.Draw(image).text((110, top), ("Medical Officer of Health " * 4)[: 60 + line * 7 % 20], font=font, fill=0)
    image = ImageOps.mirror(image) if mirrored else image
    return page - (255 - np.asarray(image, np.float64)) / 255 * (255 - ink)


def yellow() -> NDArray[np.float64]:
    return paper(245, 2) - np.linspace(0, 60, WIDTH)[None, :] - np.linspace(0, 40, HEIGHT)[:, None]


def holes() -> NDArray[np.float64]:
    page = paper(240, 2)
    rows, columns = np.ogrid[:HEIGHT, :WIDTH]
    for top in (400, 1100):
        page[(rows - top) ** 2 + (columns - 60) ** 2 < 22**2] = 20
    return page


def border() -> NDArray[np.float64]:
    page = paper(240, 2)
    page[:, :40] = 0
    return page


# name: (item, page, whether it must be kept from the model)
PAGES: dict[str, tuple[int, Callable[[], NDArray[np.float64]], bool]] = {
    "white": (9, paper, True),
    "off-white with noise": (9, lambda: paper(236, 3), True),
    "yellow gradient": (9, yellow, True),
    "all black": (9, lambda: paper(0), True),
    "black with noise": (9, lambda: paper(12, 3), True),
    "scanner border": (9, border, False),  # nothing proves that it is no picture: the model sees it
    "punch holes": (9, holes, False),
    "one page number": (9, lambda: with_number(paper(236, 3)), False),
    "bleed-through alone": (10, lambda: with_print(paper(240, 2), 255 - 31, mirrored=True), True),
    "bleed-through under print": (10, lambda: with_print(with_print(paper(240, 2), 255 - 31, mirrored=True), 40), False),
    "faint pencil": (10, lambda: with_print(paper(240, 2), 195), False),
}


def with_number(page: NDArray[np.float64]) -> NDArray[np.float64]:
    image = Image.new("L", (WIDTH, HEIGHT), 255)
    ImageDraw.Draw(image).text((540, 1470), "7", font=ImageFont.load_default(16), fill=20)
    return page - (255 - np.asarray(image, np.float64))


@pytest.mark.parametrize("name", PAGES)
def test_pages_without_text_are_kept_from_the_model_and_no_others(name: str) -> None:
    _, page, is_kept = PAGES[name]
    pixels = np.repeat(np.clip(np.rint(page()), 0, 255).astype(np.uint8)[..., None], 3, axis=2)
    reason = why_blank(measure_ink(pixels))
    assert bool(reason) == is_kept, reason


def test_the_scan_that_other_tables_use_is_no_blank_page() -> None:
    assert not why_blank(measure_ink(np.repeat(scan()[..., None], 3, axis=2)))
