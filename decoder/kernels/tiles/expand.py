"""A block of the cache as the flash tiles read it: float32, or interleaved bf16 pairs.

Keys become [tile of 16][head_dim / pair][16][pair], values [key / pair][head_dim][pair]; pair is 2 in bf16.  A last odd value
row has whatever was in memory as its partner: the product over values leaves it out.
"""

from __future__ import annotations

from pagemill.decoder.kernels.tiles.emit import F16, V16F, V16I, Emitter, Value, vector
from pagemill.decoder.kernels.tiles.softmax import FlashPrecision, two_to_bf16
from pagemill.decoder.network.kv_codec import BLOCK_POSITIONS, SCALE_VALUES, VALUES_BYTES

_TO_SIGNED = 0x80808080 - (1 << 32)
_INTERLEAVED = [lane for i in range(16) for lane in (i, i + 16)]


def emit_expand_keys(
    stored: str, precision: FlashPrecision, e: Emitter, source: Value, target: Value, tiles: Value, chunks: Value
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
        index = e.b.add(e.b.mul(tile, blocks), block)
        out = e.at(target, e.scaled(index, SCALE_VALUES // 2 * pair_bytes))
        for quad in range(SCALE_VALUES // 4):
            found = e.load(e.at(codes, e.scaled(block, 16 * SCALE_VALUES)), V16I, 64 * quad)
            lanes = [e.b.fmul(x, scale) for x in _four(e, e.b.xor(found, e.const(_TO_SIGNED, V16I)))]
            for i in range(2):
                _store(e, precision, e.at(out, pair_bytes * (2 * quad + i)), e.const(64), lanes[2 * i : 2 * i + 2])


def emit_expand_values(
    stored: str, precision: FlashPrecision, e: Emitter, source: Value, target: Value, pairs: Value, chunks: Value
) -> None:
    """Pairs of value rows."""
    out_row = e.scaled(chunks, 64)
    out_pair = out_row if precision == "bf16" else e.scaled(out_row, 2)
    if stored == "q8_0":
        with e.loop(e.b.lshr(e.b.add(pairs, e.const(1)), e.const(1))) as quad, e.loop(chunks) as chunk:
            scales = e.at(source, e.b.mul(e.b.lshr(chunk, e.const(1)), e.const(VALUES_BYTES)))
            codes = e.at(scales, e.scaled(quad, 128), e.scaled(e.b.and_(chunk, e.const(1)), 64), 2 * BLOCK_POSITIONS)
            scale = e.at(scales, e.scaled(quad, 8))
            rows = [e.b.fmul(x, _splat_f16(e, scale, 2 * i)) for i, x in enumerate(_four(e, e.load(codes, V16I)))]
            for i in range(2):
                out = e.at(target, e.b.mul(e.b.add(e.scaled(quad, 2), e.const(i)), out_pair), e.scaled(chunk, 64))
                _store(e, precision, out, out_row, rows[2 * i : 2 * i + 2])
        return
    value_bytes = 4 if stored == "f32" else 2
    row = e.scaled(chunks, 16 * value_bytes)
    with e.loop(pairs) as pair, e.loop(chunks) as chunk:
        at = e.at(source, e.b.mul(e.scaled(pair, 2), row), e.scaled(chunk, 16 * value_bytes))
        rows = [_floats(e, stored, at, 0), _floats(e, stored, e.at(at, row), 0)]
        _store(e, precision, e.at(target, e.b.mul(pair, out_pair), e.scaled(chunk, 64)), out_row, rows)


def _four(e: Emitter, codes: Value) -> list[Value]:
    """The four signed bytes of each int32 lane as float32 lanes."""
    raised = [e.b.shl(codes, e.const(24 - 8 * i, V16I)) for i in range(4)]
    return [e.b.sitofp(e.b.ashr(x, e.const(24, V16I)), V16F) for x in raised]


def _splat_f16(e: Emitter, address: Value, offset: int) -> Value:
    return e.b.fpext(e.load_splat(address, F16, offset), V16F)


def _floats(e: Emitter, stored: str, address: Value, offset: int) -> Value:
    if stored == "f32":
        return e.load(address, V16F, offset)
    return e.b.fpext(e.load(address, vector(F16), offset), V16F)


def _store(e: Emitter, precision: FlashPrecision, target: Value, second: Value, pair: list[Value]) -> None:
    """Both vectors, ``second`` bytes apart in float32, interleaved in bf16."""
    if precision == "bf16":
        halves = two_to_bf16(e, pair[0], pair[1])
        e.store(target, e.shuffle(halves, halves, _INTERLEAVED))
        return
    e.store(target, pair[0])
    e.store(e.at(target, second), pair[1])
