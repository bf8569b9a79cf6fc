"""The integer dot product of each CPU family: int32 x 16 += sums of four uint8 x int8 products; exact everywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from decoder.kernels.emit import I8, I16, V16I, Emitter, Value, vector
from decoder.kernels.isa import LANES

BYTES = 4 * LANES


def _vnni(e: Emitter, total: Value, codes: Value, signed: Value) -> Value:
    return e.call("llvm.x86.avx512.vpdpbusd.512", V16I, total, e.bits(codes, V16I), e.bits(signed, V16I))


def _maddubs(e: Emitter, total: Value, codes: Value, signed: Value) -> Value:
    """AVX2: two halves; codes above 127 would overflow int16, so their low 7 bits and top bit are multiplied apart."""
    return _halves(e, total, codes, signed, _maddubs_half)


def _maddubs_half(e: Emitter, codes: Value, signed: Value) -> Value:
    low, high = e.b.and_(codes, e.const(127, codes.type)), e.b.lshr(codes, e.const(7, codes.type))
    high_sums = _pairs(e, high, signed)
    return e.b.add(_quads(e, _pairs(e, low, signed)), e.b.shl(_quads(e, high_sums), e.const(7, vector(V16I.element, 8))))


def _pairs(e: Emitter, codes: Value, signed: Value) -> Value:
    return e.call("llvm.x86.avx2.pmadd.ub.sw", vector(I16, 16), codes, signed)


def _quads(e: Emitter, pairs: Value) -> Value:
    return e.call("llvm.x86.avx2.pmadd.wd", vector(V16I.element, 8), pairs, e.const(1, vector(I16, 16)))


def _halves(e: Emitter, total: Value, codes: Value, signed: Value, dot: Callable[[Emitter, Value, Value], Value]) -> Value:
    def half(x: Value, h: int) -> Value:
        return e.shuffle(x, x, range(32 * h, 32 * h + 32))

    low, high = (dot(e, half(codes, h), half(signed, h)) for h in (0, 1))
    return e.b.add(total, e.shuffle(low, high, range(LANES)))


def _sdot(e: Emitter, total: Value, codes: Value, signed: Value) -> Value:
    """NEON sdot multiplies signed by signed: codes are offset by -128 and the offset is added back through a dot with ones."""
    b = e.b
    quarter, kind = vector(I8, 16), vector(V16I.element, 4)
    parts = []
    for q in range(4):
        sums = e.shuffle(total, total, range(4 * q, 4 * q + 4))
        code, sign = (e.shuffle(x, x, range(16 * q, 16 * q + 16)) for x in (codes, signed))
        shifted = b.xor(code, e.const(-128, quarter))
        sums = e.call("llvm.aarch64.neon.sdot.v4i32.v16i8", kind, sums, shifted, sign)
        ones = e.call("llvm.aarch64.neon.sdot.v4i32.v16i8", kind, e.zero(kind), e.const(1, quarter), sign)
        parts.append(b.add(sums, b.shl(ones, e.const(7, kind))))
    return e.shuffle(e.shuffle(parts[0], parts[1], range(8)), e.shuffle(parts[2], parts[3], range(8)), range(16))


def _generic(e: Emitter, total: Value, codes: Value, signed: Value) -> Value:
    """Plain LLVM: shuffles, extensions and multiplications."""
    for k in range(4):
        every_fourth = [4 * lane + k for lane in range(LANES)]
        code, sign = e.shuffle(codes, codes, every_fourth), e.shuffle(signed, signed, every_fourth)
        total = e.b.add(total, e.b.mul(e.b.zext(code, V16I), e.b.sext(sign, V16I)))
    return total


DOTS: Mapping[str, Callable[[Emitter, Value, Value, Value], Value]] = {
    "vnni": _vnni,
    "maddubs": _maddubs,
    "sdot": _sdot,
    "generic": _generic,
}
