"""How a page is read again that was not read well: a ramp of changes, and what each does to the page's image.

The order is that of cost: another temperature reads the same rows again, another size encodes the page anew, halves read it
as two pages.  With ``turns`` a page that may lie on its side or upside down is read at 90, 180 and 270 degrees before all
that, and goes on as it read best.  The ramp depends on nothing but the page and the settings, so that the same page goes
through the same attempts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pagemill.pipeline.page import PageStatus

Pixels = NDArray[np.uint8]

SMALLEST_SIDE_PX = 56  # below it no letter is left to be read
CUT_FROM, CUT_TO = 0.4, 0.6  # of the height, where a page is cut in halves
BEST_FIRST: tuple[PageStatus, ...] = ("ok", "low_confidence", "truncated", "looped", "blank", "failed")


@dataclass(frozen=True, slots=True)
class Recovery:
    """When and how a page is read again.

    retry_on: of looped, broken (no numbers came out of the model), low_confidence and truncated.
    low_confidence: below it an ok page has that status; of the geometric mean of its tokens' probabilities; 0: none.
    temperatures, scales, halves: the ramp.  turns: whether other orientations are tried first.
    """

    retry_on: frozenset[str] = frozenset({"looped", "broken", "low_confidence"})
    temperatures: tuple[float, ...] = (0.2, 0.5)
    scales: tuple[float, ...] = (0.8,)
    halves: bool = True
    low_confidence: float = 0.6
    turns: bool = False


@dataclass(frozen=True, slots=True)
class Rung:
    """One change.  temperature: None for that of the settings.  turn: degrees clockwise."""

    temperature: float | None = None
    scale: float = 1.0
    turn: int = 0
    halves: bool = False

    @property
    def keeps_image(self) -> bool:
        """Does it read the image as it is?"""
        return self.scale == 1.0 and not self.turn and not self.halves


FIRST = Rung()
TURNS = tuple(Rung(turn=degrees) for degrees in (90, 180, 270))


def ramp(recovery: Recovery) -> Iterator[Rung]:
    """What is tried after the first reading, and after the turns."""
    for temperature in recovery.temperatures:
        yield Rung(temperature=temperature)
    for scale in recovery.scales:
        yield Rung(scale=scale)
    if recovery.halves:
        yield Rung(halves=True)


def images(pixels: Pixels, rung: Rung, longest_edge_px: int) -> list[Pixels]:
    """What is read on a rung, in reading order; empty where the page does not allow the change.

    pixels: (height, width, 3) uint8, upright as far as is known.
    """
    if rung.turn:
        return [np.ascontiguousarray(np.rot90(pixels, -rung.turn // 90))]
    if rung.scale != 1.0:
        return _scaled(pixels, rung.scale, longest_edge_px)
    return _halves(pixels) if rung.halves else [pixels]


def _scaled(pixels: Pixels, scale: float, longest_edge_px: int) -> list[Pixels]:
    height, width = pixels.shape[:2]
    scale = min(scale, longest_edge_px / max(height, width))
    size = (round(width * scale), round(height * scale))
    if size == (width, height) or min(size) < SMALLEST_SIDE_PX:
        return []
    return [np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS))]


def _halves(pixels: Pixels) -> list[Pixels]:
    """Cut at the row on which least changes, near the middle, so that no line is cut."""
    height = len(pixels)
    if height < 2 * SMALLEST_SIDE_PX / CUT_FROM:
        return []
    first, last = round(height * CUT_FROM), round(height * CUT_TO)
    ink = np.abs(np.diff(pixels[first:last].mean(axis=2), axis=1)).sum(axis=1)
    quiet = np.flatnonzero(ink <= ink.min())
    cut = first + int(quiet[np.abs(quiet - len(ink) // 2).argmin()])
    return [np.ascontiguousarray(pixels[:cut]), np.ascontiguousarray(pixels[cut:])]
