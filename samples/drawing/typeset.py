"""A page's paragraphs, items and tables as printed lines, with the Markdown that they stand for.

Refuses a text that does not fit on its page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from PIL import ImageFont

FONT_FOLDER = Path("/usr/share/fonts/truetype")
FONTS = {  # regular, bold
    "sans": ("liberation/LiberationSans-Regular.ttf", "liberation/LiberationSans-Bold.ttf"),
    "serif": ("liberation/LiberationSerif-Regular.ttf", "liberation/LiberationSerif-Bold.ttf"),
    "dejavu": ("dejavu/DejaVuSans.ttf", "dejavu/DejaVuSans-Bold.ttf"),
    "dejavu-serif": ("dejavu/DejaVuSerif.ttf", "dejavu/DejaVuSerif-Bold.ttf"),
    "noto": ("noto/NotoSans-Regular.ttf", "noto/NotoSans-Bold.ttf"),
}
STRIP_PX = (336, 112)  # like every page's sides, multiples of 28, so that no stage resamples a page
MARGIN_PX, TOP_PX, GUTTER_PX = 10, 8, 28
PITCH, HEADING = 1.35, 1.35  # from baseline to baseline, and a heading's letters: times the size

Block = str | list[list[str]]  # a paragraph, or the rows of a table


@dataclass(frozen=True, slots=True)
class Line:
    """A printed line, or a part of one: where its baseline starts, in px from the top left."""

    text: str
    x: float
    y: float
    font: str
    bold: bool
    size: float

    @property
    def face(self) -> Path:
        """The font's file."""
        return FONT_FOLDER / FONTS[self.font][self.bold]


@dataclass(frozen=True, slots=True)
class Rule:
    """A thin line across, as under a table's head; px from the top left."""

    left: float
    right: float
    y: float


@dataclass(frozen=True, slots=True)
class Page:
    """What to draw on width x height px, and the Markdown that it stands for."""

    width: int
    height: int
    lines: Sequence[Line]
    rules: Sequence[Rule]
    truth: str


def lay_out(page: Mapping[str, Any]) -> Page:
    """Set a page of pages.yaml."""
    width, height = page.get("paper", STRIP_PX)
    columns = page["columns"] if "columns" in page else [page["text"]]
    wide = (width - 2 * MARGIN_PX - GUTTER_PX * (len(columns) - 1)) / len(columns)
    setter = Setter(page["font"], page["size"], wide)
    for number, blocks in enumerate(columns):
        setter.start_column(MARGIN_PX + number * (wide + GUTTER_PX))
        for block in blocks:
            setter.set_block(block)
        if setter.bottom > height:
            raise SystemExit(f"text does not fit on its page, shorten it: {blocks!r}")
    return Page(width, height, setter.lines, setter.rules, "\n\n".join(setter.truth))


@dataclass(slots=True)
class Setter:
    """Sets blocks one under the other, half a line apart, into columns of this width; sizes in px."""

    font: str
    size: float
    width: float
    left: float = 0.0
    y: float = 0.0
    lines: list[Line] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    truth: list[str] = field(default_factory=list)

    @property
    def bottom(self) -> float:
        """Where the column's last letters end."""
        return self.lines[-1].y + self.size * 0.3 if self.lines else 0.0

    def start_column(self, left: float) -> None:
        """Go on at the top, this far from the page's left edge."""
        self.left, self.y = left, float(TOP_PX)

    def set_block(self, block: Block) -> None:
        """A heading, a paragraph, an item or a table."""
        if isinstance(block, list):
            self._set_table(block)
        elif block.startswith("# "):
            self._set_paragraph(block.removeprefix("# "), "# ", self.size * HEADING)
        else:
            self._set_paragraph(block, "", self.size)
        self.y += self.size * 0.5

    def _set_paragraph(self, text: str, mark: str, size: float) -> None:
        is_heading = bool(mark)
        rows = break_lines(text, open_font(FONT_FOLDER / FONTS[self.font][is_heading], size), self.width)
        for row in rows:
            self._set_row([(row, 0.0)], is_heading, size)
        self.truth.append(mark + "\n".join(rows))

    def _set_table(self, rows: list[list[str]]) -> None:
        """Cells in columns of one width, a rule under the first row."""
        step = self.width / len(rows[0])
        for number, row in enumerate(rows):
            self._set_row([(cell, index * step) for index, cell in enumerate(row)], False, self.size)
            if number == 0:
                self.rules.append(Rule(self.left, self.left + self.width, self.y))
        head, *others = [f"| {' | '.join(row)} |" for row in rows]
        self.truth.append("\n".join((head, "|" + " --- |" * len(rows[0]), *others)))

    def _set_row(self, parts: Sequence[tuple[str, float]], bold: bool, size: float) -> None:
        """One printed line, of parts that start so far from the column's left."""
        baseline = self.y + size * (PITCH * 0.5 + 0.33)
        self.lines += [Line(text, self.left + x, baseline, self.font, bold, size) for text, x in parts]
        self.y += size * PITCH


def break_lines(text: str, font: ImageFont.FreeTypeFont, width: float) -> list[str]:
    """Lines of at most this width, broken at spaces and where the text breaks."""
    lines = []
    for given in text.split("\n"):
        line = ""
        for word in given.split():
            longer = f"{line} {word}".lstrip()
            if line and font.getlength(longer) > width:
                lines.append(line)
                longer = word
            line = longer
        lines.append(line)
    return lines


@cache
def open_font(path: Path, size: float) -> ImageFont.FreeTypeFont:
    """Laid out without the optional shaper, which not every Pillow has."""
    return ImageFont.truetype(path, size, layout_engine=ImageFont.Layout.BASIC)
