"""The encoder and its projector in plain float32 numpy: the definition that backends are compared with.

Slow, single-minded and independent of the kernels.  Numerics are the reference implementation's: root-mean-square norms,
SiLU gate, exact (erf) GELU, the text model's eps in the projector's norm.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import erf

import numpy as np
from numpy.typing import NDArray

from pagemill.decoder import GLOBAL, Role
from pagemill.vision.errors import BadPixels, BrokenRows
from pagemill.vision.patches import Patches
from pagemill.vision.plan import Key
from pagemill.vision.positions import rope_tables
from pagemill.vision.spec import VisionRole, VisionSpec

Array = NDArray[np.float32]
QUERY_ROWS = 512  # queries at a time, so that scores stay heads x 512 x patches


class ReferenceEncoder:
    """Encoder in numpy.  weights: by role and layer, as ``StoredWeights.all`` gives them."""

    shares_cores = True

    def __init__(self, spec: VisionSpec, weights: Mapping[Key, Array]) -> None:
        self.spec = spec
        self._weights = weights

    def encode(self, patches: Patches) -> Array:
        """One page's embedding rows: (blocks, out_width) float32, in reading order."""
        check_patches(patches, self.spec)
        rows = patches.rows @ self._weights[VisionRole.PATCH_EMBEDDING, GLOBAL].T
        rows = rms_norm(rows, self._weights[VisionRole.PRE_NORM, GLOBAL], self.spec.eps)
        tables = rope_tables(patches.grid, self.spec)
        for layer in range(self.spec.layers):
            rows = rows + self._attention(layer, rows, tables)
            rows = rows + self._feed_forward(layer, rows)
        return checked_rows(self._project(rows, patches.grid.blocks(self.spec.merge)))

    def close(self) -> None:
        """Nothing to release."""

    def _attention(self, layer: int, rows: Array, tables: tuple[Array, Array]) -> Array:
        spec, weights = self.spec, self._weights
        normed = rms_norm(rows, weights[Role.ATTN_NORM, layer], spec.eps)
        shape = (len(rows), spec.heads, spec.head_dim)
        query = rotate((normed @ weights[Role.ATTN_Q, layer].T).reshape(shape), tables, spec)
        key = rotate((normed @ weights[Role.ATTN_K, layer].T).reshape(shape), tables, spec)
        value = (normed @ weights[Role.ATTN_V, layer].T).reshape(shape)
        return attend(query, key, value).reshape(len(rows), spec.width) @ weights[Role.ATTN_OUTPUT, layer].T

    def _feed_forward(self, layer: int, rows: Array) -> Array:
        normed = rms_norm(rows, self._weights[Role.FFN_NORM, layer], self.spec.eps)
        gate = normed @ self._weights[Role.FFN_GATE, layer].T
        up = normed @ self._weights[Role.FFN_UP, layer].T
        return (silu(gate) * up) @ self._weights[Role.FFN_DOWN, layer].T

    def _project(self, rows: Array, blocks: int) -> Array:
        spec, weights = self.spec, self._weights
        normed = rms_norm(rows, weights[VisionRole.PROJECTOR_NORM, GLOBAL], spec.projector_eps)
        merged = normed[: blocks * spec.merge**2].reshape(blocks, -1)  # block order: no gather
        joined = merged @ weights[VisionRole.PROJECTOR_MERGE, GLOBAL].T
        hidden: Array = np.matmul(joined, weights[VisionRole.PROJECTOR_IN, GLOBAL].T)
        return gelu(hidden) @ weights[VisionRole.PROJECTOR_OUT, GLOBAL].T


def checked_rows(rows: Array) -> Array:
    """The rows of a page; raises BrokenRows where one is not finite."""
    if not np.isfinite(rows).all():
        raise BrokenRows("the encoder's rows hold NaN or infinity: its weights do not suit this page, or are damaged")
    return rows


def check_patches(patches: Patches, spec: VisionSpec) -> None:
    """BadPixels unless the patches have the encoder's shape and at least one whole block."""
    expected = (patches.grid.patches, spec.patch_width)
    if patches.rows.shape != expected:
        raise BadPixels(f"expected patch rows of shape {expected}, found {patches.rows.shape}")
    if patches.grid.blocks(spec.merge) == 0:
        raise BadPixels(f"expected at least {spec.merge} x {spec.merge} patches, found {patches.grid}")


def rms_norm(rows: Array, weight: Array, eps: float) -> Array:
    """rows / sqrt(mean square + eps) * weight."""
    mean_square = np.mean(np.square(rows), axis=-1, keepdims=True)
    normed: Array = rows / np.sqrt(mean_square + np.float32(eps)) * weight
    return normed


def rotate(heads: Array, tables: tuple[Array, Array], spec: VisionSpec) -> Array:
    """Turn each pair of a (patches, heads, head_dim) array by its patch's angles."""
    cos, sin = (table[:, None, :] for table in tables)  # (patches, 1, head_dim / 2)
    out = np.empty_like(heads)
    adjacent, half = spec.rope_pairing == "adjacent", spec.head_dim // 2
    first = np.s_[..., 0::2] if adjacent else np.s_[..., :half]
    second = np.s_[..., 1::2] if adjacent else np.s_[..., half:]
    out[first] = heads[first] * cos - heads[second] * sin
    out[second] = heads[second] * cos + heads[first] * sin
    return out


def attend(query: Array, key: Array, value: Array) -> Array:
    """Full attention of (patches, heads, head_dim) arrays, a block of queries at a time."""
    scale = np.float32(query.shape[-1] ** -0.5)
    keys, values = key.transpose(1, 2, 0), value.transpose(1, 0, 2)
    out = np.empty_like(query)
    for start in range(0, len(query), QUERY_ROWS):
        block = slice(start, start + QUERY_ROWS)
        scores = query[block].transpose(1, 0, 2) @ keys * scale  # (heads, QUERY_ROWS, patches)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        out[block] = (weights @ values).transpose(1, 0, 2)
    return out


def silu(x: Array) -> Array:
    """x * sigmoid(x), without overflow for large negative x."""
    half = x * np.float32(0.5)
    gated: Array = half * (np.tanh(half) + np.float32(1))
    return gated


def gelu(x: Array) -> Array:
    """The exact GELU: x times the normal distribution's cumulative function, in float64 and rounded once."""
    wide = x.astype(np.float64)
    erfs = np.fromiter((erf(value) for value in (wide * 0.5**0.5).flat), np.float64, wide.size)
    return (wide * 0.5 * (1.0 + erfs.reshape(wide.shape))).astype(np.float32)
