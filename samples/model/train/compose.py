"""Lays out one page: headings, paragraphs, lists and tables in one or two columns, and its truth in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from samples.model.train import damage
from samples.model.train.faces import BOLD, Face, Family, draw_family, open_face
from samples.model.train.recipe import Recipe
from samples.model.train.sheet import Page, Sheet
from samples.model.train.wording import Wording

BULLET = "\u2022"
CENTRE_ON_LINE = 0.33  # baseline below a line's middle, in letter sizes
WIDEST_GAP = 3.5  # a justified line's spaces, in normal spaces; wider ones are left ragged
PARAGRAPH_WORDS = (8, 20, 40, 60, 100)
DAMAGE_SHARE = 0.5  # each kind of damage on a damaged page


@dataclass(frozen=True, slots=True)
class Style:
    """A page's letters and habits; lengths in px."""

    family: Family
    cut: int
    face: Face
    pitch: float
    is_justified: bool
    indent: float


@dataclass(frozen=True, slots=True)
class Column:
    """The part of a page that lines go into; px."""

    left: float
    right: float
    top: float
    bottom: float


@dataclass(slots=True)
class Cursor:
    """How far a column is filled."""

    y: float
    lines_left: int


Line = list[tuple[str, float]]  # words and their widths


def compose_page(width: int, height: int, recipe: Recipe, wording: Wording, rng: Random) -> Page:
    """Draw a page of width x height px."""
    sheet = Sheet(width, height)
    if rng.random() >= recipe.blank:
        style = choose_style(recipe, rng)
        for column in choose_columns(width, height, style, recipe, rng):
            fill(sheet, column, style, recipe, wording, rng)
    text, centres, lines = sheet.finish()
    image = sheet.image
    worn = rng.random() < recipe.damaged
    if worn and rng.random() < DAMAGE_SHARE:
        image, centres = damage.rotate(image, centres, rng)
    if worn and rng.random() < DAMAGE_SHARE:
        image = damage.blur(image, rng)
    colours = damage.colour(image, rng, worn and rng.random() < DAMAGE_SHARE)
    if worn and rng.random() < DAMAGE_SHARE:
        colours = damage.noise(colours, rng)
    pixels = damage.to_bytes(colours)
    if worn and rng.random() < DAMAGE_SHARE:
        pixels = damage.jpeg(pixels, rng)
    return Page(pixels, text, centres, lines)


def choose_style(recipe: Recipe, rng: Random) -> Style:
    """Letters and habits for one page."""
    family = draw_family(rng, recipe.families)
    cut = rng.choices((0, 1, 2), recipe.cut_weights)[0]
    sizes, weights = zip(*recipe.sizes_px, strict=True)
    size = rng.choices(sizes, weights)[0] + rng.choice((0, 0, 0.5))
    return Style(
        family=family,
        cut=cut,
        face=open_face(family.cuts[cut], size),
        pitch=size * rng.uniform(1.12, 1.6),
        is_justified=rng.random() < 0.3,
        indent=size * rng.uniform(1, 2.5) if rng.random() < 0.25 else 0.0,
    )


def choose_columns(width: int, height: int, style: Style, recipe: Recipe, rng: Random) -> list[Column]:
    """One column or, where 2 x 12 letters fit, two; with margins."""
    left, right = rng.uniform(3, min(50, width * 0.12)), width - rng.uniform(3, min(50, width * 0.12))
    top, bottom = rng.uniform(2, min(50, height * 0.15)), height - 2.0
    gap = style.face.size_px * rng.uniform(1.2, 2.2)
    half = (right - left - gap) / 2
    if rng.random() < recipe.two_columns and half > 12 * style.face.size_px * 0.5:
        return [Column(left, left + half, top, bottom), Column(right - half, right, top, bottom)]
    return [Column(left, right, top, bottom)]


def fill(sheet: Sheet, column: Column, style: Style, recipe: Recipe, wording: Wording, rng: Random) -> None:
    """Set blocks one under the other until the column, or a short page's number of lines, is full."""
    fitting = max(1, int((column.bottom - column.top) / style.pitch))
    cursor = Cursor(column.top, rng.randint(1, fitting) if rng.random() < recipe.short else fitting + 1)
    while cursor.lines_left > 0 and cursor.y + style.pitch <= column.bottom:
        kind = rng.random()
        if kind < recipe.headings:
            set_heading(sheet, column, cursor, style, wording, rng)
        elif kind < recipe.headings + recipe.lists:
            set_item(sheet, column, cursor, style, wording, rng)
        elif kind < recipe.headings + recipe.lists + recipe.tables:
            set_table(sheet, column, cursor, style, wording, rng)
        else:
            lines = break_lines(
                wording.draw(rng, rng.choice(PARAGRAPH_WORDS)), style.face, column.right - column.left, style.indent
            )
            set_lines(sheet, column, cursor, style, lines, indent=style.indent)
        cursor.y += style.pitch * rng.uniform(0.45, 1.1)


def set_heading(sheet: Sheet, column: Column, cursor: Cursor, style: Style, wording: Wording, rng: Random) -> None:
    """One bigger line, bold more often than not, sometimes centred."""
    size = round(style.face.size_px * rng.uniform(1.25, 1.7) * 2) / 2
    face = open_face(style.family.cuts[BOLD if rng.random() < 0.75 else style.cut], size)
    lines = break_lines(wording.draw(rng, rng.randint(1, 6)), face, column.right - column.left)[:1]
    pitch = size * 1.35
    if not lines or cursor.y + pitch > column.bottom:
        cursor.lines_left = 0 if not lines and sheet.is_empty else cursor.lines_left - 1
        return
    start_block(sheet)
    sheet.mark("# ")
    slack = column.right - column.left - line_width(lines[0], face)
    x = column.left + (slack / 2 if rng.random() < 0.3 else 0)
    set_line(sheet, lines[0], x, cursor.y + pitch * 0.5 + size * CENTRE_ON_LINE, face, face.advance(" "))
    cursor.y += pitch
    cursor.lines_left -= 1


def set_item(sheet: Sheet, column: Column, cursor: Cursor, style: Style, wording: Wording, rng: Random) -> None:
    """A list item with a hanging mark."""
    mark = rng.choice(("-", "-", BULLET, f"{rng.randint(1, 12)}."))
    text_left = column.left + style.face.width(mark) + style.face.size_px * 0.6
    lines = break_lines(wording.draw(rng, rng.randint(3, 14)), style.face, column.right - text_left)
    set_lines(
        sheet, Column(text_left, column.right, column.top, column.bottom), cursor, style, lines, mark=mark, mark_x=column.left
    )


def set_table(sheet: Sheet, column: Column, cursor: Cursor, style: Style, wording: Wording, rng: Random) -> None:
    """A small table with a ruled head, as Markdown rows; none where it does not fit."""
    rows, columns = rng.randint(2, 5), rng.randint(2, 4)
    step = (column.right - column.left) / columns
    cells = [[short_words(wording, style.face, step - style.face.size_px, rng) for _ in range(columns)] for _ in range(rows)]
    if cursor.y + style.pitch * rows > column.bottom or cursor.lines_left < rows or not all(map(all, cells)):
        cursor.lines_left -= 1
        return
    start_block(sheet)
    for number, row in enumerate(cells):
        baseline = cursor.y + style.pitch * 0.5 + style.face.size_px * CENTRE_ON_LINE
        if number:
            sheet.mark("\n")
            sheet.start_line()
        for index, cell in enumerate(row):
            sheet.mark("| ")
            set_line(sheet, cell, column.left + index * step, baseline, style.face, style.face.advance(" "))
            sheet.mark(" ")
        sheet.mark("|")
        if number == 0:
            sheet.rule(column.left, column.right, cursor.y + style.pitch)
            sheet.mark("\n|" + " --- |" * columns)
        cursor.y += style.pitch
        cursor.lines_left -= 1


def short_words(wording: Wording, face: Face, width: float, rng: Random) -> Line:
    """A cell's words; empty where nothing short enough comes up."""
    for _ in range(8):
        words = [wording.code(rng)] if rng.random() < 0.5 else wording.draw(rng, rng.randint(1, 2))
        lines = break_lines([word for word in words if "|" not in word], face, width)
        if lines:
            return lines[0]
    return []


def break_lines(words: Sequence[str], face: Face, width: float, indent: float = 0.0) -> list[Line]:
    """Fill lines greedily; words wider than a line are left out, as nothing would be seen of their end."""
    space, lines, line, used = face.advance(" "), [], Line(), indent
    for word in words:
        word_width = face.width(word)
        if not word or word_width > width - indent:
            continue
        if line and used + space + word_width > width:
            lines.append(line)
            line, used = [], 0.0
        used += word_width + (space if line else 0)
        line.append((word, word_width))
    return [*lines, line] if line else lines


def set_lines(
    sheet: Sheet,
    column: Column,
    cursor: Cursor,
    style: Style,
    lines: list[Line],
    *,
    indent: float = 0.0,
    mark: str = "",
    mark_x: float = 0.0,
) -> None:
    """A paragraph or an item, as far as the column goes."""
    face = style.face
    for number, line in enumerate(lines):
        if cursor.y + style.pitch > column.bottom or cursor.lines_left <= 0:
            cursor.lines_left = 0
            return
        baseline = cursor.y + style.pitch * 0.5 + face.size_px * CENTRE_ON_LINE
        x = column.left
        if number:
            sheet.mark("\n")
            sheet.start_line()
        else:
            x += indent
            start_block(sheet)
            if mark:
                sheet.word(mark, mark_x, baseline, face, says="-" if mark == BULLET else mark)
                sheet.space(mark_x + face.width(mark) + face.size_px * 0.3, baseline, face)
        is_stretched = style.is_justified and number < len(lines) - 1
        set_line(sheet, line, x, baseline, face, gap(line, face, column.right - x) if is_stretched else face.advance(" "))
        cursor.y += style.pitch
        cursor.lines_left -= 1


def start_block(sheet: Sheet) -> None:
    """An empty line before every block but the first."""
    if not sheet.is_empty:
        sheet.mark("\n\n")
        sheet.start_line()


def set_line(sheet: Sheet, line: Line, x: float, baseline: float, face: Face, space: float) -> None:
    """Words from left to right."""
    for index, (word, width) in enumerate(line):
        if index:
            sheet.space(x - space / 2, baseline, face)
        sheet.word(word, x, baseline, face)
        x += width + space


def gap(line: Line, face: Face, width: float) -> float:
    """The space between words that makes a line end at the margin, unless that would tear it apart."""
    space = face.advance(" ")
    if len(line) < 2:
        return space
    stretched = space + (width - line_width(line, face)) / (len(line) - 1)
    return stretched if stretched < space * WIDEST_GAP else space


def line_width(line: Line, face: Face) -> float:
    """Width of a ragged line."""
    return sum(width for _, width in line) + face.advance(" ") * (len(line) - 1)


def is_on_page(page: Page) -> bool:
    """Whether no printed letter fell over the edge, as rotation may make it."""
    height, width = page.pixels.shape[:2]
    centres = page.centres[~np.isnan(page.centres[:, 0])]
    return bool(((centres >= 0) & (centres < (width, height))).all())
