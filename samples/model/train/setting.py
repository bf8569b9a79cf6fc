"""Sets blocks into one column: headings, paragraphs, list items and small tables, with their truth in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from samples.model.train.faces import BOLD, Face, Family, open_face
from samples.model.train.recipe import Recipe
from samples.model.train.sheet import Sheet
from samples.model.train.wording import Wording

BULLET = "\u2022"
CENTRE_ON_LINE = 0.33  # baseline below a line's middle, in letter sizes
HEADING_PITCH = 1.35  # in letter sizes
WIDEST_GAP = 3.5  # a justified line's spaces, in normal spaces; wider ones are left ragged
PARAGRAPH_WORDS = (8, 20, 40, 60, 100)

Line = list[tuple[str, float]]  # words and their widths


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

    @property
    def width(self) -> float:
        """From edge to edge."""
        return self.right - self.left


@dataclass(frozen=True, slots=True)
class Mark:
    """A list item's mark and where it hangs."""

    text: str
    x: float


class Setter:
    """Sets blocks one under the other into a column of a sheet."""

    def __init__(self, sheet: Sheet, column: Column, style: Style, wording: Wording, rng: Random) -> None:
        self._sheet, self._column, self._style, self._wording, self._rng = sheet, column, style, wording, rng
        self._y, self._lines_left = column.top, 0

    def fill(self, recipe: Recipe) -> None:
        """Go on until the column, or a short page's number of lines, is full."""
        rng, style, bottom = self._rng, self._style, self._column.bottom
        fitting = max(1, int((bottom - self._column.top) / style.pitch))
        self._lines_left = rng.randint(1, fitting) if rng.random() < recipe.short else fitting + 1
        while self._lines_left > 0 and self._y + style.pitch <= bottom:
            kind = rng.random()
            if kind < recipe.headings:
                self.set_heading()
            elif kind < recipe.headings + recipe.lists:
                self.set_item()
            elif kind < recipe.headings + recipe.lists + recipe.tables:
                self.set_table()
            else:
                self.set_paragraph()
            self._y += style.pitch * rng.uniform(0.45, 1.1)

    def set_heading(self) -> None:
        """One bigger line, bold more often than not, sometimes centred."""
        rng, style, column = self._rng, self._style, self._column
        size = round(style.face.size_px * rng.uniform(1.25, 1.7) * 2) / 2
        face = open_face(style.family.cuts[BOLD if rng.random() < 0.75 else style.cut], size)
        lines = break_lines(self._wording.draw(rng, rng.randint(1, 6)), face, column.width)[:1]
        pitch = size * HEADING_PITCH
        if not lines or self._y + pitch > column.bottom:
            self._lines_left = 0 if not lines and self._sheet.is_empty else self._lines_left - 1
            return
        self._start_block()
        self._sheet.mark("# ")
        x = column.left + ((column.width - line_width(lines[0], face)) / 2 if rng.random() < 0.3 else 0)
        self._set_line(lines[0], x, self._y + pitch * 0.5 + size * CENTRE_ON_LINE, face, face.advance(" "))
        self._advance(pitch)

    def set_paragraph(self) -> None:
        """Running text, its first line indented where that is the page's habit."""
        words = self._wording.draw(self._rng, self._rng.choice(PARAGRAPH_WORDS))
        lines = break_lines(words, self._style.face, self._column.width, self._style.indent)
        self._set_lines(lines, self._column.left, self._style.indent)

    def set_item(self) -> None:
        """A list item with a hanging mark."""
        rng, face, column = self._rng, self._style.face, self._column
        mark = rng.choice(("-", "-", BULLET, f"{rng.randint(1, 12)}."))
        left = column.left + face.width(mark) + face.size_px * 0.6
        lines = break_lines(self._wording.draw(rng, rng.randint(3, 14)), face, column.right - left)
        self._set_lines(lines, left, mark=Mark(mark, column.left))

    def set_table(self) -> None:
        """A small table with a ruled head, as Markdown rows; none where it does not fit."""
        rng, column, pitch = self._rng, self._column, self._style.pitch
        rows, columns = rng.randint(2, 5), rng.randint(2, 4)
        step = column.width / columns
        cells = [[self._short_words(step - self._style.face.size_px) for _ in range(columns)] for _ in range(rows)]
        if self._y + pitch * rows > column.bottom or self._lines_left < rows or not all(map(all, cells)):
            self._lines_left -= 1
            return
        self._start_block()
        for number, row in enumerate(cells):
            if number:
                self._break_line()
            self._set_row(row, step)
            if number == 0:
                self._sheet.rule(column.left, column.right, self._y + pitch)
                self._sheet.mark("\n|" + " --- |" * columns)
            self._advance(pitch)

    def _set_row(self, row: list[Line], step: float) -> None:
        face = self._style.face
        for index, cell in enumerate(row):
            self._sheet.mark("| ")
            self._set_line(cell, self._column.left + index * step, self._baseline(), face, face.advance(" "))
            self._sheet.mark(" ")
        self._sheet.mark("|")

    def _set_lines(self, lines: list[Line], left: float, indent: float = 0.0, mark: Mark | None = None) -> None:
        """A paragraph or an item, as far as the column goes."""
        face, style, right = self._style.face, self._style, self._column.right
        for number, line in enumerate(lines):
            if self._y + style.pitch > self._column.bottom or self._lines_left <= 0:
                self._lines_left = 0
                return
            x = left
            if number:
                self._break_line()
            else:
                x += indent
                self._start_block()
                self._set_mark(mark)
            is_stretched = style.is_justified and number < len(lines) - 1
            self._set_line(line, x, self._baseline(), face, gap(line, face, right - x) if is_stretched else face.advance(" "))
            self._advance(style.pitch)

    def _set_mark(self, mark: Mark | None) -> None:
        if mark is not None:
            face, baseline = self._style.face, self._baseline()
            self._sheet.word(mark.text, mark.x, baseline, face, says="-" if mark.text == BULLET else mark.text)
            self._sheet.space(mark.x + face.width(mark.text) + face.size_px * 0.3, baseline, face)

    def _set_line(self, line: Line, x: float, baseline: float, face: Face, space: float) -> None:
        """Words from left to right."""
        for index, (word, width) in enumerate(line):
            if index:
                self._sheet.space(x - space / 2, baseline, face)
            self._sheet.word(word, x, baseline, face)
            x += width + space

    def _short_words(self, width: float) -> Line:
        """A cell's words; empty where nothing short enough comes up."""
        rng = self._rng
        for _ in range(8):
            words = [self._wording.code(rng)] if rng.random() < 0.5 else self._wording.draw(rng, rng.randint(1, 2))
            lines = break_lines([word for word in words if "|" not in word], self._style.face, width)
            if lines:
                return lines[0]
        return []

    def _start_block(self) -> None:
        """An empty line before every block but the first."""
        if not self._sheet.is_empty:
            self._sheet.mark("\n\n")
            self._sheet.start_line()

    def _break_line(self) -> None:
        self._sheet.mark("\n")
        self._sheet.start_line()

    def _baseline(self) -> float:
        return self._y + self._style.pitch * 0.5 + self._style.face.size_px * CENTRE_ON_LINE

    def _advance(self, pitch: float) -> None:
        self._y += pitch
        self._lines_left -= 1


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
