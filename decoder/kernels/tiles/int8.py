"""The int8 tile as IR: 16 rows of quantized weights x N activations over the whole k.

Rows are lanes.  The codes of 32 k are loaded and unpacked once and multiplied with every activation, four k at a time, the
activation's bytes broadcast from memory.  Integer sums are exact and the float32 order is fixed (k runs upwards, one
accumulator an element), so a result depends neither on N nor on the CPU.  See ``tests.decoder.reference_matmul``.

A tile kernel is ``(weights, codes, scales, sums16, sums32, out, blocks, rows)``: weights: address of a row group; then the
activations' buffers at the first of N rows; out: (N, 16) float32; blocks of k; rows per block in the activations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from pagemill.decoder.kernels.compile import Emit, compile_kernel
from pagemill.decoder.kernels.isa import LANES, Isa
from pagemill.decoder.kernels.layouts import CODES_PER_VECTOR, LAYOUTS, CodeLayout
from pagemill.decoder.kernels.tiles.codebook import look_up
from pagemill.decoder.kernels.tiles.dots import dot_codes, dot_shorts, takes_signed_bytes
from pagemill.decoder.kernels.tiles.emit import F16, F32, I8, I16, I32, Emitter, Value, vector

ARGUMENTS = 8
# Activations -> prefetch distance of weights in bytes; with fewer, the hardware prefetcher does better alone (measured).
PREFETCH_BYTES = {4: 8192, 8: 2560, 16: 2560}
# But for these codes, which take long to unpack: a third faster with any number of activations.
SLOW_BITS, SLOW_PREFETCH_BYTES = 6, 8192
FENCE_EVERY = 2  # activations whose loads the scheduler may mix


@cache
def int8_tile(format: str, count: int, isa: Isa) -> int:
    """Address of the tile kernel of a quantized format for ``count`` activations."""
    return compile_kernel(f"int8_{format}_{count}", ARGUMENTS, int8_emit(format, count), isa)


def int8_emit(format: str, count: int) -> Emit:
    """The emitter of a tile kernel."""
    layout = LAYOUTS[format]
    assert isinstance(layout, CodeLayout)

    def emit(
        e: Emitter, w: Value, codes: Value, scales: Value, sums16: Value, sums32: Value, out: Value, blocks: Value, rows: Value
    ) -> None:
        lanes = LANES if count == 1 else e.isa.dot_lanes  # with one activation a code vector is used once, so registers suffice
        with e.loop(LANES // lanes) as lane_pass:
            lane = e.scaled(lane_pass, lanes)
            tile = _Tile(e, layout, count, lanes, lane, w, codes, scales, sums16, sums32, e.at(out, e.scaled(lane, 4)), rows)
            (_super_blocks if layout.is_super else _large_blocks if layout.block == 256 else _small_blocks)(tile, blocks)

    return emit


@dataclass(frozen=True, slots=True)
class _Tile:
    """What the parts of one kernel share.  lane: index of the first of ``lanes`` lanes; addresses as of the kernel."""

    e: Emitter
    layout: CodeLayout
    count: int
    lanes: int
    lane: Value
    weights: Value
    codes: Value
    scales: Value
    sums16: Value
    sums32: Value
    out: Value
    rows: Value

    def vector(self, element: Value, per_lane: int = 1) -> Value:
        """The type of per_lane elements a lane."""
        return vector(element, per_lane * self.lanes)

    def load(self, address: Value, element: Value, offset: Value | int = 0, per_lane: int = 1) -> Value:
        """This pass's lanes of a row-of-lanes at address + offset."""
        size = {I8: 1, F16: 2}[element] * per_lane
        return self.e.load(self.e.at(address, self.e.scaled(self.lane, size)), self.vector(element, per_lane), offset)

    def floats(self, integers: Value) -> Value:
        """Integer lanes as float32."""
        return self.e.b.sitofp(integers, self.vector(F32))

    def splat(self, address: Value, kind: Value, offset: int) -> Value:
        """A scalar from memory in every lane."""
        return self.e.load_splat(address, kind, offset, self.lanes)

    def accumulators(self) -> list[Value]:
        """One float32 vector of zeros for each activation."""
        return [self.e.variable(self.e.zero(self.vector(F32))) for _ in range(self.count)]


def _super_blocks(t: _Tile, blocks: Value) -> None:
    """K-quants: integer sub-scales inside a block of 256; d, dmin and the activation's scale once a block, into ``out``."""
    e, layout = t.e, t.layout
    for n in range(t.count):
        e.store(t.out, e.zero(t.vector(F32)), 64 * n)
    totals = t.accumulators()
    parts = 32 // layout.sub_block
    with e.loop(blocks) as block:
        place = e.b.mul(block, t.rows)
        tile = e.at(t.weights, e.scaled(block, layout.tile_bytes))
        codes = e.at(t.codes, e.scaled(place, 256))
        sums32 = e.at(t.sums32, e.scaled(place, 64))
        for total in totals:
            e.set(total, e.zero(t.vector(F32)))
        with e.loop(layout.subs) as sub:
            run = e.at(tile, e.scaled(sub, layout.sub_bytes))
            vectors = _code_vectors(t, run)
            scales = [_sub_scale(t, e.at(tile, e.scaled(sub, LANES * parts)), part) for part in range(parts)]
            _prefetch(t, run, layout.tile_bytes // layout.subs)
            signed, offsets = e.at(codes, e.scaled(sub, 32)), e.at(sums32, e.scaled(sub, 8))
            for n, total in enumerate(totals):
                if n and n % FENCE_EVERY == 0:
                    e.fence()
                for part in range(parts):
                    share = slice(part * 8 // parts, (part + 1) * 8 // parts)
                    dot = _dot(t, vectors, signed, 256 * n, share, offsets, 64 * n + 4 * part)
                    e.set(total, e.fma(t.floats(dot), scales[part], e.get(total)))
        _close_block(t, totals, tile, e.at(t.scales, e.scaled(place, 4)), e.at(t.sums16, e.scaled(place, 16)))


def _large_blocks(t: _Tile, blocks: Value) -> None:
    """Blocks of 256 of one scale: integers all along, then ``out`` += activation scale * d * dot."""
    e, layout, kind = t.e, t.layout, t.vector(I32)
    for n in range(t.count):
        e.store(t.out, e.zero(t.vector(F32)), 64 * n)
    totals = [e.variable(e.zero(kind)) for _ in range(t.count)]
    with e.loop(blocks) as block:
        place = e.b.mul(block, t.rows)
        tile = e.at(t.weights, e.scaled(block, layout.tile_bytes))
        codes, sums32 = e.at(t.codes, e.scaled(place, 256)), e.at(t.sums32, e.scaled(place, 4))
        for n, total in enumerate(totals):
            e.set(total, e.zero(kind) if takes_signed_bytes(e.isa) else t.splat(sums32, I32, 4 * n))
        with e.loop(layout.subs) as sub:
            run = e.at(tile, e.scaled(sub, layout.sub_bytes))
            vectors, signed = _code_vectors(t, run), e.at(codes, e.scaled(sub, 32))
            _prefetch(t, run, layout.tile_bytes // layout.subs)
            for n, total in enumerate(totals):
                if n and n % FENCE_EVERY == 0:
                    e.fence()
                bytes_ = [e.bits(_four_bytes(t, signed, 256 * n, j), t.vector(I8, 4)) for j in range(8)]
                e.set(total, dot_codes(e, e.get(total), vectors, bytes_, layout.dot_bits))
        d, scales = _half(t, tile, layout.d_at), e.at(t.scales, e.scaled(place, 4))
        for n, total in enumerate(totals):
            value = e.b.fmul(t.floats(e.get(total)), d)
            before = e.load(t.out, t.vector(F32), 64 * n)
            e.store(t.out, e.fma(value, t.splat(scales, F32, 4 * n), before), 64 * n)


def _close_block(t: _Tile, totals: Sequence[Value], tile: Value, scales: Value, sums16: Value) -> None:
    """out += activation scale * (d * total - dmin * sum of sub_min * activation sum)."""
    e, layout = t.e, t.layout
    d = _half(t, tile, layout.d_at)
    for n, total in enumerate(totals):
        value = e.b.fmul(e.get(total), d)
        if layout.has_minima:
            least = e.zero(t.vector(I32))
            for i in range(4):
                pairs = e.b.zext(t.load(tile, I8, layout.minima_at + 32 * i, per_lane=2), t.vector(I16, 2))
                sums = e.bits(t.splat(sums16, I32, 16 * n + 4 * i), t.vector(I16, 2))
                least = dot_shorts(e, least, pairs, sums)
            value = e.fma(e.b.fneg(t.floats(least)), _half(t, tile, layout.m_at), value)
        before = e.load(t.out, t.vector(F32), 64 * n)
        e.store(t.out, e.fma(value, t.splat(scales, F32, 4 * n), before), 64 * n)


def _small_blocks(t: _Tile, blocks: Value) -> None:
    """Blocks of 32, two a tile: total += activation scale * (d * dot [+ m * activation sum])."""
    e, layout = t.e, t.layout
    totals = t.accumulators()
    for total in totals:
        e.set(total, e.zero(t.vector(F32)))
    with e.loop(blocks) as block:
        place = e.b.mul(block, t.rows)
        tile = e.at(t.weights, e.scaled(e.b.lshr(block, e.const(1)), layout.tile_bytes))
        second = e.b.and_(block, e.const(1))
        run = e.at(tile, e.scaled(second, layout.sub_bytes))
        halves = e.at(tile, e.scaled(second, 2 * LANES))
        vectors, d = _code_vectors(t, run), _half(t, halves, layout.d_at)
        m = _half(t, halves, layout.m_at) if layout.has_minima else None
        _prefetch(t, run, layout.tile_bytes // layout.subs)
        codes, scales = e.at(t.codes, e.scaled(place, 32)), e.at(t.scales, e.scaled(place, 4))
        sums32 = e.at(t.sums32, e.scaled(place, 4))
        for n, total in enumerate(totals):
            if n and n % FENCE_EVERY == 0:
                e.fence()
            value = e.b.fmul(t.floats(_dot(t, vectors, codes, 32 * n, slice(0, 8), sums32, 4 * n)), d)
            if m is not None:
                value = e.fma(t.floats(t.splat(sums32, I32, 4 * n)), m, value)
            e.set(total, e.fma(value, t.splat(scales, F32, 4 * n), e.get(total)))
    for n, total in enumerate(totals):
        e.store(t.out, e.get(total), 64 * n)


def _dot(t: _Tile, vectors: Sequence[Value], signed: Value, at: int, share: slice, offsets: Value, offset_at: int) -> Value:
    """int32 lanes: codes x activation bytes over a share of the eight vectors, less the offset's part.

    Few activations: several chains, so that one dot product need not wait for the last (integers: the same sum).
    """
    e, kind = t.e, t.vector(I32)
    indices = range(8)[share]
    bytes_ = [e.bits(_four_bytes(t, signed, at, j), t.vector(I8, 4)) for j in indices]
    codes = [vectors[j] for j in indices]
    from_memory = t.layout.offset and not (t.layout.dot_bits == 8 and takes_signed_bytes(e.isa))
    parts = t.lanes // e.isa.dot_lanes
    chains = max(1, min(len(codes), 4 // (t.count * parts)))
    totals = []
    for chain in range(chains):
        start = t.splat(offsets, I32, offset_at) if from_memory and chain == 0 else e.zero(kind)
        totals.append(dot_codes(e, start, codes[chain::chains], bytes_[chain::chains], t.layout.dot_bits))
    while len(totals) > 1:
        totals = [e.b.add(a, b) for a, b in zip(totals[::2], totals[1::2], strict=True)]
    return totals[0]


def _four_bytes(t: _Tile, signed: Value, at: int, j: int) -> Value:
    """Activation bytes 4 j .. 4 j + 3 in every lane.  NEON multiplies by one lane of a register that holds 16 of them."""
    if t.e.isa.dot != "sdot":
        return t.splat(signed, I32, at + 4 * j)
    sixteen = t.e.load(signed, vector(I32, 4), at + j // 4 * 16)
    return t.e.shuffle(sixteen, sixteen, [j % 4] * t.lanes)


def _code_vectors(t: _Tile, run: Value) -> list[Value]:
    """The eight vectors of 32 k, unpacked from their planes."""
    e, bits, kind = t.e, t.layout.bits, t.vector(I8, 4)
    planes = [t.load(run, I8, CODES_PER_VECTOR * i, per_lane=4) for i in range(bits)]
    if bits == 8:
        return [e.b.xor(plane, e.const(-128, kind)) for plane in planes] if takes_signed_bytes(e.isa) else planes
    codes = [_field(e, plane, first, 0, 0x0F) for first in (0, 4) for plane in planes[:4]]
    if bits == 5:
        codes = [e.b.or_(code, _field(e, planes[4], j, 4, 0x10)) for j, code in enumerate(codes)]
    if bits == 6:
        codes = [e.b.or_(code, _field(e, planes[4 + j // 4], 2 * (j % 4), 4, 0x30)) for j, code in enumerate(codes)]
    return [look_up(e, code, t.layout.codebook) for code in codes] if t.layout.codebook else codes


def _field(e: Emitter, plane: Value, first: int, to: int, mask: int) -> Value:
    """Bits from ``first`` on of each byte, moved to bit ``to`` and masked.  Shifts are of 16 bits: x86 has none of bytes."""
    moved = e.bits(plane, vector(I16, plane.type.count // 2))
    shift = e.const(abs(first - to), moved.type)
    moved = e.b.lshr(moved, shift) if first > to else e.b.shl(moved, shift) if first < to else moved
    return e.b.and_(e.bits(moved, plane.type), e.const(mask, plane.type))


def _sub_scale(t: _Tile, address: Value, part: int) -> Value:
    """Integer sub-scales of the rows as float32."""
    scale = t.load(address, I8, t.layout.scales_at + LANES * part)
    widen = t.e.b.sext if t.layout.sub_block == 16 else t.e.b.zext
    return t.floats(widen(scale, t.vector(I32)))


def _half(t: _Tile, address: Value, offset: int) -> Value:
    """float16 of the rows as float32."""
    return t.e.b.fpext(t.load(address, F16, offset), t.vector(F32))


def _prefetch(t: _Tile, run: Value, size: int) -> None:
    """Ask for weights that come later."""
    ahead = PREFETCH_BYTES.get(t.count, SLOW_PREFETCH_BYTES if t.layout.bits == SLOW_BITS else 0)
    if ahead:
        for line in range(0, size, 64):
            t.e.prefetch(run, ahead + line)
