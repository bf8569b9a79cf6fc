"""PREPARE in plain numpy: the definition that ``tiles_rows`` is compared with."""

from __future__ import annotations

import math

import numpy as np

from pagemill.decoder.kernels.memory import Array

_erf = np.vectorize(math.erf, otypes=[np.float64])


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    """x / sqrt(mean(x^2) + eps) * weight; x: (rows, width)."""
    x64 = x.astype(np.float64)
    return x64 / np.sqrt((x64**2).mean(-1, keepdims=True) + eps) * weight  # type: ignore[no-any-return]


def layer_norm(x: Array, weight: Array, bias: Array, eps: float) -> Array:
    """(x - mean) / sqrt(variance + eps) * weight + bias; x: (rows, width)."""
    x64 = x.astype(np.float64)
    centred = x64 - x64.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * weight + bias  # type: ignore[no-any-return]


def activate(name: str, x: Array) -> Array:
    """silu, gelu_tanh or gelu_erf in float64."""
    x64 = x.astype(np.float64)
    if name == "silu":
        return x64 / (1 + np.exp(-x64))  # type: ignore[no-any-return]
    if name == "gelu_tanh":
        return x64 / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x64 + 0.044715 * x64**3)))  # type: ignore[no-any-return]
    return x64 / 2 * (1 + _erf(x64 / math.sqrt(2)))  # type: ignore[no-any-return]
