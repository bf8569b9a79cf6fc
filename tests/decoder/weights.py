"""Random weight rows of every format, as a file holds or would hold them."""

from __future__ import annotations

from functools import cache

import numpy as np

from pagemill.decoder.formats import PACKED, QuantFormat
from pagemill.decoder.kernels.memory import Array

SCALE_PLACES = {"Q6_K": (208,), "Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2)}
"""Byte offsets of the float16 values in a block; the others have one, at 0."""


def widths_of(name: str) -> list[int]:
    """Awkward row widths of a format."""
    block = PACKED[name].block
    return {1: [24, 64, 111], 32: [32, 64, 576], 256: [256, 768]}[block]


@cache
def random_rows(name: str, rows: int, width: int) -> Array:
    """(rows, row bytes) uint8: any codes, scales of a trained model's size.  Do not write to it."""
    rng = np.random.default_rng(rows * 1000 + width)
    weights = PACKED[name]
    if not isinstance(weights, QuantFormat):
        values = rng.standard_normal((rows, width)).astype(np.float32)
        if name == "BF16":
            return np.ascontiguousarray(values.view(np.uint16)[:, 1::2]).view(np.uint8)
        return values.astype({"F32": np.float32, "F16": np.float16}[name]).view(np.uint8)
    raw = rng.integers(0, 256, (rows, width // weights.block, weights.block_bytes), np.uint8)
    for place in SCALE_PLACES.get(name, (0,)):
        scale = rng.uniform(0.001, 0.02, (rows, width // weights.block, 1)).astype(np.float16)
        raw[:, :, place : place + 2] = scale.view(np.uint8)
    return raw.reshape(rows, -1)
