"""The printed faces: open fonts of Debian packages, each with regular, bold and slanted cuts.

Packages: fonts-dejavu, fonts-liberation, fonts-freefont-ttf, fonts-noto-core (Bitstream Vera, OFL, GPL with font exception).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from random import Random

from PIL import ImageFont

FOLDER = Path(os.environ.get("PAGEMILL_FONTS", "/usr/share/fonts/truetype"))
REGULAR, BOLD, SLANTED = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Family:
    """A family's files: regular, bold, slanted; and how often it is drawn."""

    name: str
    cuts: tuple[str, str, str]
    weight: float


def _family(name: str, stem: str, endings: tuple[str, str, str], weight: float) -> Family:
    return Family(name, tuple(f"{stem}{ending}.ttf" for ending in endings), weight)  # type: ignore[arg-type]


_DASHED, _OBLIQUE, _ITALIC = ("-Regular", "-Bold", "-Italic"), ("", "-Bold", "-Oblique"), ("", "-Bold", "-Italic")
COMMON = (
    _family("DejaVu Sans", "dejavu/DejaVuSans", _OBLIQUE, 1.0),
    _family("DejaVu Serif", "dejavu/DejaVuSerif", _ITALIC, 1.0),
    _family("Liberation Sans", "liberation/LiberationSans", _DASHED, 1.5),
    _family("Liberation Serif", "liberation/LiberationSerif", _DASHED, 1.5),
    _family("Noto Sans", "noto/NotoSans", _DASHED, 1.0),
)
RARE = (
    _family("DejaVu Sans Mono", "dejavu/DejaVuSansMono", _OBLIQUE, 0.5),
    _family("DejaVu Sans Condensed", "dejavu/DejaVuSansCondensed", _OBLIQUE, 0.5),
    _family("Liberation Mono", "liberation/LiberationMono", _DASHED, 0.5),
    _family("Noto Serif", "noto/NotoSerif", _DASHED, 1.0),
    _family("FreeSans", "freefont/FreeSans", ("", "Bold", "Oblique"), 0.7),
    _family("FreeSerif", "freefont/FreeSerif", ("", "Bold", "Italic"), 0.7),
)


@dataclass(frozen=True, slots=True)
class Face:
    """One cut at one size, with measured widths."""

    font: ImageFont.FreeTypeFont
    size_px: float
    _advances: dict[str, float] = field(default_factory=dict)

    def width(self, text: str) -> float:
        """Printed width of a word in pixels."""
        return float(self.font.getlength(text))

    def advance(self, character: str) -> float:
        """Width of one character alone."""
        known = self._advances.get(character)
        if known is None:
            known = self._advances[character] = self.width(character)
        return known


@lru_cache(maxsize=600)
def open_face(cut: str, size_px: float) -> Face:
    """Refuses a missing file with the packages to install."""
    path = FOLDER / cut
    if not path.exists():
        packages = "fonts-dejavu fonts-liberation fonts-freefont-ttf fonts-noto-core"
        raise SystemExit(f"font {path} not found: apt-get install {packages}, or set PAGEMILL_FONTS to where they are")
    return Face(ImageFont.truetype(str(path), size_px, layout_engine=ImageFont.Layout.BASIC), size_px)


def draw_family(rng: Random, families: Sequence[Family]) -> Family:
    """A family by its weight."""
    return rng.choices(families, [family.weight for family in families])[0]
