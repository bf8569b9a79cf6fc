"""Attention of decode rows over 8-bit codes, by integer dot products: exact sums, four codes a step.

Queries become 8-bit integers with a scale per 32 dimensions, as exact as the keys that they meet.  Probabilities become 16-bit
integers with one scale a row, split into a high and a low byte: in 8 bits, many small ones beside a large one would be lost.

Packed queries are [32 dimensions][row] records of QUERY_BYTES: 32 codes, -128 * their sum (keys are stored as unsigned codes),
the scale.  Probabilities, times the scales of their values, are one record of FACTOR_BYTES a row, made anew for each 32
dimensions: 256 high bytes, 256 low bytes, the scale.
"""

from __future__ import annotations

from pagemill.decoder.kernels.tiles.attention import STATS_BYTES, STATS_RESCALE, Tile
from pagemill.decoder.kernels.tiles.dots import dot_bytes
from pagemill.decoder.kernels.tiles.emit import F16, F32, I8, I32, V16F, V16I, Emitter, Value, vector
from pagemill.decoder.network.kv_codec import BLOCK_POSITIONS

QUERY_BYTES, _QUERY_SUM, _QUERY_SCALE = 64, 32, 36
FACTOR_BYTES, _FACTOR_SCALE = 576, 512
_KEY_OFFSET = 128
_LARGEST_QUERY = 127.0
_LARGEST_FACTOR = 65535.0
_SMALLEST = 1e-30  # a row's largest number below this is zero: its reciprocal would not be finite
_ROUNDS_TO_INTEGER = 12582912.0  # 1.5 * 2^23: adding it leaves the nearest integer in the low bits
_V64 = vector(I8, 64)


def emit_coded_pack(e: Emitter, row: Value, packed: Value, chunks: Value, stride: Value) -> None:
    """A row of queries, chunks * 16 dimensions, into its records, ``stride`` bytes apart."""
    b = e.b
    with e.loop(b.lshr(chunks, e.const(1))) as block:
        source, record = e.at(row, e.scaled(block, 128)), e.at(packed, b.mul(block, stride))
        halves = [e.load(source, V16F, 64 * i) for i in range(2)]
        inverse, scale = _scales(e, e.peak(e.larger(*(e.sizes(half) for half in halves))), _LARGEST_QUERY)
        codes = [b.fptosi(e.unary("rint", b.fmul(half, inverse)), V16I) for half in halves]
        for i, code in enumerate(codes):
            e.store(record, b.trunc(code, vector(I8)), 16 * i)
        e.store(record, b.mul(e.sum_lanes_int(b.add(*codes)), e.const(-_KEY_OFFSET, I32)), _QUERY_SUM)
        e.store(record, scale, _QUERY_SCALE)


def emit_coded_scores(
    tile: Tile, e: Emitter, keys: Value, queries: Value, scores: Value, groups: Value, chunks: Value, query_stride: Value,
    stride: Value,
) -> None:  # fmt: skip
    """scores[16 keys][row] = keys . queries for ``groups`` tiles of 16 keys.  query_stride: of a record's 32 dimensions."""
    b = e.b
    tile_bytes, codes_bytes = e.scaled(chunks, 16 * 17), e.scaled(chunks, 256)
    with e.loop(groups) as group:
        codes = e.at(keys, b.mul(group, tile_bytes))
        sums = [e.variable(e.zero(V16F)) for _ in range(tile.rows)]
        with e.loop(b.lshr(chunks, e.const(1))) as block:
            stream, record = e.at(codes, e.scaled(block, 512)), e.at(queries, b.mul(block, query_stride))
            chains = 2 if tile.rows <= 4 else 1
            parts = [[e.zero(V16I) for _ in range(chains)] for _ in range(tile.rows)]
            for n, totals in enumerate(parts):
                totals[0] = e.load_splat(record, I32, n * QUERY_BYTES + _QUERY_SUM)
            for j in range(8):
                code = e.load(stream, _V64, 64 * j)
                for n, totals in enumerate(parts):
                    byte = e.load_splat(record, I32, n * QUERY_BYTES + 4 * j)
                    totals[j % chains] = dot_bytes(e, totals[j % chains], code, e.bits(byte, _V64))
            scale = e.b.fpext(e.load(e.at(codes, codes_bytes, e.scaled(block, 32)), vector(F16)), V16F)
            for n, (totals, slot) in enumerate(zip(parts, sums, strict=True)):
                whole = totals[0] if chains == 1 else b.add(*totals)
                both = b.fmul(scale, e.load_splat(record, F32, n * QUERY_BYTES + _QUERY_SCALE))
                e.set(slot, e.fma(b.sitofp(whole, V16F), both, e.get(slot)))
        for n, slot in enumerate(sums):
            e.store(e.at(scores, b.mul(group, stride)), e.get(slot), 64 * n)


def emit_coded_factors(rows: int, e: Emitter, packed: Value, scales: Value, factors: Value, keys: Value) -> None:
    """Probabilities times the scales of 32 dimensions of their values, of ``keys`` keys; zero beyond.

    packed: [chunk of 16 keys][rows][16] float32.  scales: (256,) float16.
    """
    b = e.b
    ends, rounds = e.splat(b.trunc(keys, I32)), e.const(_ROUNDS_TO_INTEGER, V16F)
    for n in range(rows):
        e.fence()
        products = []
        for chunk in range(BLOCK_POSITIONS // 16):
            scale = b.fpext(e.load(scales, vector(F16), 32 * chunk), V16F)
            product = b.fmul(e.load(packed, V16F, 64 * (chunk * rows + n)), scale)
            products.append(b.select(b.icmp_signed("<", e.lanes(16 * chunk), ends), product, e.zero(V16F)))
        sizes = [e.sizes(product) for product in products]
        while len(sizes) > 1:
            sizes = [e.larger(x, y) for x, y in zip(sizes[::2], sizes[1::2], strict=True)]
        inverse, scale = _scales(e, e.peak(sizes[0]), _LARGEST_FACTOR)
        e.store(factors, scale, n * FACTOR_BYTES + _FACTOR_SCALE)
        for chunk, product in enumerate(products):
            whole = e.bits(e.fma(product, inverse, rounds), V16I)
            at = n * FACTOR_BYTES + 16 * chunk
            e.store(factors, b.trunc(b.lshr(whole, e.const(8, V16I)), vector(I8)), at)
            e.store(factors, b.trunc(whole, vector(I8)), at + 256)


def emit_coded_values(
    tile: Tile, e: Emitter, values: Value, factors: Value, out: Value, stats: Value, keys: Value, step_stride: Value,
    stride: Value, out_stride: Value,
) -> None:  # fmt: skip
    """As ``emit_values``, for codes of four keys a step: out = out * rescale + probabilities . values.  stride: unused."""
    b = e.b
    pairs = [(v, n) for v in range(tile.vectors) for n in range(tile.rows)]
    sums = {pair: [e.variable(e.zero(V16I)) for _ in range(2)] for pair in pairs}
    with e.loop(b.lshr(b.add(keys, e.const(15)), e.const(4))) as chunk:
        bytes_at = e.at(factors, e.scaled(chunk, 16))
        for j in range(4):
            row = e.at(values, b.mul(b.add(b.shl(chunk, e.const(2)), e.const(j)), step_stride))
            codes = [e.load(row, _V64, 64 * v) for v in range(tile.vectors)]
            for v, n in pairs:
                for half, slot in enumerate(sums[v, n]):
                    byte = e.load_splat(bytes_at, I32, n * FACTOR_BYTES + 256 * half + 4 * j)
                    e.set(slot, dot_bytes(e, e.get(slot), e.bits(byte, _V64), codes[v]))
    for v, n in pairs:
        target = e.at(out, e.scaled(out_stride, n))
        before = b.fmul(e.load(target, V16F, 64 * v), e.load_splat(stats, F32, STATS_BYTES * n + STATS_RESCALE))
        whole = b.sitofp(_joined(e, [e.get(slot) for slot in sums[v, n]]), V16F)
        e.store(target, e.fma(whole, e.load_splat(factors, F32, n * FACTOR_BYTES + _FACTOR_SCALE), before), 64 * v)


def _joined(e: Emitter, halves: list[Value]) -> Value:
    """256 * high + low: below 2^31, since 256 products of bytes are below 2^23."""
    return e.b.add(e.b.shl(halves[0], e.const(8, V16I)), halves[1])


def _scales(e: Emitter, largest: Value, bound: float) -> tuple[Value, Value]:
    """Lanes of bound / largest, and largest / bound; zeros where all is zero, NaN where largest is."""
    b, zero = e.b, e.const(0.0, F32)
    some = b.fcmp_unordered(">", largest, e.const(_SMALLEST, F32))
    inverse = b.select(some, b.fdiv(e.const(bound, F32), largest), zero)
    return e.splat(inverse), b.select(some, b.fdiv(largest, e.const(bound, F32)), zero)
