"""Aligned buffers, and their addresses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

ALIGNMENT_BYTES = 64
Array = npt.NDArray[Any]

_poison = False


def poison_new_buffers(on: bool) -> None:
    """Fill every new buffer with 0xFF bytes (NaN as floats), so that reading what was never written shows.  For tests."""
    global _poison
    _poison = on


def aligned(shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """A new uninitialised array at a 64-byte boundary; pages that are never touched cost no memory."""
    shape = (shape,) if isinstance(shape, int) else shape
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    raw = np.empty(size + ALIGNMENT_BYTES, np.uint8)
    if _poison:
        raw.fill(0xFF)
    start = -raw.ctypes.data % ALIGNMENT_BYTES
    return raw[start : start + size].view(kind).reshape(shape)


def aligned_copy(array: Array) -> Array:
    """The array's values in a new aligned, C-contiguous buffer."""
    copy = aligned(array.shape, array.dtype)
    copy[...] = array
    return copy


def address(array: Array) -> int:
    """Where the array's first byte is.  The caller keeps the array alive."""
    return int(array.ctypes.data)
