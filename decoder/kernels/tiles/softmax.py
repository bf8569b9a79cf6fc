"""What attention does between its products, a packed row at a time: online softmax, packing, finishing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

from pagemill.decoder.kernels.tiles.attention import STATS_MAXIMUM, STATS_RESCALE, STATS_SUM
from pagemill.decoder.kernels.tiles.emit import BF16, F32, I16, I32, V16F, Emitter, Value, vector

# The score of a key that is not seen, and a row's maximum before its first key: finite, so that differences are not NaN.
LOWEST = -3.0e38

_ROUNDS_TO_INTEGER = 12582912.0  # 1.5 * 2^23: adding it leaves the nearest integer in the low bits
_SMALLEST_EXPONENT = -126.0
# Minimax on [-0.5, 0.5], exact at 0; relative error 1.1e-7.
_EXP2 = (1.0, 0.6931470036506653, 0.24022242426872253, 0.05550733581185341, 0.009671512991189957, 0.001326472731307149)
# As above, 1.0e-4: a twentieth of what rounding to bf16 costs.
_EXP2_ROUGH = (1.0, 0.6932829293455676, 0.24221097447170659, 0.055008927993867356)

FlashPrecision = Literal["f32", "bf16"]


def exp2(e: Emitter, x: Value, powers: Sequence[float] = _EXP2) -> Value:
    """2^x for x <= 0, lanes of float32; 2^-126 below x = -126, NaN for NaN.  exp2(0) is 1."""
    b, kind = e.b, x.type
    integers = vector(I32, kind.count)
    x = e.maximum(e.const(_SMALLEST_EXPONENT, kind), x)  # in this order NaN stays
    rounded = b.fadd(x, e.const(_ROUNDS_TO_INTEGER, kind))
    fraction = b.fsub(x, b.fsub(rounded, e.const(_ROUNDS_TO_INTEGER, kind)))
    power = e.const(powers[-1], kind)
    for coefficient in powers[-2::-1]:
        power = e.fma(power, fraction, e.const(coefficient, kind))
    exponent = b.shl(e.bits(rounded, integers), e.const(23, integers))
    return e.bits(b.add(e.bits(power, integers), exponent), kind)


def to_bf16(e: Emitter, x: Value) -> Value:
    """float32 lanes to bf16 bits in the low halves of int32 lanes, to nearest even; finite x."""
    b, kind = e.b, vector(I32, x.type.count)
    bits = e.bits(x, kind)
    odd = b.and_(b.lshr(bits, e.const(16, kind)), e.const(1, kind))
    return b.lshr(b.add(bits, b.add(odd, e.const(0x7FFF, kind))), e.const(16, kind))


def two_to_bf16(e: Emitter, low: Value, high: Value) -> Value:
    """Two vectors of float32 to 32 bf16 bits, low's first, to nearest even."""
    if e.isa.bf16:
        return e.bits(e.call("llvm.x86.avx512bf16.cvtne2ps2bf16.512", vector(BF16, 32), high, low), vector(I16, 32))
    halves = [e.b.trunc(to_bf16(e, x), vector(I16)) for x in (low, high)]
    return e.shuffle(halves[0], halves[1], range(32))


def emit_softmax(
    precision: FlashPrecision, masked: bool, e: Emitter, row: Value, stride: Value, chunks: Value, begin: Value, end: Value,
    stats: Value, scale: Value, rows: Value,
) -> None:  # fmt: skip
    """Rows of scores become probabilities of this block, in place; their softmax statistics are updated.

    row, stride: chunk c of 16 scores of row r is at row + c * stride + 64 * r.  chunks: even; 16 where not masked.
    begin, end: keys begin..end-1 of the block are seen, the others get exactly zero.  In bf16 two chunks of scores become one
    of probabilities, at the first.  scale: address of the float32 scale * log2(e).

    First all rows' maxima, then all their powers: the latency of one row's sums hides behind the others' work.
    """
    softmax = _Softmax(precision, masked, e, stride, e.b.lshr(chunks, e.const(1)), begin, end, e.load(scale, F32))
    with e.loop(rows) as r:
        softmax.emit_maximum(e.at(row, e.scaled(r, 64)), e.at(stats, e.scaled(r, 16)))
    with e.loop(rows) as r:
        softmax.emit_powers(e.at(row, e.scaled(r, 64)), e.at(stats, e.scaled(r, 16)))


@dataclass(frozen=True, slots=True)
class _Softmax:
    """What both passes over a row share; fields as ``emit_softmax`` has them, pairs of chunks."""

    precision: FlashPrecision
    masked: bool
    e: Emitter
    stride: Value
    pairs: Value
    begin: Value
    end: Value
    log2e: Value

    def emit_maximum(self, row: Value, stats: Value) -> None:
        """The running maximum of the row, and the factor by which earlier sums are rescaled (online softmax)."""
        e, b = self.e, self.e.b
        largest = [e.variable(e.const(LOWEST, V16F)) for _ in range(2)]
        for slot in largest:
            e.set(slot, e.const(LOWEST, V16F))
        for pair in self._pairs():
            with pair as index:
                for half, slot in enumerate(largest):
                    e.set(slot, e.maximum(self._scores(row, index, half), e.get(slot)))
        before = e.load(stats, F32, STATS_MAXIMUM)
        now = e.maximum(b.fmul(e.max_lanes(e.maximum(e.get(largest[0]), e.get(largest[1]))), self.log2e), before)
        rescale = b.extract_element(exp2(e, e.splat(b.fsub(before, now))), e.const(0, I32))
        e.store(stats, now, STATS_MAXIMUM)
        e.store(stats, rescale, STATS_RESCALE)

    def emit_powers(self, row: Value, stats: Value) -> None:
        """Scores become 2^(score - maximum); the running sum is rescaled and gains theirs."""
        e, b = self.e, self.e.b
        factor, shift = e.splat(self.log2e), e.splat(b.fneg(e.load(stats, F32, STATS_MAXIMUM)))
        polynomial = _EXP2_ROUGH if self.precision == "bf16" else _EXP2
        sums = [e.variable(e.zero(V16F)) for _ in range(2)]
        for slot in sums:
            e.set(slot, e.zero(V16F))
        for pair in self._pairs():
            with pair as index:
                powers = []
                for half, slot in enumerate(sums):
                    power = exp2(e, e.fma(self._scores(row, index, half), factor, shift), polynomial)
                    powers.append(b.select(self._seen(index, half), power, e.zero(V16F)) if self.masked else power)
                    e.set(slot, b.fadd(e.get(slot), powers[-1]))
                _store_pair(e, self.precision, e.at(row, b.mul(index, e.scaled(self.stride, 2))), self.stride, powers)
        total = e.sum_lanes(b.fadd(e.get(sums[0]), e.get(sums[1])))
        e.store(stats, e.fma(e.load(stats, F32, STATS_SUM), e.load(stats, F32, STATS_RESCALE), total), STATS_SUM)

    def _pairs(self) -> Iterator[AbstractContextManager[Value]]:
        """The pairs of chunks: a loop, or one after the other where all are there."""
        if self.masked:
            yield self.e.loop(self.pairs)
        else:
            yield from (nullcontext(self.e.const(index)) for index in range(8))

    def _scores(self, row: Value, pair: Value, half: int) -> Value:
        e, b = self.e, self.e.b
        found = e.load(e.at(row, b.mul(pair, e.scaled(self.stride, 2)), self.stride if half else 0), V16F)
        return b.select(self._seen(pair, half), found, e.const(LOWEST, V16F)) if self.masked else found

    def _seen(self, pair: Value, half: int) -> Value:
        e, b = self.e, self.e.b
        begins, ends = e.splat(b.trunc(self.begin, I32)), e.splat(b.trunc(self.end, I32))
        key = b.add(e.lanes(16 * half), e.splat(b.trunc(b.shl(pair, e.const(5)), I32)))
        return b.and_(b.icmp_signed(">=", key, begins), b.icmp_signed("<", key, ends))


def _store_pair(e: Emitter, precision: FlashPrecision, target: Value, stride: Value, powers: list[Value]) -> None:
    if precision == "bf16":
        e.store(target, two_to_bf16(e, powers[0], powers[1]))
        return
    e.store(target, powers[0])
    e.store(e.at(target, stride), powers[1])


def emit_pack(precision: FlashPrecision, e: Emitter, row: Value, packed: Value, chunks: Value, stride: Value) -> None:
    """Copy a row of queries, 16 dimensions a chunk, into packed rows."""
    with e.loop(chunks) as chunk:
        lanes = e.load(e.at(row, e.scaled(chunk, 64)), V16F)
        target = e.at(packed, e.b.mul(chunk, stride))
        e.store(target, lanes if precision == "f32" else e.b.trunc(to_bf16(e, lanes), vector(I16)))


def emit_clear(e: Emitter, out: Value, vectors: Value, stats: Value, rows: Value) -> None:
    """Rows before their first key: no output, no sum, the lowest maximum."""
    with e.loop(vectors) as index:
        e.store(e.at(out, e.scaled(index, 64)), e.zero(V16F))
    record = [e.const(value, F32) for value in (LOWEST, 0.0, 0.0, 0.0)]
    with e.loop(rows) as index:
        for lane, value in enumerate(record):
            e.store(e.at(stats, e.scaled(index, 16)), value, 4 * lane)


def emit_finish(e: Emitter, row: Value, out: Value, vectors: Value, stats: Value) -> None:
    """out = row / its sum of probabilities."""
    inverse = e.splat(e.b.fdiv(e.const(1.0, F32), e.load(stats, F32, STATS_SUM)))
    with e.loop(vectors) as index:
        at = e.scaled(index, 64)
        e.store(e.at(out, at), e.b.fmul(e.load(e.at(row, at), V16F), inverse))
