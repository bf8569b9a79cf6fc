"""Weights rounded at load for faster products: bfloat16, and Q8_0 blocks of 32 codes with a float16 scale."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

BLOCK = 32
"""Weights of a row that share a scale in Q8_0."""


def to_bf16(x: Floats) -> NDArray[np.uint16]:
    """Upper halves of float32, rounded to nearest even."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)


def to_q8_0(x: Floats) -> NDArray[np.uint8]:
    """x: (rows, width), width a multiple of 32.  Returns (rows, bytes) as a GGUF file has them: scale, then 32 codes."""
    blocks = x.reshape(len(x), -1, BLOCK)
    scales = (np.abs(blocks).max(-1, keepdims=True) / np.float32(127)).astype(np.float16)
    wide = scales.astype(np.float32)
    codes = np.zeros_like(blocks)
    np.divide(blocks, wide, out=codes, where=wide > 0)
    whole = np.rint(codes).clip(-127, 127).astype(np.int8)
    return np.concatenate([scales.view(np.uint8), whole.view(np.uint8)], -1).reshape(len(x), -1)
