"""Integer dot products of each CPU family, exact everywhere, so that results are the same to the bit on all of them.

``dot_codes``    int32 lanes += sums of four weight codes x signed activations, over several vectors
``dot_shorts``   int32 lanes += sums of two int16 products

Lanes may be any multiple of the instruction's; wider vectors are cut into parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pagemill.decoder.kernels.isa import Isa
from pagemill.decoder.kernels.tiles.emit import I8, I16, Emitter, Value, vector

# code bits -> how many sums of two products of such codes with -127..127 add up within int16.
PAIR_SUMS_IN_INT16 = {4: 8, 5: 4, 6: 2, 7: 1}


def takes_signed_bytes(isa: Isa) -> bool:
    """Whether 8-bit codes go in as signed (code - 128): there the activations' offset sums are not needed."""
    return isa.dot != "vnni"


def dot_codes(e: Emitter, total: Value, codes: Sequence[Value], signed: Sequence[Value], bits: int) -> Value:
    """total: int32 lanes; codes: vectors of 4 bytes a lane, unsigned of ``bits`` bits (8: signed where takes_signed_bytes)."""
    return _by_parts(e, total, codes, signed, bits, *_CODES[e.isa.dot])


def dot_bytes(e: Emitter, total: Value, codes: Value, signed: Value) -> Value:
    """total int32 lanes += sums of four products of any unsigned with signed bytes."""
    if takes_signed_bytes(e.isa):
        low = e.b.and_(codes, e.const(127, codes.type))
        high = e.b.lshr(codes, e.const(7, codes.type))
        tops = dot_codes(e, e.zero(total.type), [high], [signed], 4)
        return dot_codes(e, e.b.add(total, e.b.shl(tops, e.const(7, total.type))), [low], [signed], 7)
    return dot_codes(e, total, [codes], [signed], 8)


def dot_shorts(e: Emitter, total: Value, a: Value, b: Value) -> Value:
    """total int32 lanes += sums of two products; a, b: <2 x lanes x i16>."""
    return _by_parts(e, total, [a], [b], 16, *_SHORTS[e.isa.dot])


Dot = Callable[[Emitter, Value, Sequence[Value], Sequence[Value], int], Value]


def _by_parts(
    e: Emitter, total: Value, left: Sequence[Value], right: Sequence[Value], bits: int, lanes: int, dot: Dot
) -> Value:
    count = total.type.count // lanes
    if count <= 1:
        return dot(e, total, left, right, bits)
    parts = []
    for p in range(count):
        lefts, rights = ([_part(e, x, p, count) for x in vectors] for vectors in (left, right))
        parts.append(dot(e, _part(e, total, p, count), lefts, rights, bits))
    while len(parts) > 1:
        width = 2 * parts[0].type.count
        parts = [e.shuffle(low, high, range(width)) for low, high in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _part(e: Emitter, x: Value, index: int, count: int) -> Value:
    size = x.type.count // count
    return e.shuffle(x, x, range(index * size, index * size + size))


def _vnni(e: Emitter, total: Value, codes: Sequence[Value], signed: Sequence[Value], bits: int) -> Value:
    for code, sign in zip(codes, signed, strict=True):
        total = e.call("llvm.x86.avx512.vpdpbusd.512", total.type, total, e.bits(code, total.type), e.bits(sign, total.type))
    return total


def _vnni_shorts(e: Emitter, total: Value, a: Sequence[Value], b: Sequence[Value], bits: int) -> Value:
    pair = (e.bits(x[0], total.type) for x in (a, b))
    return e.call("llvm.x86.avx512.vpdpwssd.512", total.type, total, *pair)


def _maddubs(e: Emitter, total: Value, codes: Sequence[Value], signed: Sequence[Value], bits: int) -> Value:
    """Pair sums in int16, as many as fit, then in int32.  Signed codes: |code| x (activation with the code's sign)."""
    bytes_, shorts = vector(I8, 32), vector(I16, 16)
    pairs = []
    for code, sign in zip(codes, signed, strict=True):
        if bits == 8:
            sign = e.call("llvm.x86.avx2.psign.b", bytes_, sign, code)
            code = e.b.select(e.b.icmp_signed("<", code, e.zero(bytes_)), e.b.neg(code), code)
        pairs.append(e.call("llvm.x86.avx2.pmadd.ub.sw", shorts, code, sign))
    run = PAIR_SUMS_IN_INT16.get(bits, 1)
    for first in range(0, len(pairs), run):
        sums = pairs[first]
        for more in pairs[first + 1 : first + run]:
            sums = e.b.add(sums, more)
        total = e.b.add(total, e.call("llvm.x86.avx2.pmadd.wd", total.type, sums, e.const(1, shorts)))
    return total


def _maddwd(e: Emitter, total: Value, a: Sequence[Value], b: Sequence[Value], bits: int) -> Value:
    return e.b.add(total, e.call("llvm.x86.avx2.pmadd.wd", total.type, a[0], b[0]))


def _sdot(e: Emitter, total: Value, codes: Sequence[Value], signed: Sequence[Value], bits: int) -> Value:
    for code, sign in zip(codes, signed, strict=True):
        total = e.call("llvm.aarch64.neon.sdot.v4i32.v16i8", total.type, total, code, sign)
    return total


def _generic(e: Emitter, total: Value, codes: Sequence[Value], signed: Sequence[Value], bits: int) -> Value:
    """Plain LLVM: shuffles, extensions and multiplications."""
    per_lane = codes[0].type.count // total.type.count
    kind, widen = total.type, e.b.zext if bits < 8 else e.b.sext
    for code, sign in zip(codes, signed, strict=True):
        for k in range(per_lane):
            lanes = range(k, code.type.count, per_lane)
            product = e.b.mul(widen(e.shuffle(code, code, lanes), kind), e.b.sext(e.shuffle(sign, sign, lanes), kind))
            total = e.b.add(total, product)
    return total


_CODES: Mapping[str, tuple[int, Dot]] = {
    "vnni": (16, _vnni),
    "maddubs": (8, _maddubs),
    "sdot": (4, _sdot),
    "generic": (16, _generic),
}
_SHORTS: Mapping[str, tuple[int, Dot]] = {
    "vnni": (16, _vnni_shorts),
    "maddubs": (8, _maddwd),
    "sdot": (16, _generic),
    "generic": (16, _generic),
}
