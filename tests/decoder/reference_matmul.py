"""MATMUL and the packing of activations in plain numpy: the definitions that tiles are compared with."""

from __future__ import annotations

import numpy as np

from pagemill.decoder.kernels.activations import ActivationKind, Activations, new_activations
from pagemill.decoder.kernels.memory import Array


def matmul(x: Array, weights: Array, bias: Array | None = None, before: Array | None = None) -> Array:
    """x @ weights.T (+ bias) (+ before) in float64.  x: (rows, width) values of packed activations; weights: (out, width)."""
    out = x.astype(np.float64) @ weights.astype(np.float64).T
    if bias is not None:
        out += bias
    return out if before is None else out + before


def pack_activations(x: Array, kind: ActivationKind, capacity: int) -> Activations:
    """x: (rows, width) float32 packed into buffers for ``capacity`` rows, dense for its own row count."""
    rows, width = x.shape
    acts = new_activations(kind, width, capacity)
    padded = np.zeros((rows, acts.blocks * kind.block), np.float32)
    padded[:, :width] = x
    blocks = padded.reshape(rows, acts.blocks, kind.block).transpose(1, 0, 2)
    if kind.dtype != "int8":
        _fill(acts.codes, blocks if kind.dtype == "f32" else _to_bf16(blocks))
        return acts
    peak = np.abs(blocks).max(-1)
    inverse = np.divide(np.float32(127), peak, out=np.zeros_like(peak), where=peak > 0)
    codes = np.rint(blocks * inverse[..., None]).astype(np.int8)
    _fill(acts.codes, codes)
    _fill(acts.scales, peak / np.float32(127))
    _fill(acts.sums16, codes.reshape(acts.blocks, rows, -1, 32).sum(-1, dtype=np.int32))
    _fill(acts.sums32, -kind.offset * codes.reshape(acts.blocks, rows, -1, kind.sub).sum(-1, dtype=np.int32))
    return acts


def values_of(acts: Activations, rows: int) -> Array:
    """What the first ``rows`` packed rows stand for: (rows, width) float64."""
    kind = acts.kind
    count = acts.blocks * rows * kind.block
    codes = acts.codes.reshape(-1)[:count].reshape(acts.blocks, rows, kind.block)
    if kind.dtype == "bf16":
        codes = (codes.astype(np.uint32) << np.uint32(16)).view(np.float32)
    values = codes.astype(np.float64)
    if kind.dtype == "int8":
        values *= acts.scales.reshape(-1)[: acts.blocks * rows].reshape(acts.blocks, rows, 1)
    return values.transpose(1, 0, 2).reshape(rows, -1)[:, : acts.width]


def _fill(buffer: Array, values: Array) -> None:
    """Lay values out densely at the buffer's start."""
    buffer.reshape(-1)[: values.size] = values.reshape(-1)


def _to_bf16(x: Array) -> Array:
    """The upper half of float32, rounded to nearest even."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)
