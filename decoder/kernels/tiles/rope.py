"""What happens to a head between its projection and the cache, as IR: norm, rope, rotation, and one store per codec.

All work on one head (or one head's 256-position block of the cache) at a time, in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from pagemill.decoder.kernels.tiles.bytes import KEY_SCALE_BYTES, head_scale, to_codes
from pagemill.decoder.kernels.tiles.emit import F16, F32, I8, I16, I32, V16F, V16I, Emitter, Value, vector
from pagemill.decoder.kernels.tiles.softmax import to_bf16
from pagemill.decoder.network.kv_codec import BLOCK_POSITIONS, VALUES_BYTES

LARGEST_F16 = 65504.0


def emit_head_norm(e: Emitter, row: Value, weight: Value, chunks: Value, eps: Value) -> None:
    """row *= weight / sqrt(mean square + eps).  chunks: head_dim / 16.  eps: address of a float32."""
    b = e.b
    squares = e.variable(e.zero(V16F))
    with e.loop(chunks) as chunk:
        x = e.load(e.at(row, e.scaled(chunk, 64)), V16F)
        e.set(squares, e.fma(x, x, e.get(squares)))
    count = b.sitofp(b.shl(chunks, e.const(4)), F32)
    mean = b.fdiv(e.sum_lanes(e.get(squares)), count)
    inverse = e.splat(b.fdiv(e.const(1.0, F32), e.unary("sqrt", b.fadd(mean, e.load(eps, F32)))))
    with e.loop(chunks) as chunk:
        at = e.scaled(chunk, 64)
        x = b.fmul(e.load(e.at(row, at), V16F), inverse)
        e.store(e.at(row, at), b.fmul(x, e.load(e.at(weight, at), V16F)))


def emit_rope(
    pairing: Literal["adjacent", "halves"],
    lanes: int,
    e: Emitter,
    row: Value,
    cos: Value,
    sin: Value,
    runs: Value,
    half_bytes: Value,
) -> None:
    """Rotate runs * lanes pairs.  half_bytes: from a pair's first to its second where they are halves."""
    b, kind, wide = e.b, vector(F32, lanes), vector(F32, 2 * lanes)
    with e.loop(runs) as run:
        at = e.scaled(run, 4 * lanes)
        c, s = e.load(e.at(cos, at), kind), e.load(e.at(sin, at), kind)
        if pairing == "halves":
            first, second = e.at(row, at), e.at(row, at, half_bytes)
            x, y = e.load(first, kind), e.load(second, kind)
        else:
            first = e.at(row, e.scaled(run, 8 * lanes))
            both = e.load(first, wide)
            x, y = e.shuffle(both, both, range(0, 2 * lanes, 2)), e.shuffle(both, both, range(1, 2 * lanes, 2))
        rotated = b.fsub(b.fmul(x, c), b.fmul(y, s)), b.fadd(b.fmul(x, s), b.fmul(y, c))
        if pairing == "halves":
            e.store(first, rotated[0])
            e.store(second, rotated[1])
        else:
            e.store(first, e.shuffle(*rotated, [lane for pair in range(lanes) for lane in (pair, pair + lanes)]))


def emit_rotate(size: int, e: Emitter, row: Value, blocks: Value) -> None:
    """Multiply each block of ``size`` values (64 * 2^i) by the normalised Hadamard matrix, which is its own inverse."""
    b, count = e.b, size // 16
    with e.loop(blocks) as block:
        at = e.at(row, e.scaled(block, 4 * size))
        scale = e.const(size**-0.5, V16F)
        lanes = [b.fmul(e.load(at, V16F, 64 * i), scale) for i in range(count)]
        for stride in (1, 2, 4, 8):
            lanes = [_butterfly(e, x, stride) for x in lanes]
        stride = 1
        while stride < count:
            pairs = {i: (lanes[i & ~stride], lanes[i | stride]) for i in range(count)}
            lanes = [b.fsub(*pairs[i]) if i & stride else b.fadd(*pairs[i]) for i in range(count)]
            stride *= 2
        for i, x in enumerate(lanes):
            e.store(at, x, 64 * i)


def _butterfly(e: Emitter, x: Value, stride: int) -> Value:
    """Sums and differences of lanes ``stride`` apart."""
    low = e.shuffle(x, x, [lane & ~stride for lane in range(16)])
    high = e.shuffle(x, x, [lane | stride for lane in range(16)])
    sums, differences = e.b.fadd(low, high), e.b.fsub(low, high)
    return e.shuffle(sums, differences, [lane + (16 if lane & stride else 0) for lane in range(16)])


def _to_f16(e: Emitter, x: Value) -> Value:
    """To nearest even; numbers that float16 cannot hold become its largest one.  Infinity and NaN stay what they are."""
    b = e.b
    is_number = b.icmp_signed("<", e.sizes(x), e.const(0x7F800000, V16I))
    for sign, bound in ((">", LARGEST_F16), ("<", -LARGEST_F16)):
        is_larger = b.and_(b.fcmp_ordered(sign, x, e.const(bound, V16F)), is_number)
        x = b.select(is_larger, e.const(bound, V16F), x)
    return b.fptrunc(x, vector(F16))


def _scatter(e: Emitter, lanes: Value, target: Value, stride: int) -> None:
    for lane in range(lanes.type.count):
        e.store(target, e.b.extract_element(lanes, e.const(lane, I32)), lane * stride)


def _float_keys(e: Emitter, row: Value, block: Value, position: Value, chunks: Value, value_bytes: int) -> None:
    tile = e.at(block, e.b.mul(e.b.lshr(position, e.const(4)), e.scaled(chunks, 256 * value_bytes)))
    column = e.at(tile, e.scaled(e.b.and_(position, e.const(15)), value_bytes))
    with e.loop(chunks) as chunk:
        x = e.load(e.at(row, e.scaled(chunk, 64)), V16F)
        _scatter(
            e, x if value_bytes == 4 else _to_f16(e, x), e.at(column, e.scaled(chunk, 256 * value_bytes)), 16 * value_bytes
        )


def _float_values(e: Emitter, row: Value, block: Value, position: Value, chunks: Value, value_bytes: int) -> None:
    target = e.at(block, e.b.mul(position, e.scaled(chunks, 16 * value_bytes)))
    with e.loop(chunks) as chunk:
        x = e.load(e.at(row, e.scaled(chunk, 64)), V16F)
        e.store(e.at(target, e.scaled(chunk, 16 * value_bytes)), x if value_bytes == 4 else _to_f16(e, x))


def _bf16_keys(e: Emitter, row: Value, block: Value, position: Value, chunks: Value) -> None:
    b = e.b
    tile = e.at(block, b.mul(b.lshr(position, e.const(4)), e.scaled(chunks, 512)))
    column = e.at(tile, e.scaled(b.and_(position, e.const(15)), 4))
    with e.loop(chunks) as chunk:
        codes = b.trunc(to_bf16(e, e.load(e.at(row, e.scaled(chunk, 64)), V16F)), vector(I16))
        _scatter(e, e.bits(codes, vector(I32, 8)), e.at(column, e.scaled(chunk, 512)), 64)


def _byte_keys(e: Emitter, row: Value, block: Value, position: Value, chunks: Value) -> None:
    b = e.b
    inverse, scale = head_scale(e, row, chunks)
    tile_bytes = e.at(e.scaled(chunks, 256), 16 * KEY_SCALE_BYTES)
    tile = e.at(block, b.mul(b.lshr(position, e.const(4)), tile_bytes))
    column = e.at(tile, e.scaled(b.and_(position, e.const(15)), 4))
    with e.loop(chunks) as chunk:
        codes = b.xor(b.trunc(to_codes(e, row, chunk, inverse), vector(I8)), e.const(-128, vector(I8)))
        _scatter(e, e.bits(codes, vector(I32, 4)), e.at(column, e.scaled(chunk, 256)), 64)
    e.store(e.at(column, e.scaled(chunks, 256)), scale)


def _bf16_values(e: Emitter, row: Value, block: Value, position: Value, chunks: Value) -> None:
    b = e.b
    target = e.at(block, b.mul(b.lshr(position, e.const(1)), e.scaled(chunks, 64)), e.scaled(b.and_(position, e.const(1)), 2))
    with e.loop(chunks) as chunk:
        codes = b.trunc(to_bf16(e, e.load(e.at(row, e.scaled(chunk, 64)), V16F)), vector(I16))
        _scatter(e, codes, e.at(target, e.scaled(chunk, 64)), 4)


def _quantized(e: Emitter, row: Value, block: Value) -> tuple[list[Value], Value]:
    """32 values as two vectors of codes and their float16 scale: the largest magnitude becomes 127."""
    b = e.b
    lanes = [e.load(e.at(row, e.scaled(block, 128)), V16F, 64 * i) for i in range(2)]
    largest = e.peak(e.larger(*(e.sizes(x) for x in lanes)))
    some = b.fcmp_unordered(">", largest, e.const(0.0, F32))  # true of NaN, which then is the scale
    inverse = e.splat(b.select(some, b.fdiv(e.const(127.0, F32), largest), e.const(0.0, F32)))
    codes = [b.fptosi(e.unary("rint", b.fmul(x, inverse)), vector(I32)) for x in lanes]
    scale = b.fptrunc(b.fdiv(largest, e.const(127.0, F32)), F16)
    return [b.trunc(x, vector(I8)) for x in codes], scale


def _coded_keys(e: Emitter, row: Value, block: Value, position: Value, chunks: Value) -> None:
    b = e.b
    tile, column = e.at(block, b.mul(b.lshr(position, e.const(4)), e.scaled(chunks, 16 * 17))), b.and_(position, e.const(15))
    scales = e.at(tile, e.scaled(chunks, 256), e.scaled(column, 2))
    with e.loop(b.lshr(chunks, e.const(1))) as run:
        codes, scale = _quantized(e, row, run)
        for i, lanes in enumerate(codes):
            unsigned = e.bits(b.xor(lanes, e.const(-128, vector(I8))), vector(I32, 4))
            _scatter(e, unsigned, e.at(tile, e.scaled(column, 4), e.scaled(run, 512), 256 * i), 64)
        e.store(e.at(scales, e.scaled(run, 32)), scale)


def _coded_values(e: Emitter, row: Value, block: Value, position: Value, chunks: Value) -> None:
    b = e.b
    quad, place = b.lshr(position, e.const(2)), b.and_(position, e.const(3))
    with e.loop(b.lshr(chunks, e.const(1))) as run:
        codes, scale = _quantized(e, row, run)
        scales = e.at(block, e.scaled(run, VALUES_BYTES))
        e.store(e.at(scales, e.scaled(position, 2)), scale)
        for i, lanes in enumerate(codes):
            _scatter(e, lanes, e.at(scales, e.scaled(quad, 128), place, 2 * BLOCK_POSITIONS + 64 * i), 4)


Store = Callable[[Emitter, Value, Value, Value, Value], None]


def _sized(store: Callable[[Emitter, Value, Value, Value, Value, int], None], value_bytes: int) -> Store:
    return lambda e, row, block, position, chunks: store(e, row, block, position, chunks, value_bytes)


# By codec: (row of one head, the 256-position block of the region, position within it, head_dim / 16).
STORE_KEYS: Mapping[str, Store] = {
    "f32": _sized(_float_keys, 4),
    "f16": _sized(_float_keys, 2),
    "bf16": _bf16_keys,
    "int8_bf16": _byte_keys,
    "q8_0": _coded_keys,
}

STORE_VALUES: Mapping[str, Store] = {
    "f32": _sized(_float_values, 4),
    "f16": _sized(_float_values, 2),
    "bf16": _bf16_values,
    "int8_bf16": _bf16_values,
    "q8_0": _coded_values,
}
