"""The float tile as IR: 32 rows of unquantized weights x N activations over the whole k; and the last step of every product.

One accumulator an element, k in order, each step one fused multiply-add (bf16: one pair dot product): a result does not depend
on N, and F32 and F16 weights give the same bits on every CPU.  Arguments as in ``tiles_int8``, of which scales and sums are
not used; out: (N, 32).
"""

from __future__ import annotations

from functools import cache
from typing import Literal

from pagemill.decoder.kernels.compile import Emit, compile_kernel
from pagemill.decoder.kernels.isa import LANES, Isa
from pagemill.decoder.kernels.layouts import LAYOUTS
from pagemill.decoder.kernels.tiles.emit import F16, F32, I32, V16F, V16I, Emitter, Value, vector
from pagemill.decoder.kernels.tiles.int8 import ARGUMENTS

STEPS = 8  # k steps without a loop: many more make LLVM's scheduler spill


def float_counts(isa: Isa) -> tuple[int, ...]:
    """Activations per tile, smallest first: what fits the registers beside two (wide) or one vectors of weights."""
    return (1, 2, 4, 8, 12) if isa.dot_lanes == LANES else (1, 2, 4)


@cache
def float_tile(format: str, acts: Literal["bf16", "f32"], count: int, isa: Isa) -> int:
    """Address of the tile kernel for ``count`` activations of a dtype."""
    return compile_kernel(f"float_{format}_{acts}_{count}", ARGUMENTS, float_emit(format, acts, count), isa)


def float_emit(format: str, acts: Literal["bf16", "f32"], count: int) -> Emit:
    """The emitter of a tile kernel."""
    item, pairs = LAYOUTS[format].group_bytes(32) // (32 * 32), format == "BF16"
    step_bytes, k_per_step = (4, 2) if pairs else (item, 1)
    act_bytes = 2 if acts == "bf16" else 4

    def emit(
        e: Emitter, w: Value, codes: Value, scales: Value, sums16: Value, sums32: Value, out: Value, blocks: Value, rows: Value
    ) -> None:
        both = e.isa.dot_lanes == LANES or count <= 2
        groups = 2 if both else 1
        with e.loop(2 // groups) as group:
            weights, target = e.at(w, e.scaled(group, LANES * step_bytes)), e.at(out, e.scaled(group, 64))
            totals = [[e.variable(e.zero(V16F)) for _ in range(groups)] for _ in range(count)]
            for total in (total for pair in totals for total in pair):
                e.set(total, e.zero(V16F))
            with e.loop(blocks) as block, e.loop(32 // k_per_step // STEPS) as part:
                first = e.at(
                    codes, e.scaled(e.b.mul(block, rows), 32 * act_bytes), e.scaled(part, STEPS * k_per_step * act_bytes)
                )
                step = e.b.add(e.scaled(block, 32 // k_per_step), e.scaled(part, STEPS))
                line = e.at(weights, e.scaled(step, 2 * LANES * step_bytes))
                for s in range(STEPS):
                    vectors = [_weights(e, line, format, (2 * s + g) * LANES * step_bytes) for g in range(groups)]
                    for n in range(count):
                        at = 32 * act_bytes * n + s * k_per_step * act_bytes
                        for total, weight in zip(totals[n], vectors, strict=True):
                            e.set(total, _step(e, e.get(total), weight, first, at, pairs, acts))
            for n in range(count):
                for g in range(groups):
                    e.store(target, e.get(totals[n][g]), 2 * LANES * 4 * n + 64 * g)

    return emit


def _weights(e: Emitter, address: Value, format: str, offset: int) -> Value:
    if format == "F16":
        return e.b.fpext(e.load(address, vector(F16), offset), V16F)
    return e.load(address, V16I if format == "BF16" else V16F, offset)


def _step(e: Emitter, total: Value, weight: Value, acts: Value, at: int, pairs: bool, kind: str) -> Value:
    """total + weight x activation over one k, or two where bf16 weights lie in pairs."""
    if kind == "bf16":
        return e.dot_bf16(total, weight, e.load_splat(acts, I32, at))
    if not pairs:
        return e.fma(weight, e.load_splat(acts, F32, at), total)
    even = e.bits(e.b.shl(weight, e.const(16, V16I)), V16F)
    odd = e.bits(e.b.and_(weight, e.const(-65536, V16I)), V16F)
    total = e.fma(even, e.load_splat(acts, F32, at), total)
    return e.fma(odd, e.load_splat(acts, F32, at + 4), total)


@cache
def finish_kernel(lanes: int, bias: bool, add: bool, isa: Isa) -> int:
    """Address of ``(tile, out, out bytes per row, count, valid lanes, bias)``: out rows = tile rows [+ bias] [+ out]."""
    return compile_kernel(f"finish_{lanes}_{bias:d}{add:d}", 6, finish_emit(lanes, bias, add), isa)


def finish_emit(lanes: int, has_bias: bool, add: bool) -> Emit:
    """The emitter of a finish kernel; tile: (count, lanes) float32, of which the first ``valid`` lanes of a row are written."""

    def emit(e: Emitter, tile: Value, out: Value, stride: Value, count: Value, valid: Value, bias: Value) -> None:
        def write(row: Value, offset: Value, source: Value, kind: Value) -> None:
            value = e.load(source, kind, offset)
            if has_bias:
                value = e.b.fadd(value, e.load(bias, kind, offset))
            if add:
                value = e.b.fadd(value, e.load(row, kind, offset))
            e.store(row, value, offset)

        vectors = e.b.lshr(valid, e.const(4))
        with e.loop(count) as n:
            row, source = e.at(out, e.b.mul(n, stride)), e.at(tile, e.scaled(n, 4 * lanes))
            with e.loop(vectors) as v:
                write(row, e.scaled(v, 64), source, V16F)
            with e.loop(e.b.and_(valid, e.const(LANES - 1))) as lane:
                write(row, e.at(e.scaled(vectors, 64), e.scaled(lane, 4)), source, F32)

    return emit
