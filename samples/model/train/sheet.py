"""A page under the pen: draws words and keeps, for every character of the truth, where it is printed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from samples.model.train.faces import Face

EYE_LEVEL = 0.27  # a letter's middle above its baseline, in letter sizes
NOWHERE = (np.nan, np.nan)


@dataclass(frozen=True, slots=True)
class Page:
    """A finished page.

    pixels: (height, width, 3) uint8; text: the truth; centres: (characters, 2) float64, x and y in px, NaN where a
    character is not printed; lines: (characters,) int64, which printed line a character stands in.
    """

    pixels: NDArray[np.uint8]
    text: str
    centres: NDArray[np.float64]
    lines: NDArray[np.int64]


class Sheet:
    """Black ink on white, as coverage; damage and colours come later."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.image = Image.new("L", (width, height), 255)
        self._draw = ImageDraw.Draw(self.image)
        self._text: list[str] = []
        self._centres: list[tuple[float, float]] = []
        self._lines: list[int] = []
        self._line = 0

    @property
    def is_empty(self) -> bool:
        """Whether the truth is still empty."""
        return not self._text

    def start_line(self) -> None:
        """Characters from here on stand in another printed line."""
        self._line += 1

    def mark(self, text: str) -> None:
        """Truth that nothing printed stands for: Markdown and line ends."""
        self._put(text, [NOWHERE] * len(text))

    def space(self, x: float, baseline: float, face: Face) -> None:
        """A blank between words, with the place where it is seen."""
        self._put(" ", [(x, baseline - face.size_px * EYE_LEVEL)])

    def word(self, text: str, x: float, baseline: float, face: Face, says: str | None = None) -> None:
        """Print `text` from x on; the truth holds `says` where that differs, as for a bullet."""
        self._draw.text((x, baseline), text, font=face.font, fill=0, anchor="ls")
        says = says or text
        advances = [face.advance(character) for character in says]
        scale = face.width(text) / max(sum(advances), 1e-3)  # kerning and hinting, shared out over the word
        level = baseline - face.size_px * EYE_LEVEL
        centres = []
        for advance in advances:
            centres.append((x + advance * scale / 2, level))
            x += advance * scale
        self._put(says, centres)

    def rule(self, x0: float, x1: float, y: float) -> None:
        """A thin line across, as under a table's head."""
        self._draw.line((x0, y, x1, y), fill=0, width=1)

    def finish(self) -> tuple[str, NDArray[np.float64], NDArray[np.int64]]:
        """Truth, centres and lines so far."""
        return "".join(self._text), np.array(self._centres, np.float64).reshape(-1, 2), np.array(self._lines, np.int64)

    def _put(self, text: str, centres: list[tuple[float, float]]) -> None:
        self._text.append(text)
        self._centres.extend(centres)
        self._lines.extend([self._line] * len(text))
