"""Row kernels as IR: what a row becomes (norm, gated activation) and how it is packed for a matrix product.

A source kernel is ``(src, dst, a, b, facts, vectors)``: rows of ``vectors`` * 16 float32; a, b: addresses of weights, or a
byte offset.  A packing kernel is ``(row, codes, scales, sums16, sums32, blocks, stride)``: addresses at this row's place in
block 0; stride: rows per block.  See ``tests.decoder.reference_rows``.
"""

from __future__ import annotations

from functools import cache

from pagemill.decoder.kernels.activations import ActivationKind
from pagemill.decoder.kernels.compile import Emit, compile_kernel
from pagemill.decoder.kernels.isa import LANES, Isa
from pagemill.decoder.kernels.tiles.emit import F32, I8, I16, I32, V16F, V16I, Emitter, Value, vector
from pagemill.decoder.kernels.tiles.functions import ACTIVATIONS

VECTOR_BYTES = 4 * LANES


@cache
def source_kernel(kind: str, isa: Isa) -> int:
    """Address of the source kernel: copy, rms, layer, an activation, or "<activation>_gated"."""
    emit = {"copy": _copy, "rms": _rms, "layer": _layer}.get(kind)
    if emit is None:
        name = kind.removesuffix("_gated")
        emit = _gated(name) if kind.endswith("_gated") else _activation(name)
    return compile_kernel(f"source_{kind}", 6, emit, isa)


@cache
def packing_kernel(kind: ActivationKind, isa: Isa) -> int:
    """Address of the packing kernel of an activation kind."""
    if kind.dtype == "int8":
        return compile_kernel(f"pack_int8_{kind.block}_{kind.offset}_{kind.sub}", 7, _pack_int8(kind), isa)
    return compile_kernel(f"pack_{kind.dtype}", 7, _pack_bf16 if kind.dtype == "bf16" else _pack_f32, isa)


def _copy(e: Emitter, src: Value, dst: Value, a: Value, b: Value, facts: Value, vectors: Value) -> None:
    with e.loop(vectors) as i:
        offset = e.scaled(i, VECTOR_BYTES)
        e.store(dst, e.load(src, V16F, offset), offset)


def _mean(e: Emitter, total: Value, facts: Value) -> Value:
    """Lane sum / width; facts: [eps, width]."""
    return e.b.fdiv(e.sum_lanes(total), e.load(facts, F32, 4))


def _rms(e: Emitter, src: Value, dst: Value, a: Value, b: Value, facts: Value, vectors: Value) -> None:
    """x / sqrt(mean(x^2) + eps) * a."""
    total = e.variable(e.zero(V16F))
    with e.loop(vectors) as i:
        x = e.load(src, V16F, e.scaled(i, VECTOR_BYTES))
        e.set(total, e.fma(x, x, e.get(total)))
    root = e.unary("sqrt", e.b.fadd(_mean(e, e.get(total), facts), e.load(facts, F32)))
    scale = e.splat(e.b.fdiv(e.const(1.0, F32), root))
    with e.loop(vectors) as i:
        offset = e.scaled(i, VECTOR_BYTES)
        e.store(dst, e.b.fmul(e.b.fmul(e.load(src, V16F, offset), scale), e.load(a, V16F, offset)), offset)


def _layer(e: Emitter, src: Value, dst: Value, a: Value, b: Value, facts: Value, vectors: Value) -> None:
    """(x - mean) / sqrt(variance + eps) * a + b; padding lanes (beyond the width) do not count."""
    width = e.b.fptosi(e.load(facts, F32, 4), I32)
    total = e.variable(e.zero(V16F))
    with e.loop(vectors) as i:
        e.set(total, e.b.fadd(e.get(total), e.load(src, V16F, e.scaled(i, VECTOR_BYTES))))
    mean = e.splat(_mean(e, e.get(total), facts))
    e.set(total, e.zero(V16F))
    with e.loop(vectors) as i:
        lane = e.b.add(e.splat(e.b.trunc(e.b.mul(i, e.const(LANES)), I32)), e.lanes())
        centred = e.b.fsub(e.load(src, V16F, e.scaled(i, VECTOR_BYTES)), mean)
        centred = e.b.select(e.b.icmp_signed("<", lane, e.splat(width)), centred, e.zero(V16F))
        e.set(total, e.fma(centred, centred, e.get(total)))
    root = e.unary("sqrt", e.b.fadd(_mean(e, e.get(total), facts), e.load(facts, F32)))
    scale = e.splat(e.b.fdiv(e.const(1.0, F32), root))
    with e.loop(vectors) as i:
        offset = e.scaled(i, VECTOR_BYTES)
        normal = e.b.fmul(e.b.fsub(e.load(src, V16F, offset), mean), scale)
        e.store(dst, e.fma(normal, e.load(a, V16F, offset), e.load(b, V16F, offset)), offset)


def _activation(name: str) -> Emit:
    function = ACTIVATIONS[name]

    def emit(e: Emitter, src: Value, dst: Value, a: Value, b: Value, facts: Value, vectors: Value) -> None:
        with e.loop(vectors) as i:
            offset = e.scaled(i, VECTOR_BYTES)
            e.store(dst, function(e, e.load(src, V16F, offset)), offset)

    return emit


def _gated(name: str) -> Emit:
    """activation(gate) * up; a: bytes from gate to up."""
    function = ACTIVATIONS[name]

    def emit(e: Emitter, src: Value, dst: Value, a: Value, b: Value, facts: Value, vectors: Value) -> None:
        with e.loop(vectors) as i:
            offset = e.scaled(i, VECTOR_BYTES)
            up = e.load(e.at(src, a), V16F, offset)
            e.store(dst, e.b.fmul(function(e, e.load(src, V16F, offset)), up), offset)

    return emit


def _pack_int8(kind: ActivationKind) -> Emit:
    vectors = kind.block // LANES

    def emit(
        e: Emitter, row: Value, codes: Value, scales: Value, sums16: Value, sums32: Value, blocks: Value, stride: Value
    ) -> None:
        with e.loop(blocks) as block:
            src = e.at(row, e.scaled(block, 4 * kind.block))
            place = e.b.mul(block, stride)
            inverse = _scale(e, src, vectors, e.at(scales, e.scaled(place, 4)))
            target = e.at(codes, e.scaled(place, kind.block))
            is_whole = kind.sub == kind.block > 32
            whole = e.variable(e.zero(I32))
            e.set(whole, e.zero(I32))
            with e.loop(kind.block // 32) as part:
                halves = []
                for half in range(2):
                    x = e.load(e.at(src, e.scaled(part, 128)), V16F, half * VECTOR_BYTES)
                    code = e.b.fptosi(e.unary("rint", e.b.fmul(x, inverse)), V16I)
                    e.store(e.at(target, e.scaled(part, 32)), e.b.trunc(code, vector(I8)), half * LANES)
                    halves.append(e.sum_lanes_int(code))
                total = e.b.add(*halves)
                index = e.b.add(e.scaled(place, kind.block // 32), part)
                e.store(e.at(sums16, e.scaled(index, 2)), e.b.trunc(total, I16))
                e.set(whole, e.b.add(e.get(whole), total))
                for i, entry in enumerate([] if is_whole else halves if kind.sub == LANES else [total]):
                    offset_sum = e.b.mul(entry, e.const(-kind.offset, I32))
                    e.store(e.at(sums32, e.scaled(index, 4 * (32 // kind.sub))), offset_sum, 4 * i)
            if is_whole:
                e.store(e.at(sums32, e.scaled(place, 4)), e.b.mul(e.get(whole), e.const(-kind.offset, I32)))

    return emit


def _scale(e: Emitter, src: Value, vectors: Value, scale: Value) -> Value:
    """Write max|x| / 127; give 127 / max|x| in every lane, 0 for a block of zeros."""
    sizes = e.variable(e.zero(V16I))
    with e.loop(vectors) as i:
        e.set(sizes, e.larger(e.sizes(e.load(src, V16F, e.scaled(i, VECTOR_BYTES))), e.get(sizes)))
    largest = e.peak(e.get(sizes))  # not finite where a value is not: the scale then carries it into the product
    e.store(scale, e.b.fdiv(largest, e.const(127.0, F32)))
    is_zero = e.b.fcmp_ordered("==", largest, e.const(0.0, F32))
    return e.splat(e.b.select(is_zero, e.const(0.0, F32), e.b.fdiv(e.const(127.0, F32), largest)))


def _pack_f32(
    e: Emitter, row: Value, codes: Value, scales: Value, sums16: Value, sums32: Value, blocks: Value, stride: Value
) -> None:
    with e.loop(blocks) as block:
        src, target = e.at(row, e.scaled(block, 128)), e.at(codes, e.scaled(e.b.mul(block, stride), 128))
        for half in range(2):
            e.store(target, e.load(src, V16F, half * VECTOR_BYTES), half * VECTOR_BYTES)


def _pack_bf16(
    e: Emitter, row: Value, codes: Value, scales: Value, sums16: Value, sums32: Value, blocks: Value, stride: Value
) -> None:
    """Round to nearest even on the upper 16 bits."""
    with e.loop(blocks) as block:
        src, target = e.at(row, e.scaled(block, 128)), e.at(codes, e.scaled(e.b.mul(block, stride), 64))
        for half in range(2):
            bits = e.load(src, V16I, half * VECTOR_BYTES)
            odd = e.b.and_(e.b.lshr(bits, e.const(16, V16I)), e.const(1, V16I))
            rounded = e.b.add(e.b.add(bits, e.const(0x7FFF, V16I)), odd)
            e.store(target, e.b.trunc(e.b.lshr(rounded, e.const(16, V16I)), vector(I16)), half * 2 * LANES)
