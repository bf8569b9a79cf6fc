"""Pages that the sample model learns from: truth, letters' places, labels and batches; needs no torch."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from PIL import Image

from samples.model.train.batches import PAD, Group, render_step
from samples.model.train.compose import compose_page, is_on_page
from samples.model.train.corpus import clean, without_markup
from samples.model.train.damage import rotate
from samples.model.train.faces import FOLDER, RARE
from samples.model.train.labels import CELL, FIRST, LINE_END, START, label_page
from samples.model.train.recipe import CLEAN, COLUMNS, FULL, Recipe
from samples.model.train.sheet import Page
from samples.model.train.vocabulary import end_id, open_tokenizer, turns
from samples.model.train.wording import Wording

WORDING = Wording(
    ("In the beginning God created the heaven and the earth.", "The module defines a function that returns 3 values."),
    ("mill", "wheel", "stone's", "grain", "water"),
)
needs_fonts = pytest.mark.skipif(
    not all((FOLDER / family.cuts[0]).exists() for family in RARE), reason="the packages of fonts in faces.py are not installed"
)


def page_of(text: str, centres: list[tuple[float, float]], lines: list[int], height: int = 56, width: int = 56) -> Page:
    """A page by hand."""
    return Page(np.full((height, width, 3), 255, np.uint8), text, np.array(centres, np.float64).reshape(-1, 2), np.array(lines))


def letters(numbers: np.ndarray) -> str:
    """Glyph numbers as text."""
    return "".join(chr(FIRST + number) for number in numbers if number)


def test_labels_put_letters_into_their_patches_and_cells() -> None:
    page = page_of("ab\nc", [(3, 10), (20, 10), (np.nan, np.nan), (3, 24)], [0, 0, 0, 1])
    labels = label_page(page)
    assert [letters(slots) for slots in labels.cells] == ["abc", "", "", ""]
    assert letters(labels.patches[0]) == "a"
    assert letters(labels.patches[1]) == "b"
    assert letters(labels.patches[4]) == "c"
    assert labels.cell_of.tolist() == [0, 0, -1, 0]


def test_labels_say_what_leads_up_to_each_line_in_a_cell() -> None:
    page = page_of("ab\nc", [(3, 10), (30, 10), (np.nan, np.nan), (3, 24)], [0, 0, 0, 1])
    before = label_page(page).before
    assert before[0, 0, 0] == START
    assert before[0, 1].tolist()[:3] == [LINE_END, ord("b") - FIRST, ord("a") - FIRST]
    assert letters(before[1, 0, :1]) == "a"
    assert not before[1, 1].any()


def test_labels_say_at_what_height_each_line_of_a_cell_stands() -> None:
    labels = label_page(page_of("ab\nc", [(3, 10), (30, 10), (np.nan, np.nan), (3, 24)], [0, 0, 0, 1]))
    assert labels.levels.tolist() == [[3, 7], [3, 0], [0, 0], [0, 0]]
    assert labels.level_of.tolist() == [2, 2, -1, 6]


def test_more_letters_than_slots_are_cut() -> None:
    labels = label_page(page_of("abcdef", [(x, 5) for x in range(1, 7)], [0] * 6))
    assert letters(labels.patches[0]) == "abcd"


@needs_fonts
@pytest.mark.parametrize("recipe", [CLEAN, FULL, COLUMNS], ids=["clean", "full", "columns"])
def test_every_printed_letter_has_ink_near_it(recipe: Recipe) -> None:
    rng = Random(5)
    for _ in range(4):
        page = compose_page(336, 224, recipe, WORDING, rng)
        if not is_on_page(page):
            continue
        assert len(page.text) == len(page.centres) == len(page.lines)
        dark = page.pixels.mean(2) < page.pixels.mean(2).max() - 40
        for letter, (x, y) in zip(page.text, page.centres, strict=True):
            if not np.isnan(x) and letter.isalnum():
                near = dark[max(0, int(y) - 12) : int(y) + 13, max(0, int(x) - 8) : int(x) + 9]
                assert near.any(), (letter, x, y)


@needs_fonts
def test_the_same_step_gives_the_same_pages() -> None:
    groups = [Group(112, 224, 3, 2, False, FULL), Group(112, 224, 2, 1, True, CLEAN)]
    first, again = (render_step(groups, WORDING, seed=3, step=7) for _ in range(2))
    other = render_step(groups, WORDING, seed=3, step=8)
    assert [batch.texts for batch in first] == [batch.texts for batch in again] != [batch.texts for batch in other]
    assert all(np.array_equal(a.pixels, b.pixels) and a.seed == b.seed for a, b in zip(first, again, strict=True))


@needs_fonts
def test_batches_hold_the_text_its_end_and_where_each_token_is_printed() -> None:
    (batch,) = render_step([Group(112, 336, 3, 1, False, CLEAN)], WORDING, seed=1, step=0)
    cells = 112 // CELL * (336 // CELL)
    for ids, spans, text in zip(batch.tokens, batch.spans, batch.texts, strict=True):
        ids = ids[ids != PAD]
        assert open_tokenizer().decode(ids[:-1].tolist(), skip_special_tokens=False) == text
        assert ids[-1] == end_id()
        assert (spans < cells).all()
        assert (spans[: len(ids) - 1, 0] >= 0).mean() > 0.5


def test_rotation_moves_places_with_the_ink() -> None:
    image = Image.new("L", (200, 100), 255)
    image.paste(0, (180, 10, 184, 14))
    turned, centres = rotate(image, np.array([[181.5, 11.5]]), Random(2), degrees=8.0)
    y, x = np.argwhere(np.asarray(turned) < 100).mean(0)
    assert np.abs(centres[0] - (x, y)).max() < 0.8


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        (":class:`~collections.Counter` counts", "collections.Counter counts"),
        ("see ``x`` and *this*", "see x and this"),
        ("`the site <address>`_ says", "the site  says"),
    ],
)
def test_markup_is_reduced_to_what_a_reader_sees(marked: str, plain: str) -> None:
    assert without_markup(marked) == plain


def test_text_without_an_ascii_form_is_left_out() -> None:
    assert clean("\u201cquoted\u201d  text\n\u2014 here") == '"quoted" text -- here'
    assert clean("na\u00efve") is None


def test_prompts_hold_control_tokens() -> None:
    assert all(max(turn.before) >= end_id() - 1 and end_id() in turn.after for turn in turns())
