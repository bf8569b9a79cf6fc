"""A block of the cache as the flash tiles read it: float32, or interleaved bf16 pairs.

Keys become [tile of 16][head_dim / pair][16][pair], values [key / pair][head_dim][pair]; pair is 2 in bf16.  A last odd value row has
whatever was in memory as its partner: the product over values leaves it out.
"""

from __future__ import annotations

from decoder.kernels.emit import F16, V16F, Emitter, Value, vector
from decoder.kernels.tiles_coded import codes_to_floats
from decoder.kernels.tiles_softmax import Precision, two_to_bf16
from decoder.kv_codec import BLOCK_POSITIONS, SCALE_VALUES

_INTERLEAVED = [lane for i in range(16) for lane in (i, i + 16)]


def emit_expand_keys(
    stored: str, precision: Precision, e: Emitter, source: Value, target: Value, tiles: Value, chunks: Value
) -> None:
    """Whole tiles of 16 keys.  chunks: head_dim / 16."""
    pair_bytes = 64 if precision == "bf16" else 128
    if stored != "q8_0":
        value_bytes = 4 if stored == "f32" else 2
        with e.loop(e.b.mul(tiles, e.scaled(chunks, 8))) as index:
            at = e.at(source, e.scaled(index, 32 * value_bytes))
            pair = [_floats(e, stored, at, 16 * value_bytes * i) for i in range(2)]
            _store(e, precision, e.at(target, e.scaled(index, pair_bytes)), e.const(64), pair)
        return
    blocks = e.b.lshr(chunks, e.const(1))
    with e.loop(tiles) as tile, e.loop(blocks) as block:
        codes = e.at(source, e.b.mul(tile, e.scaled(chunks, 16 * 17)))
        scale = e.b.fpext(e.load(e.at(codes, e.scaled(chunks, 256), e.scaled(block, 32)), vector(F16)), V16F)
        at = e.at(codes, e.scaled(block, 16 * SCALE_VALUES))
        index = e.b.add(e.b.mul(tile, blocks), block)
        out = e.at(target, e.scaled(index, SCALE_VALUES // 2 * pair_bytes))
        for i in range(SCALE_VALUES // 2):
            pair = [e.b.fmul(codes_to_floats(e, at, 16 * (2 * i + j)), scale) for j in range(2)]
            _store(e, precision, e.at(out, pair_bytes * i), e.const(64), pair)


def emit_expand_values(
    stored: str, precision: Precision, e: Emitter, source: Value, target: Value, pairs: Value, chunks: Value
) -> None:
    """Pairs of value rows."""
    value_bytes = {"f32": 4, "f16": 2, "q8_0": 1}[stored]
    row, out_row = e.scaled(chunks, 16 * value_bytes), e.scaled(chunks, 64)
    out_pair = out_row if precision == "bf16" else e.scaled(out_row, 2)
    with e.loop(pairs) as pair, e.loop(chunks) as chunk:
        at = e.at(source, e.b.mul(e.scaled(pair, 2), row), e.scaled(chunk, 16 * value_bytes))
        if stored == "q8_0":
            scales = e.at(source, e.b.mul(row, e.const(BLOCK_POSITIONS)), e.scaled(pair, 4))
            scale = e.at(scales, e.scaled(e.b.lshr(chunk, e.const(1)), 2 * BLOCK_POSITIONS))
            rows = [e.b.fmul(codes_to_floats(e, e.at(at, row) if i else at, 0), _splat_f16(e, scale, 2 * i)) for i in range(2)]
        else:
            rows = [_floats(e, stored, at, 0), _floats(e, stored, e.at(at, row), 0)]
        _store(e, precision, e.at(target, e.b.mul(pair, out_pair), e.scaled(chunk, 64)), out_row, rows)


def _splat_f16(e: Emitter, address: Value, offset: int) -> Value:
    return e.b.fpext(e.load_splat(address, F16, offset), V16F)


def _floats(e: Emitter, stored: str, address: Value, offset: int) -> Value:
    if stored == "f32":
        return e.load(address, V16F, offset)
    return e.b.fpext(e.load(address, vector(F16), offset), V16F)


def _store(e: Emitter, precision: Precision, target: Value, second: Value, pair: list[Value]) -> None:
    """Both vectors, ``second`` bytes apart in float32, interleaved in bf16."""
    if precision == "bf16":
        halves = two_to_bf16(e, pair[0], pair[1])
        e.store(target, e.shuffle(halves, halves, _INTERLEAVED))
        return
    e.store(target, pair[0])
    e.store(e.at(target, second), pair[1])
