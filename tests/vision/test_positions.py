"""Block order and rotary tables, against the formulas written out one patch at a time."""

from __future__ import annotations

from dataclasses import replace
from math import cos, sin

import numpy as np
import pytest

from pagemill.vision.positions import Grid, block_order, rope_tables
from pagemill.vision.reference import rotate
from pagemill.vision.spec import VisionSpec


def test_blocks_stand_together_in_reading_order() -> None:
    rows, columns = block_order(Grid(2, 4), 2)
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == [
        (0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3), (1, 2), (1, 3),
    ]  # fmt: skip


@pytest.mark.parametrize("grid", [Grid(5, 4), Grid(4, 5), Grid(3, 3), Grid(1, 7), Grid(7, 1)], ids=str)
def test_odd_rows_and_columns_stand_last_and_nothing_is_lost(grid: Grid) -> None:
    rows, columns = block_order(grid, 2)
    assert sorted(zip(rows.tolist(), columns.tolist(), strict=True)) == [
        (row, column) for row in range(grid.rows) for column in range(grid.columns)
    ]
    merged = 4 * grid.blocks(2)
    assert all(row < grid.rows // 2 * 2 for row in rows[:merged])
    assert all(column < grid.columns // 2 * 2 for column in columns[:merged])


def test_tables_turn_even_frequencies_by_row_and_odd_ones_by_column(spec: VisionSpec) -> None:
    grid = Grid(5, 3)
    cosines, sines = rope_tables(grid, spec)
    pairs = spec.head_dim // 2
    assert cosines.shape == sines.shape == (15, pairs)
    for patch, (row, column) in enumerate(zip(*block_order(grid, spec.merge), strict=True)):
        for pair in range(pairs):
            by_row = pair < pairs // 2
            frequency = 2 * pair if by_row else 2 * (pair - pairs // 2) + 1
            angle = (row if by_row else column) * spec.rope_base ** (-2 * frequency / spec.head_dim)
            assert cosines[patch, pair] == pytest.approx(cos(angle), abs=1e-6)
            assert sines[patch, pair] == pytest.approx(sin(angle), abs=1e-6)


def test_adjacent_pairs_of_permuted_rows_equal_halves(spec: VisionSpec) -> None:
    grid = Grid(4, 6)
    heads = np.random.default_rng(2).standard_normal((grid.patches, spec.heads, spec.head_dim)).astype(np.float32)
    tables = rope_tables(grid, spec)
    halves = rotate(heads, tables, replace(spec, rope_pairing="halves"))
    permutation = np.arange(spec.head_dim).reshape(2, -1).T.reshape(-1)  # pair i becomes dimensions 2i and 2i + 1
    adjacent = rotate(np.ascontiguousarray(heads[..., permutation]), tables, replace(spec, rope_pairing="adjacent"))
    np.testing.assert_array_equal(adjacent, halves[..., permutation])
