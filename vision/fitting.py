"""The size that a page is read at: the one rule of renderers and encoders, so that no stage resamples what another fitted."""

from __future__ import annotations

from math import floor


def fitted_size(width: float, height: float, longest_edge_px: int, multiple_px: int) -> tuple[int, int]:
    """(width, height) in px: shrunk to the longest edge, never enlarged, then each side up to a multiple, at least one."""
    ratio = max(width, height) / longest_edge_px
    if ratio > 1:
        width, height = floor(width / ratio), floor(height / ratio)
    return _up(width, multiple_px), _up(height, multiple_px)


def _up(side: float, multiple_px: int) -> int:
    return max(1, -(-int(side) // multiple_px)) * multiple_px
