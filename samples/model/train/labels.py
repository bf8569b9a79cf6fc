"""What is printed in each patch and cell, from the letters' places: the targets of the training-only heads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from samples.model.train.sheet import Page

PATCH, CELL = 14, 28  # px
PATCH_SLOTS, CELL_SLOTS, BEFORE, RUNS = 4, 10, 4, 2
LEVEL_PX, LEVELS = 4, 7  # a line's height within the cells that it crosses
GLYPHS = 96  # 0 for none, then printable ASCII from the space on
START, LINE_END = GLYPHS, GLYPHS + 1  # only among the characters before a run
FIRST = 31  # character code of glyph 0


@dataclass(frozen=True, slots=True)
class Labels:
    """Glyph numbers in reading order, 0 where a slot is empty.

    patches: (patches, 4); cells: (cells, 10); before: (cells, 2, 4), the characters that come before a cell's first and
    second line, nearest first, 0 where there is no such line; levels: (cells, 2), at what height those lines stand, from 1
    (the top) on, 0 where there is none; cell_of, level_of: (characters,) int32, -1 where not printed (levels here from 0).
    """

    patches: NDArray[np.uint8]
    cells: NDArray[np.uint8]
    before: NDArray[np.uint8]
    levels: NDArray[np.uint8]
    cell_of: NDArray[np.int32]
    level_of: NDArray[np.int32]


def label_page(page: Page) -> Labels:
    """Sort the page's characters into its patches and cells."""
    height, width = page.pixels.shape[:2]
    codes = np.frombuffer(page.text.encode("ascii"), np.uint8)
    glyphs = np.where(codes >= ord(" "), codes - FIRST, LINE_END).astype(np.uint8)
    x, y = page.centres.T
    with np.errstate(invalid="ignore"):
        seen = np.flatnonzero((x >= 0) & (x < width) & (y >= 0) & (y < height))
    patch_of = (y[seen] // PATCH * (width // PATCH) + x[seen] // PATCH).astype(np.int32)
    cell_of = np.full(len(codes), -1, np.int32)
    cell_of[seen] = (y[seen] // CELL * (width // CELL) + x[seen] // CELL).astype(np.int32)
    level_of = np.full(len(codes), -1, np.int32)
    level_of[seen] = (y[seen] % CELL // LEVEL_PX).astype(np.int32)
    patches = _slots(patch_of, glyphs[seen], height // PATCH * (width // PATCH), PATCH_SLOTS)
    cells = _slots(cell_of[seen], glyphs[seen], height // CELL * (width // CELL), CELL_SLOTS)
    before, levels = _runs(cell_of, level_of, glyphs, page.lines, len(cells))
    return Labels(patches, cells, before, levels, cell_of, level_of)


def _slots(places: NDArray[np.int32], glyphs: NDArray[np.uint8], count: int, slots: int) -> NDArray[np.uint8]:
    """Each place's glyphs in order, cut after `slots`."""
    filled = np.zeros((count, slots), np.uint8)
    order = np.argsort(places, kind="stable")
    places, glyphs = places[order], glyphs[order]
    rank = np.arange(len(places)) - np.searchsorted(places, places)
    kept = rank < slots
    filled[places[kept], rank[kept]] = glyphs[kept]
    return filled


def _runs(
    cell_of: NDArray[np.int32], level_of: NDArray[np.int32], glyphs: NDArray[np.uint8], lines: NDArray[np.int64], count: int
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """For each cell and each of its first two lines, the characters that lead up to it, and the line's level."""
    before, levels = np.zeros((count, RUNS, BEFORE), np.uint8), np.zeros((count, RUNS), np.uint8)
    runs: dict[int, list[int]] = {}
    for index, (cell, line) in enumerate(zip(cell_of.tolist(), lines.tolist(), strict=True)):
        if cell < 0:
            continue
        known = runs.setdefault(cell, [])
        if line in known or len(known) == RUNS:
            continue
        for step in range(BEFORE):
            earlier = index - 1 - step
            before[cell, len(known), step] = glyphs[earlier] if earlier >= 0 else START
        levels[cell, len(known)] = level_of[index] + 1
        known.append(line)
    return before, levels
