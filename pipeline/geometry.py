"""From a point of a rendered page to the PDF page: pixels of the upright picture to points of the unrotated page.

The renderer puts a ``PageGeometry`` on the image of every PDF page; outputs with coordinates ask it.  Pure arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class PageGeometry:
    """How a PDF page became a picture of ``width_px`` x ``height_px``.

    left_pt, bottom_pt, width_pt, height_pt: the visible page (its crop box within its media box) in default user space,
    the coordinates that content streams are written in; not rotated, and in units of UserUnit where the page has one.
    rotation: clockwise degrees by which the page was turned for display: 0, 90, 180 or 270.
    """

    left_pt: float
    bottom_pt: float
    width_pt: float
    height_pt: float
    rotation: int
    width_px: int
    height_px: int

    def to_points(self, box_px: Box) -> Box:
        """(left, top, right, bottom) in px from the picture's upper left -> (left, bottom, right, top) in user space.

        Sides stay ordered: left <= right and bottom <= top, also on turned pages.
        """
        first = self._point(box_px[0], box_px[1])
        second = self._point(box_px[2], box_px[3])
        left, right = sorted((first[0], second[0]))
        bottom, top = sorted((first[1], second[1]))
        return left, bottom, right, top

    def to_pixels(self, box_pt: Box) -> Box:
        """The inverse of ``to_points``."""
        first = self._pixel(box_pt[0], box_pt[1])
        second = self._pixel(box_pt[2], box_pt[3])
        left, right = sorted((first[0], second[0]))
        top, bottom = sorted((first[1], second[1]))
        return left, top, right, bottom

    def _point(self, x_px: float, y_px: float) -> tuple[float, float]:
        x, y = x_px / self.width_px, y_px / self.height_px  # fractions from the picture's upper left
        across, up = {0: (x, 1 - y), 90: (y, x), 180: (1 - x, y), 270: (1 - y, 1 - x)}[self.rotation]
        return self.left_pt + across * self.width_pt, self.bottom_pt + up * self.height_pt

    def _pixel(self, x_pt: float, y_pt: float) -> tuple[float, float]:
        across, up = (x_pt - self.left_pt) / self.width_pt, (y_pt - self.bottom_pt) / self.height_pt
        x, y = {0: (across, 1 - up), 90: (up, across), 180: (1 - across, up), 270: (1 - up, 1 - across)}[self.rotation]
        return x * self.width_px, y * self.height_px
