"""At which size a page is rendered: the one rule that PDF pages and image files share.

A page shrinks so that its longest side fits, then each side grows to a multiple of the model's patch block.  A PDF page is
drawn at exactly that size and an image file is resized to it once, in the child process; the vision stage then has nothing
left to resample.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, isfinite

from pagemill.pipeline.errors import Degenerate, TooLarge
from pagemill.vision import fitted_size

MAX_ASPECT = 50
MIN_SIDE_PX = 8
POINTS_PER_INCH = 72


@dataclass(frozen=True, slots=True)
class RenderSettings:
    """How pages become pixels.  The defaults suit LightOnOCR-like models: longest side 1540 px, sides in multiples of 28.

    max_dpi: a PDF page is not drawn finer than this, however small it is.  max_pixels: of an image file before it shrinks.
    """

    longest_edge_px: int = 1540
    multiple_px: int = 28
    max_dpi: float = 200.0
    max_pixels: int = 200_000_000


def pdf_size(width_pt: float, height_pt: float, settings: RenderSettings) -> tuple[int, int]:
    """(width, height) in px at which to draw a PDF page of this size in points."""
    if not (isfinite(width_pt) and isfinite(height_pt) and width_pt > 0 and height_pt > 0):
        raise Degenerate(f"page of {width_pt:g} x {height_pt:g} pt: expected an area; its page boxes may contradict each other")
    scale = settings.max_dpi / POINTS_PER_INCH
    width, height = max(1, floor(width_pt * scale)), max(1, floor(height_pt * scale))
    _refuse_shape(width, height, settings)
    return fitted_size(width, height, settings.longest_edge_px, settings.multiple_px)


def image_size(width: int, height: int, settings: RenderSettings) -> tuple[int, int]:
    """(width, height) in px to which to resize an image of this size; refuses what is too large to decode."""
    if width * height > settings.max_pixels:
        raise TooLarge(
            f"image of {width} x {height} px: expected at most {settings.max_pixels} pixels; "
            "scale it down, or raise max_pixels if the machine has the memory"
        )
    _refuse_shape(width, height, settings)
    return fitted_size(width, height, settings.longest_edge_px, settings.multiple_px)


def _refuse_shape(width: int, height: int, settings: RenderSettings) -> None:
    """Refuse a page that cannot hold a letter, or is so long that shrinking it leaves nothing to read."""
    longest, shortest = max(width, height), min(width, height)
    if longest < MIN_SIDE_PX:
        raise Degenerate(f"page of {width} x {height} px: expected a side of at least {MIN_SIDE_PX} px, too small for a letter")
    if longest > settings.longest_edge_px and longest > shortest * MAX_ASPECT:
        raise Degenerate(
            f"page of {width} x {height} px: expected sides of at most {MAX_ASPECT} : 1, found {longest / shortest:.0f} : 1, "
            "which shrinks to unreadable letters; cut the strip into pages"
        )
