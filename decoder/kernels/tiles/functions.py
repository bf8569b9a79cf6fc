"""Elementary functions on 16 float32 lanes: the same operations in the same order on every CPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from pagemill.decoder.kernels.tiles.emit import V16F, V16I, Emitter, Value

_EXP2 = tuple(math.log(2) ** k / math.factorial(k) for k in range(8))  # Taylor, degree 7: below 2e-8 relative on [-1/2, 1/2]
# Abramowitz and Stegun 1964, 7.1.26: below 1.5e-7 absolute.
_ERF = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)


def exp2(e: Emitter, x: Value) -> Value:
    """2 ** x; x is clamped to [-126, 127]."""
    x = e.maximum(x, e.const(-126.0, V16F))
    x = e.b.select(e.b.fcmp_ordered("<", x, e.const(127.0, V16F)), x, e.const(127.0, V16F))
    whole = e.unary("rint", x)
    rest = e.b.fsub(x, whole)
    power = e.const(_EXP2[-1], V16F)
    for coefficient in _EXP2[-2::-1]:
        power = e.fma(power, rest, e.const(coefficient, V16F))
    shift = e.b.shl(e.b.fptosi(whole, V16I), e.const(23, V16I))
    return e.bits(e.b.add(e.bits(power, V16I), shift), V16F)


def exp(e: Emitter, x: Value) -> Value:
    """e ** x."""
    return exp2(e, e.b.fmul(x, e.const(1 / math.log(2), V16F)))


def silu(e: Emitter, x: Value) -> Value:
    """x / (1 + e ** -x)."""
    return e.b.fdiv(x, e.b.fadd(e.const(1.0, V16F), exp(e, e.b.fneg(x))))


def gelu_tanh(e: Emitter, x: Value) -> Value:
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))."""
    cube = e.b.fmul(e.b.fmul(x, x), x)
    inner = e.b.fmul(e.const(math.sqrt(2 / math.pi), V16F), e.fma(cube, e.const(0.044715, V16F), x))
    twice = exp(e, e.b.fadd(inner, inner))
    tanh = e.b.fsub(e.const(1.0, V16F), e.b.fdiv(e.const(2.0, V16F), e.b.fadd(twice, e.const(1.0, V16F))))
    return e.b.fmul(e.b.fmul(x, e.const(0.5, V16F)), e.b.fadd(e.const(1.0, V16F), tanh))


def gelu_erf(e: Emitter, x: Value) -> Value:
    """x / 2 * (1 + erf(x / sqrt(2))): the exact form, not its tanh imitation."""
    z = e.b.fmul(x, e.const(math.sqrt(0.5), V16F))
    size = e.unary("fabs", z)
    t = e.b.fdiv(e.const(1.0, V16F), e.fma(size, e.const(0.3275911, V16F), e.const(1.0, V16F)))
    series = e.const(_ERF[-1], V16F)
    for coefficient in _ERF[-2::-1]:
        series = e.fma(series, t, e.const(coefficient, V16F))
    tail = e.b.fmul(e.b.fmul(series, t), exp(e, e.b.fneg(e.b.fmul(z, z))))
    erf = e.b.fsub(e.const(1.0, V16F), tail)
    erf = e.b.select(e.b.fcmp_ordered("<", z, e.zero(V16F)), e.b.fneg(erf), erf)
    return e.b.fmul(e.b.fmul(x, e.const(0.5, V16F)), e.b.fadd(e.const(1.0, V16F), erf))


ACTIVATIONS: Mapping[str, Callable[[Emitter, Value], Value]] = {"silu": silu, "gelu_tanh": gelu_tanh, "gelu_erf": gelu_erf}
