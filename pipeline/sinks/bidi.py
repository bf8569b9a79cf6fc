"""From the order in which text is read to the order in which it stands on the line, for right-to-left scripts.

PDF readers expect letters in the order of their places and turn right-to-left runs round again.  The core of Unicode's
bidirectional algorithm (annex 9) for one line: strong letters, numbers and neutrals; no explicit embeddings.  In a line that
begins left-to-right a number ends a right-to-left run, which annex 9 does not say but readers (pdfium, poppler) assume.
Known limit: in such a line pdfium gives two right-to-left words in the other order; poppler has them right.
"""

from __future__ import annotations

import unicodedata
from itertools import groupby

_RIGHT = frozenset({"R", "AL"})
_NUMBERS = frozenset({"EN", "AN"})


def visual_order(line: str) -> str:
    """The line from left to right, as it stands on the page."""
    if line.isascii():
        return line
    kinds = [unicodedata.bidirectional(letter) for letter in line]
    if not _RIGHT.intersection(kinds):
        return line
    base = next((int(kind in _RIGHT) for kind in kinds if kind in _RIGHT or kind == "L"), 0)
    return "".join(_reordered(line, _levels(kinds, base)))


def _levels(kinds: list[str], base: int) -> list[int]:
    """The level of each letter: even reads to the right, odd to the left."""
    sides = [_side(kind) for kind in kinds]
    for index, kind in enumerate(kinds):
        if kind in _NUMBERS:
            sides[index] = 2 if base else 0  # within right-to-left text it reads to the right, one level further in
        elif kind == "NSM" and index:
            sides[index] = sides[index - 1]
    for start, end in _gaps(sides):
        before = _direction(sides[start - 1], base) if start else base
        after = _direction(sides[end], base) if end < len(sides) else base
        sides[start:end] = [before if before == after else base] * (end - start)
    return [_level(side, base) for side in sides]  # type: ignore[arg-type]


def _side(kind: str) -> int | None:
    if kind in _RIGHT:
        return 1
    return 0 if kind == "L" else None


def _gaps(sides: list[int | None]) -> list[tuple[int, int]]:
    """(start, end) of each run of letters without a side."""
    runs = []
    start = 0
    for is_gap, run in groupby(sides, key=lambda side: side is None):
        end = start + len(list(run))
        if is_gap:
            runs.append((start, end))
        start = end
    return runs


def _direction(side: int | None, base: int) -> int:
    """How a neighbour counts for the neutrals beside it: numbers in right-to-left text count as right-to-left."""
    return base if side is None else min(side, 1)


def _level(side: int, base: int) -> int:
    if base == 0:
        return side
    return 1 if side == 1 else 2


def _reordered(line: str, levels: list[int]) -> list[str]:
    """From the highest level down to 1, every run of at least that level is turned round."""
    order = list(range(len(line)))
    for level in range(max(levels), 0, -1):
        start = 0
        while start < len(order):
            end = start
            while end < len(order) and levels[order[end]] >= level:
                end += 1
            order[start:end] = reversed(order[start:end])
            start = end + 1
    return [line[index] for index in order]
