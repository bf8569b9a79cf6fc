"""The products of attention as IR: scores = keys . queries, and out += probabilities . values.

Both are one tile: 16-lane weight vectors streamed from the cache, times scalars of packed rows, broadcast.  Each output element
has one order of accumulation, whatever the tile's row count.

Packed rows (queries, scores, probabilities) are [chunk][row][64 bytes]; the chunk's stride is an argument, so one tile serves
any block of rows.  A query chunk is 16 dimensions (32 bytes a row in bf16), a score chunk 16 keys, a probability chunk 16
steps.  Each row also has a record of four float32, at STATS_* below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pagemill.decoder.kernels.tiles.emit import F16, F32, I32, V16F, V16I, Emitter, Value, vector

STEPS = 8  # weight vectors per unrolled run: more makes LLVM's scheduler spill

# A row's largest score so far (times scale * log2 e), its sum of probabilities, and the factor of what was summed before.
STATS_MAXIMUM, STATS_SUM, STATS_RESCALE, STATS_BYTES = 0, 4, 8, 16

Stored = Literal["f32", "f16", "bf16", "int8", "q8_0"]
VALUE_BYTES = {"f32": 4, "f16": 2, "bf16": 2, "int8": 1, "q8_0": 1}
_LOW_HALF = 0xFFFF


@dataclass(frozen=True, slots=True)
class Tile:
    """Shape of a product.  stored: type of keys or values.  vectors x rows: accumulators of 16 lanes.

    chains: partial sums per accumulator, which hide the latency of the multiply-add where there are few rows.
    """

    stored: Stored
    vectors: int
    rows: int
    chains: int = 1

    @property
    def pair(self) -> int:
        """Products per lane and step."""
        return {"bf16": 2, "int8": 4, "q8_0": 4}.get(self.stored, 1)

    @property
    def step_bytes(self) -> int:
        """Bytes of one 16-lane step."""
        return 16 * self.pair * VALUE_BYTES[self.stored]

    @property
    def name(self) -> str:
        """For symbols, as f16_2x12x1."""
        return f"{self.stored}_{self.vectors}x{self.rows}x{self.chains}"


def emit_scores(
    tile: Tile, e: Emitter, keys: Value, queries: Value, scores: Value, groups: Value, dims: Value, query_stride: Value,
    stride: Value,
) -> None:  # fmt: skip
    """scores[16 keys][row] = keys . queries, for ``groups`` groups of ``vectors`` cache tiles of 16 keys.

    dims: head_dim / 16.  query_stride, stride: bytes of a chunk of queries and of scores.
    """
    key_stride = e.scaled(dims, 16 * 16 * VALUE_BYTES[tile.stored])
    runs = dims if tile.pair == 2 else e.b.shl(dims, e.const(1))
    row_bytes = 64 // tile.pair
    with e.loop(groups) as group:
        source = e.at(keys, e.b.mul(group, e.scaled(key_stride, tile.vectors)))
        sums = [[[e.variable(e.zero(V16F)) for _ in range(tile.chains)] for _ in range(tile.rows)] for _ in range(tile.vectors)]
        with e.loop(runs) as run:
            factors = (
                e.at(queries, e.b.mul(run, query_stride)) if tile.pair == 2 else _half_chunk(e, queries, run, query_stride)
            )
            first = e.at(source, e.scaled(run, STEPS * tile.step_bytes))
            streams = [e.at(first, e.scaled(key_stride, v)) for v in range(tile.vectors)]
            for j in range(STEPS):
                weights = [_weights(e, tile, stream, j * tile.step_bytes) for stream in streams]
                links = [[chains[j % tile.chains] for chains in rows] for rows in sums]
                _accumulate(e, tile, links, weights, factors, row_bytes, 4 * j)
        target = e.at(scores, e.b.mul(group, e.scaled(stride, tile.vectors)))
        for v, rows in enumerate(sums):
            for n, chains in enumerate(rows):
                e.store(e.at(target, e.scaled(stride, v)), _total(e, chains), 64 * n)


def emit_values(
    tile: Tile, e: Emitter, values: Value, factors: Value, out: Value, stats: Value, keys: Value, step_stride: Value,
    stride: Value, out_stride: Value,
) -> None:  # fmt: skip
    """out[row][16 * vectors] = out * rescale + probabilities . values over exactly ``keys`` keys; none beyond counts.

    step_stride: bytes of a step of values (of a key, or a pair of keys).  stride: of a chunk of probabilities.
    out_stride: of a row.
    """
    b = e.b
    targets = [e.at(out, e.scaled(out_stride, n)) for n in range(tile.rows)]
    rescale = [e.load_splat(stats, F32, STATS_BYTES * n + STATS_RESCALE) for n in range(tile.rows)]
    sums = [
        [e.variable(b.fmul(e.load(target, V16F, 64 * v), factor)) for target, factor in zip(targets, rescale, strict=True)]
        for v in range(tile.vectors)
    ]

    def step(row: Value, chunk: Value, offset: int) -> None:
        weights = [_weights(e, tile, row, v * tile.step_bytes) for v in range(tile.vectors)]
        _accumulate(e, tile, sums, weights, chunk, 64, offset)

    steps = b.lshr(keys, e.const(tile.pair - 1))
    runs = b.lshr(steps, e.const(3))
    with e.loop(runs) as run:
        row, chunk = e.at(values, b.mul(run, e.scaled(step_stride, STEPS))), _half_chunk(e, factors, run, stride)
        for j in range(STEPS):
            step(e.at(row, e.scaled(step_stride, j)), chunk, 4 * j)
    row, chunk = e.at(values, b.mul(runs, e.scaled(step_stride, STEPS))), _half_chunk(e, factors, runs, stride)
    rest = b.and_(steps, e.const(STEPS - 1))
    with e.loop(rest) as i:
        step(e.at(row, b.mul(i, step_stride)), e.at(chunk, e.scaled(i, 4)), 0)
    if tile.pair == 2:
        with e.loop(b.and_(keys, e.const(1))):
            row, chunk = e.at(row, b.mul(rest, step_stride)), e.at(chunk, e.scaled(rest, 4))
            for v in range(tile.vectors):  # the second of each pair was never written
                half = b.and_(e.load(row, V16I, v * tile.step_bytes), e.const(_LOW_HALF, V16I))
                _accumulate(e, tile, sums[v : v + 1], [half], chunk, 64, 0)
    for v in range(tile.vectors):
        for n, target in enumerate(targets):
            e.store(target, e.get(sums[v][n]), 64 * v)


def _half_chunk(e: Emitter, rows: Value, run: Value, stride: Value) -> Value:
    """Where the scalars of run (8 steps, half a chunk of 16) begin."""
    return e.at(rows, e.b.mul(e.b.lshr(run, e.const(1)), stride), e.scaled(e.b.and_(run, e.const(1)), 32))


def _weights(e: Emitter, tile: Tile, address: Value, offset: int) -> Value:
    """One step's vector."""
    if tile.stored == "f16":
        return e.b.fpext(e.load(address, vector(F16), offset), V16F)
    if tile.stored == "f32":
        return e.load(address, V16F, offset)
    return e.load(address, V16I, offset)


def _accumulate(
    e: Emitter,
    tile: Tile,
    sums: Sequence[Sequence[Value]],
    weights: Sequence[Value],
    factors: Value,
    row_bytes: int,
    offset: int,
) -> None:
    """sums[vector][row] += weights[vector] * the scalar of the row."""
    for n in range(tile.rows):
        factor = e.load_splat(factors, I32 if tile.pair == 2 else F32, n * row_bytes + offset)
        for weight, rows in zip(weights, sums, strict=True):
            before = e.get(rows[n])
            e.set(rows[n], e.dot_bf16(before, weight, factor) if tile.pair == 2 else e.fma(weight, factor, before))


def _total(e: Emitter, chains: Sequence[Value]) -> Value:
    """Sum of an accumulator's chains, in order."""
    result = e.get(chains[0])
    for chain in chains[1:]:
        result = e.b.fadd(result, e.get(chain))
    return result
