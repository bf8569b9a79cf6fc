"""Weights in the order in which the matrix-product tiles read them.

A matrix is cut into row groups, one after the other; the last is padded with rows of zeros.  A group is one sequential stream.

Quantized formats: groups of 16 rows, each a run of tiles: one block of 256 k (K-quants, Q8_256) or two blocks of 32 a tile::

    tile    codes       per 32 k: ``bits`` vectors of 64 bytes; all that belongs to lane r (row r) is at 4 r .. 4 r + 3
            sub-scales  K-quants: uint8 (8, 16 rows), Q6_K int8 (16, 16 rows)
            sub-minima  Q4_K, Q5_K: uint8 (4, 16 rows, 2): sub-blocks 2 i and 2 i + 1 side by side
            d           float16 (blocks, 16 rows)
            m or dmin   float16 (blocks, 16 rows)
            padding to 64 bytes

    The codes of 32 k are eight vectors v0 .. v7 of (16 rows, 4 k) bytes, stored in planes:
        8 bits   v0 .. v7
        4 bits   four vectors: v(j) in the low, v(j + 4) in the high nibbles
        5 bits   low four bits as above, then one vector: bit j of a byte is the fifth bit of v(j)
        6 bits   low four bits as above, then two vectors: bits 2 i, 2 i + 1 of vector h are the upper bits of v(4 h + i)

    The size is the file's, but for padding: Q4_K + 2.8 %, Q5_K + 2.3 %, Q6_K + 1 %.

Unquantized formats: groups of 32 rows: F32, F16 (k, 32 rows); BF16 (k / 2, 32 rows, 2 k); k padded to 32 with zeros.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pagemill.decoder.formats import PACKED, BlockCodes, QuantFormat
from pagemill.decoder.kernels.layouts import LAYOUTS, CodeLayout, FloatLayout, Layout
from pagemill.decoder.kernels.memory import Array, aligned

CHUNK_BYTES = 1 << 20  # raw bytes repacked at a time: what unpacking makes of them stays in the cache


@dataclass(frozen=True, slots=True)
class Panels:
    """A matrix of ``rows`` x ``width`` weights; data: (groups, group bytes) uint8, 64-byte aligned."""

    format: str
    rows: int
    width: int
    data: Array

    @property
    def layout(self) -> Layout:
        """Sizes and offsets inside a group."""
        return LAYOUTS[self.format]

    @property
    def groups(self) -> int:
        """Row groups."""
        return len(self.data)

    @property
    def group_bytes(self) -> int:
        """Bytes from one group to the next."""
        return int(self.data.shape[1])


def repack(raw: Array, format: str) -> Panels:
    """Panels of raw: (rows, row bytes) uint8 as in the file, which is only read.

    Raises ValueError when a row is not a whole number of the format's blocks.
    """
    weights, layout = PACKED[format], LAYOUTS[format]
    rows, row_bytes = raw.shape
    if row_bytes % weights.block_bytes or not row_bytes:
        raise ValueError(f"rows of {format} are multiples of {weights.block_bytes} bytes, found {row_bytes}")
    width = row_bytes // weights.block_bytes * weights.block
    groups = -(-rows // layout.group_rows)
    data = aligned((groups, layout.group_bytes(width)), np.uint8)
    step = max(1, CHUNK_BYTES // (row_bytes * layout.group_rows))
    for first in range(0, groups, step):
        part = data[first : first + step]
        chunk = _whole_groups(raw[first * layout.group_rows :][: len(part) * layout.group_rows], len(part) * layout.group_rows)
        if isinstance(layout, CodeLayout):
            assert isinstance(weights, QuantFormat)
            _pack_codes(weights.codes(chunk), layout, part)
        else:
            _pack_floats(chunk, layout, part)
    return Panels(format, rows, width, data)


def unpack(panels: Panels) -> Array:
    """The weights: (rows, width) float32, equal to the format's dequantize to the bit.  For tests and small matrices."""
    layout = panels.layout
    if isinstance(layout, CodeLayout):
        return _unpack_codes(panels, layout).values()[: panels.rows]
    raw = _unpack_floats(panels, layout)
    return PACKED[panels.format].dequantize(raw)[: panels.rows]


def _whole_groups(raw: Array, rows: int) -> Array:
    """raw with rows of zero bytes appended: weights of zero in every format."""
    if len(raw) == rows:
        return raw
    whole = np.zeros((rows, raw.shape[1]), np.uint8)
    whole[: len(raw)] = raw
    return whole


def _pack_codes(view: BlockCodes, layout: CodeLayout, out: Array) -> None:
    groups, tiles = len(out), out.shape[1] // layout.tile_bytes
    out = out.reshape(groups, tiles, layout.tile_bytes)
    codes = _tiled(view.codes, groups, tiles, layout.tile_width)
    runs = codes.view(np.uint32).reshape(groups, 16, tiles, layout.subs, 8)
    vectors = np.ascontiguousarray(runs.transpose(0, 2, 3, 4, 1)).view(np.uint64)  # (groups, tiles, subs, v, 8 x 8 bytes)
    planes = out[..., : layout.scales_at].reshape(groups, tiles, layout.subs, layout.bits, 64)
    _pack_planes(vectors, layout.bits, planes.view(np.uint64))
    if view.sub_scales is not None:
        scales = view.sub_scales.view(np.uint8).reshape(groups, 16, tiles, -1).transpose(0, 2, 3, 1)
        out[..., layout.scales_at : layout.minima_at] = scales.reshape(groups, tiles, -1)
    if view.sub_mins is not None:
        minima = view.sub_mins.reshape(groups, 16, tiles, 4, 2).transpose(0, 2, 3, 1, 4)
        out[..., layout.minima_at : layout.d_at] = minima.reshape(groups, tiles, -1)
    out[..., layout.d_at : layout.m_at] = _pack_halves(view.d, groups, tiles, layout)
    minimum = view.dmin if layout.is_super else view.m
    end = layout.m_at
    if minimum is not None:
        end += layout.m_at - layout.d_at
        out[..., layout.m_at : end] = _pack_halves(minimum, groups, tiles, layout)
    out[..., end:] = 0


def _tiled(values: Array, groups: int, tiles: int, per_tile: int) -> Array:
    """values: (rows, n), n padded with zeros to whole tiles."""
    missing = tiles * per_tile - values.shape[1]
    return np.pad(values, ((0, 0), (0, missing))) if missing else np.ascontiguousarray(values)


def _pack_planes(vectors: Array, bits: int, out: Array) -> None:
    """vectors: (..., 8, 8) uint64, whose bytes are codes; out: (..., bits, 8) uint64.  No shift crosses a byte."""
    if bits == 8:
        out[...] = vectors
        return
    low = vectors & np.uint64(0x0F0F0F0F0F0F0F0F) if bits > 4 else vectors
    out[..., :4, :] = low[..., :4, :] | (low[..., 4:, :] << np.uint64(4))
    if bits == 5:
        fifth = (vectors >> np.uint64(4)) & np.uint64(0x0101010101010101)
        fifth <<= np.arange(8, dtype=np.uint64)[:, None]
        out[..., 4, :] = np.bitwise_or.reduce(fifth, axis=-2)
    if bits == 6:
        upper = ((vectors >> np.uint64(4)) & np.uint64(0x0303030303030303)).reshape(*vectors.shape[:-2], 2, 4, 8)
        upper <<= np.arange(0, 8, 2, dtype=np.uint64)[:, None]
        out[..., 4:, :] = np.bitwise_or.reduce(upper, axis=-2)


def _pack_halves(values: Array, groups: int, tiles: int, layout: CodeLayout) -> Array:
    """values: (rows, blocks) float32 that are float16 exactly -> (groups, tiles, bytes)."""
    per_tile = layout.tile_width // layout.block
    with np.errstate(invalid="ignore"):  # a signalling NaN
        half = _tiled(values, groups, tiles, per_tile).astype("<f2")
    half = np.ascontiguousarray(half.reshape(groups, 16, tiles, per_tile).transpose(0, 2, 3, 1))
    return half.reshape(groups, tiles, -1).view(np.uint8)


def _pack_floats(chunk: Array, layout: FloatLayout, out: Array) -> None:
    groups, lanes = len(out), layout.group_rows
    unit = np.dtype(np.uint32) if layout.pairs or layout.item_bytes == 4 else np.dtype(np.uint16)
    row_bytes = out.shape[1] // lanes
    if chunk.shape[1] < row_bytes:
        chunk = np.pad(chunk, ((0, 0), (0, row_bytes - chunk.shape[1])))
    values = np.ascontiguousarray(chunk).view(unit).reshape(groups, lanes, -1)
    out.view(unit).reshape(groups, -1, lanes)[...] = values.transpose(0, 2, 1)


def _unpack_floats(panels: Panels, layout: FloatLayout) -> Array:
    unit = np.dtype(np.uint32) if layout.pairs or layout.item_bytes == 4 else np.dtype(np.uint16)
    values = panels.data.view(unit).reshape(panels.groups, -1, layout.group_rows).transpose(0, 2, 1)
    rows = np.ascontiguousarray(values).reshape(panels.groups * layout.group_rows, -1).view(np.uint8)
    return rows[:, : panels.width * layout.item_bytes]


def _unpack_codes(panels: Panels, layout: CodeLayout) -> BlockCodes:
    groups = panels.groups
    tiles = panels.group_bytes // layout.tile_bytes
    data = panels.data.reshape(groups, tiles, layout.tile_bytes)
    rows, blocks = 16 * groups, panels.width // layout.block

    def halves(start: int) -> Array:
        part = np.ascontiguousarray(data[..., start : start + layout.m_at - layout.d_at]).view("<f2")
        lines = part.reshape(groups, tiles, -1, 16).transpose(0, 3, 1, 2)
        return lines.reshape(rows, -1)[:, :blocks].astype(np.float32)

    planes = np.ascontiguousarray(data[..., : layout.scales_at]).reshape(groups, tiles, layout.subs, layout.bits, 64)
    vectors = _unpack_planes(planes, layout.bits).view(np.uint32).transpose(0, 4, 1, 2, 3)  # (groups, 16, tiles, subs, v)
    codes = np.ascontiguousarray(vectors).reshape(rows, -1).view(np.uint8)[:, : panels.width]
    view = BlockCodes(
        codes, layout.bits, layout.offset, layout.block, layout.sub_block, halves(layout.d_at), codebook=layout.codebook
    )
    minimum = halves(layout.m_at) if layout.has_minima else None
    if not layout.is_super:
        return replace(view, m=minimum)
    scales = data[..., layout.scales_at : layout.minima_at].reshape(groups, tiles, -1, 16).transpose(0, 3, 1, 2)
    per_block = scales.reshape(rows, blocks, -1)
    view = replace(view, sub_scales=per_block.view(np.int8) if layout.sub_block == 16 else per_block)
    if minimum is None:
        return view
    minima = data[..., layout.minima_at : layout.d_at].reshape(groups, tiles, 4, 16, 2).transpose(0, 3, 1, 2, 4)
    return replace(view, dmin=minimum, sub_mins=minima.reshape(rows, blocks, -1))


def _unpack_planes(planes: Array, bits: int) -> Array:
    """planes: (..., bits, 64) uint8 -> codes (..., 8, 64)."""
    if bits == 8:
        return planes
    low = planes[..., :4, :]
    codes = np.concatenate([low & np.uint8(15), low >> np.uint8(4)], axis=-2)
    if bits == 5:
        codes |= ((planes[..., 4:, :] >> np.arange(8, dtype=np.uint8)[:, None]) & np.uint8(1)) << np.uint8(4)
    if bits == 6:
        upper = planes[..., 4:, None, :] >> np.arange(0, 8, 2, dtype=np.uint8)[:, None]
        codes |= (upper & np.uint8(3)).reshape(codes.shape) << np.uint8(4)
    return codes
