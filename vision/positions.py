"""Where patches stand: the grid of a page, the order of its rows, and the rotary tables of each row.

Attention sees a set, not a sequence: any order of rows gives the same answer as long as each row carries its own
position.  So rows stand in block order, and merging blocks of patches costs no gather.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pagemill.vision.spec import VisionSpec


@dataclass(frozen=True, slots=True)
class Grid:
    """How many rows and columns of patches a page has."""

    rows: int
    columns: int

    @property
    def patches(self) -> int:
        """Patches of the page: rows of attention."""
        return self.rows * self.columns

    def blocks(self, merge: int) -> int:
        """Whole merge x merge blocks: embedding rows.  An odd last row or column of patches is in none."""
        return (self.rows // merge) * (self.columns // merge)


def block_order(grid: Grid, merge: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The (row, column) of each patch, in the order in which patches stand.

    Blocks of merge x merge patches in reading order, each block's patches together in reading order; then the patches of
    an odd last row or column, which attention sees and the merge drops.  Returns two (patches,) arrays.
    """
    row, column = np.divmod(np.arange(grid.patches), grid.columns)
    block_row, block_column = row // merge, column // merge
    left_over = (block_row >= grid.rows // merge) | (block_column >= grid.columns // merge)
    order = np.lexsort((column, row, block_column, block_row, left_over))
    return row[order], column[order]


def rope_tables(grid: Grid, spec: VisionSpec) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Cosine and sine of each patch's angles, one a pair of dimensions.  Returns two (patches, head_dim / 2) float32.

    The even frequencies turn the first half of the pairs by the patch's row, the odd ones the second half by its column.
    Pairs are the same whether the file keeps them adjacent (its query and key rows permuted) or in halves: entry i belongs
    to pair i.  Angles are float32 products, as in the reference, for 1e-5 agreement far from the origin.
    """
    row, column = block_order(grid, spec.merge)
    exponents = np.arange(0, spec.head_dim, 2, dtype=np.float32) / np.float32(spec.head_dim)
    frequencies = (np.float32(1) / np.float32(spec.rope_base) ** exponents).astype(np.float32)
    by_row = np.outer(row.astype(np.float32), frequencies[0::2])  # (patches, head_dim / 4)
    by_column = np.outer(column.astype(np.float32), frequencies[1::2])
    angles = np.concatenate((by_row, by_column), axis=1).astype(np.float64)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
