"""Attention over 8-bit codes with a scale per 32, read straight from the cache in float32 arithmetic: what decode rows use."""

from __future__ import annotations

from decoder.kernels.emit import F16, I8, V16F, Emitter, Value, vector
from decoder.kernels.tiles_attention import STEPS, Tile, accumulate, half_chunk, total

_RUNS_PER_SCALE = 32 // STEPS


def codes_to_floats(e: Emitter, address: Value, offset: int) -> Value:
    """16 int8 as float32."""
    return e.b.sitofp(e.load(address, vector(I8), offset), V16F)


def emit_coded_scores(
    tile: Tile, e: Emitter, keys: Value, queries: Value, scores: Value, groups: Value, chunks: Value, query_stride: Value, stride: Value
) -> None:  # fmt: skip
    """As ``emit_scores``, for tiles of codes: each run of 32 dimensions is summed apart and then scaled."""
    tile_stride, codes_stride = e.scaled(chunks, 16 * 17), e.scaled(chunks, 256)
    with e.loop(groups) as group:
        codes = e.at(keys, e.b.mul(group, tile_stride))
        totals = [e.variable(e.zero(V16F)) for _ in range(tile.rows)]
        with e.loop(e.b.lshr(chunks, e.const(1))) as block:
            parts = [[e.variable(e.zero(V16F)) for _ in range(tile.chains)] for _ in range(tile.rows)]
            with e.loop(_RUNS_PER_SCALE) as part:
                run = e.b.add(e.scaled(block, _RUNS_PER_SCALE), part)
                factors, stream = half_chunk(e, queries, run, query_stride), e.at(codes, e.scaled(run, 16 * STEPS))
                for j in range(STEPS):
                    links = [[chains[j % tile.chains] for chains in parts]]
                    accumulate(e, tile, links, [codes_to_floats(e, stream, 16 * j)], factors, 64, 4 * j)
            scale = e.b.fpext(e.load(e.at(codes, codes_stride, e.scaled(block, 32)), vector(F16)), V16F)
            for slot, chains in zip(totals, parts, strict=True):
                e.set(slot, e.fma(total(e, chains), scale, e.get(slot)))
        for n, slot in enumerate(totals):
            e.store(e.at(scores, e.b.mul(group, stride)), e.get(slot), 64 * n)


def emit_scale(rows: int, e: Emitter, packed: Value, scales: Value, scaled: Value, chunks: Value, blocks: Value) -> None:
    """Probabilities times the scales of their values: one copy of the packed rows per 32 dimensions.

    scales: float16 [blocks of 32 dimensions][256 keys].  scaled: [block][16 chunks][rows][16] float32.
    """
    with e.loop(blocks) as block, e.loop(chunks) as chunk:
        at = e.at(scales, e.scaled(block, 512), e.scaled(chunk, 32))
        scale = e.b.fpext(e.load(at, vector(F16)), V16F)
        source = e.at(packed, e.scaled(chunk, 64 * rows))
        target = e.at(scaled, e.scaled(block, 1024 * rows), e.scaled(chunk, 64 * rows))
        for n in range(rows):
            e.store(target, e.b.fmul(e.load(source, V16F, 64 * n), scale), 64 * n)
