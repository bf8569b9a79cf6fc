"""Scores of patches as integer products: queries and rotated keys are 8-bit, one scale for each head of each position.

Packed queries are [64 dimensions][row][64 codes], then [row][64 bytes] of which the first hold _SUM (int32, -128 * the codes'
sum: keys are stored as unsigned codes) and _SCALE (float32).
"""

from __future__ import annotations

from pagemill.decoder.kernels.tiles.attention import STEPS, Tile
from pagemill.decoder.kernels.tiles.dots import dot_bytes
from pagemill.decoder.kernels.tiles.emit import F32, I8, I32, V16F, V16I, Emitter, Value, vector

KEY_SCALE_BYTES = 4
_KEY_OFFSET = 128
_LARGEST = 127.0
_SMALLEST = 1e-30  # a head below this is zero: its reciprocal would not be finite
_SUM, _SCALE = 0, 4
_V64 = vector(I8, 64)


def emit_byte_pack(e: Emitter, row: Value, packed: Value, chunks: Value, stride: Value) -> None:
    """A head's query, chunks * 16 dimensions (chunks: even), into packed rows."""
    b = e.b
    inverse, scale = head_scale(e, row, chunks)
    total = e.variable(e.zero(V16I))
    with e.loop(chunks) as chunk:
        code = to_codes(e, row, chunk, inverse)
        e.set(total, b.add(e.get(total), code))
        quarter = e.scaled(b.and_(chunk, e.const(3)), 16)
        e.store(e.at(packed, b.mul(b.lshr(chunk, e.const(2)), stride), quarter), b.trunc(code, vector(I8)))
    record = e.at(packed, _record_offset(e, chunks, stride))
    e.store(record, b.mul(e.sum_lanes_int(e.get(total)), e.const(-_KEY_OFFSET, I32)), _SUM)
    e.store(record, scale, _SCALE)


def head_scale(e: Emitter, row: Value, chunks: Value) -> tuple[Value, Value]:
    """Lanes of codes per unit, and the float32 unit of a code, such that the head's largest value is 127."""
    b = e.b
    sizes = e.variable(e.zero(V16I))
    with e.loop(chunks) as chunk:
        e.set(sizes, e.larger(e.sizes(e.load(e.at(row, e.scaled(chunk, 64)), V16F)), e.get(sizes)))
    largest, zero = e.peak(e.get(sizes)), e.const(0.0, F32)
    some = b.fcmp_unordered(">", largest, e.const(_SMALLEST, F32))  # true of NaN, which then is the unit
    inverse = b.select(some, b.fdiv(e.const(_LARGEST, F32), largest), zero)
    return e.splat(inverse), b.select(some, b.fdiv(largest, e.const(_LARGEST, F32)), zero)


def to_codes(e: Emitter, row: Value, chunk: Value, inverse: Value) -> Value:
    """16 values of a head as int32 lanes of -127..127."""
    lanes = e.b.fmul(e.load(e.at(row, e.scaled(chunk, 64)), V16F), inverse)
    return e.b.fptosi(e.unary("rint", lanes), V16I)


def _record_offset(e: Emitter, chunks: Value, stride: Value) -> Value:
    """Bytes from the codes of the first 64 dimensions to what follows the last."""
    return e.b.mul(e.b.lshr(e.b.add(chunks, e.const(3)), e.const(2)), stride)


def emit_byte_scores(
    tile: Tile, e: Emitter, keys: Value, queries: Value, scores: Value, groups: Value, chunks: Value, query_stride: Value,
    stride: Value,
) -> None:  # fmt: skip
    """scores[16 keys][row] = keys . queries, for ``groups`` groups of ``vectors`` cache tiles of 16 keys.

    query_stride: bytes of 64 dimensions of the block's queries.  stride: bytes of a chunk of scores.
    """
    b = e.b
    codes_bytes = e.scaled(chunks, 256)
    tile_bytes = e.at(codes_bytes, 16 * KEY_SCALE_BYTES)
    records = e.at(queries, _record_offset(e, chunks, query_stride))
    with e.loop(groups) as group:
        first = e.at(keys, b.mul(group, e.scaled(tile_bytes, tile.vectors)))
        streams = [e.at(first, e.scaled(tile_bytes, v)) for v in range(tile.vectors)]
        sums = [[e.variable(e.zero(V16I)) for _ in range(tile.rows)] for _ in streams]
        for rows in sums:
            for n, slot in enumerate(rows):
                e.set(slot, e.load_splat(records, I32, 64 * n + _SUM))
        with e.loop(b.lshr(chunks, e.const(1))) as run:
            factors = e.at(queries, b.mul(b.lshr(run, e.const(1)), query_stride), e.scaled(b.and_(run, e.const(1)), 32))
            at = e.scaled(run, 64 * STEPS)
            for j in range(STEPS):
                codes = [e.load(e.at(stream, at), _V64, 64 * j) for stream in streams]
                for n in range(tile.rows):
                    factor = e.bits(e.load_splat(factors, I32, 64 * n + 4 * j), _V64)
                    for code, rows in zip(codes, sums, strict=True):
                        e.set(rows[n], dot_bytes(e, e.get(rows[n]), code, factor))
        target = e.at(scores, b.mul(group, e.scaled(stride, tile.vectors)))
        for v, (stream, rows) in enumerate(zip(streams, sums, strict=True)):
            unit = e.load(e.at(stream, codes_bytes), V16F)
            for n, slot in enumerate(rows):
                both = b.fmul(unit, e.load_splat(records, F32, 64 * n + _SCALE))
                e.store(e.at(target, e.scaled(stride, v)), b.fmul(b.sitofp(e.get(slot), V16F), both), 64 * n)
