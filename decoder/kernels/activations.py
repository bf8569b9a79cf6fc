"""Activations as matrix products read them: packed once per row, in the layout that the weight format asks for.

    int8    codes (blocks, rows, block) int8, scales (blocks, rows) float32: value = scale * code,
            scale = max|x| / 127 of the block;
            sums16 (blocks, rows, block / 32) int16: sum of codes per 32 (what the minima of weights are multiplied with);
            sums32 (blocks, rows, block / sub) int32: sum of codes per ``sub``, times -offset (weights with unsigned codes
            start their accumulator with it)
    bf16    codes (blocks, rows, 32) uint16, rounded to nearest even
    f32     codes (blocks, rows, 32) float32

``rows`` is the step's row count, not the capacity: a step of few rows is dense in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from pagemill.decoder.kernels.memory import Array, aligned


@dataclass(frozen=True, slots=True)
class ActivationKind:
    """How a row is packed.

    block: values per scale (int8) or per run (bf16, f32: 32).  offset: of unsigned weight codes; -1 for
    weights with minima in blocks of 32, whose sums32 are the plain sums.  sub: values per entry of
    sums32: 16, 32 or the whole block.

    All K-quants share one kind (256, offset 32, sub 16), so one packed row serves matrices of Q4_K, Q5_K and Q6_K.
    """

    dtype: Literal["int8", "bf16", "f32"]
    block: int = 32
    offset: int = 0
    sub: int = 32


@dataclass(frozen=True, slots=True)
class Activations:
    """Buffers for up to ``capacity`` packed rows of ``width`` values."""

    kind: ActivationKind
    width: int
    capacity: int
    codes: Array
    scales: Array
    sums16: Array
    sums32: Array

    @property
    def blocks(self) -> int:
        """Blocks per row; the last is padded with zeros."""
        return -(-self.width // self.kind.block)


def new_activations(kind: ActivationKind, width: int, capacity: int) -> Activations:
    """Uninitialised buffers for rows of one kind."""
    blocks = -(-width // kind.block)
    dtype = {"int8": np.int8, "bf16": np.uint16, "f32": np.float32}[kind.dtype]
    per_block = (blocks, capacity) if kind.dtype == "int8" else (0,)
    sums16 = (blocks, capacity, kind.block // 32) if kind.dtype == "int8" else (0,)
    sums32 = (blocks, capacity, kind.block // kind.sub) if kind.dtype == "int8" else (0,)
    return Activations(
        kind,
        width,
        capacity,
        aligned((blocks, capacity, kind.block), dtype),
        aligned(per_block, np.float32),
        aligned(sums16, np.int16),
        aligned(sums32, np.int32),
    )
