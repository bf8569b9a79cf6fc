"""ROPE_STORE and ATTEND in plain numpy: the definition that the kernels are compared with."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from pagemill.decoder.kernels.memory import Array


def head_norm(heads: Array, weight: Array, eps: float) -> Array:
    """heads / sqrt(mean square + eps) * weight.  heads: (..., head_dim)."""
    mean: Array = np.mean(np.square(heads), axis=-1, keepdims=True)
    normed: Array = heads / np.sqrt(mean + heads.dtype.type(eps)) * weight
    return normed


def rope(heads: Array, cos: Array, sin: Array, pairing: Literal["adjacent", "halves"]) -> Array:
    """Rotate the first 2 * n dimensions.  heads: (rows, heads, head_dim); cos, sin: (rows, n)."""
    pairs = cos.shape[-1]
    turned = heads.copy()
    if pairing == "halves":
        first, second = slice(0, pairs), slice(pairs, 2 * pairs)
    else:
        first, second = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    x, y, c, s = heads[..., first], heads[..., second], cos[:, None], sin[:, None]
    turned[..., first], turned[..., second] = x * c - y * s, x * s + y * c
    return turned


def hadamard(size: int) -> npt.NDArray[np.float64]:
    """The normalised Sylvester matrix: symmetric, and its own inverse."""
    matrix: npt.NDArray[np.float64] = np.full((1, 1), size**-0.5)
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


def rotate(heads: Array, size: int) -> Array:
    """Each block of ``size`` dimensions times the Hadamard matrix; size 0 is the identity."""
    if not size:
        return heads
    blocks = heads.reshape(*heads.shape[:-1], -1, size)
    return (blocks @ hadamard(size)).astype(heads.dtype).reshape(heads.shape)


def coded(heads: Array, block: int) -> Array:
    """Queries as they are rounded for 8-bit keys: 127 steps either side of zero in every ``block`` dimensions."""
    blocks = heads.reshape(*heads.shape[:-1], -1, block)
    step = np.abs(blocks).max(-1, keepdims=True) / 127
    whole: Array = np.rint(np.divide(blocks, step, out=np.zeros_like(blocks), where=step > 0)) * step
    return whole.reshape(heads.shape)


def visible(rows: int, first_position: int, keys: int, *, causal: bool, window: int = 0) -> npt.NDArray[np.bool_]:
    """Which keys each row of a segment sees: (rows, keys)."""
    if not causal:
        return np.ones((rows, keys), np.bool_)
    position, key = first_position + np.arange(rows)[:, None], np.arange(keys)[None]
    seen = key <= position
    return seen & (key > position - window) if window else seen


def attend(query: Array, key: Array, value: Array, seen: npt.NDArray[np.bool_], scale: float) -> Array:
    """softmax(query . key * scale) . value over the seen keys, in the precision of the arguments.

    query: (rows, heads, head_dim); key, value: (keys, kv_heads, head_dim); heads / kv_heads queries share a kv head.
    """
    group = query.shape[1] // key.shape[1]
    out = np.empty_like(query)
    for head in range(query.shape[1]):
        scores = query[:, head] @ key[:, head // group].T * query.dtype.type(scale)
        scores = np.where(seen, scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        out[:, head] = weights / weights.sum(axis=-1, keepdims=True) @ value[:, head // group]
    return out
