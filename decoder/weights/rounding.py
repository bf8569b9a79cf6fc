"""Weights rounded at load for faster products: bfloat16, and blocks of 8-bit codes with a float16 scale."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

BLOCKS = {"Q8_256": 256, "Q8_0": 32}  # weights of a row that share a scale, the faster format first


def to_bf16(x: Floats) -> NDArray[np.uint16]:
    """Upper halves of float32, rounded to nearest even."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)


def to_codes(x: Floats, block: int) -> NDArray[np.uint8]:
    """x: (rows, width), width a multiple of block.  Returns (rows, bytes): of each block its scale, then its codes."""
    blocks = x.reshape(len(x), -1, block)
    scales = (np.abs(blocks).max(-1, keepdims=True) / np.float32(127)).astype(np.float16)
    wide = scales.astype(np.float32)
    codes = np.zeros_like(blocks)
    np.divide(blocks, wide, out=codes, where=wide > 0)
    whole = np.rint(codes).clip(-127, 127).astype(np.int8)
    return np.concatenate([scales.view(np.uint8), whole.view(np.uint8)], -1).reshape(len(x), -1)
