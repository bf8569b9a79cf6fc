"""Emitting vector code: a thin layer over llvmlite's IRBuilder, in units of 16 lanes.

An emitter function gets an ``Emitter`` and the kernel's int64 arguments (addresses and counts) and writes the body.
Addresses are int64 values; every load and store is unaligned-safe (align 1), buffers are 64-byte aligned all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from pagemill.decoder.kernels.isa import LANES, Isa

Value = Any  # an llvmlite value; llvmlite has no types

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
F16, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()


class BFloatType(ir.types.Type):  # type: ignore[misc]
    """LLVM's bfloat, which llvmlite lacks."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BFloatType)

    def __hash__(self) -> int:
        return hash(BFloatType)


BF16 = BFloatType()


def vector(element: Value, count: int = LANES) -> Value:
    """The vector type <count x element>."""
    return ir.VectorType(element, count)


V16F, V16I = vector(F32), vector(I32)


class Emitter:
    """Writes one function body; ``b`` is the IRBuilder for what has no wrapper here."""

    def __init__(self, builder: Value, isa: Isa) -> None:
        self.b, self.isa, self.module = builder, isa, builder.module

    # constants
    def const(self, value: int | float, kind: Value = I64) -> Value:
        """A scalar constant, or the same value in every lane of a vector type."""
        return ir.Constant(kind, [value] * kind.count) if isinstance(kind, ir.VectorType) else ir.Constant(kind, value)

    def bytes_of(self, values: Sequence[int]) -> Value:
        """A constant vector of bytes."""
        return ir.Constant(vector(I8, len(values)), list(values))

    def zero(self, kind: Value) -> Value:
        """All bits zero."""
        return ir.Constant(kind, None) if isinstance(kind, ir.VectorType) else ir.Constant(kind, 0)

    def lanes(self, start: int = 0, count: int = LANES) -> Value:
        """(start, start + 1, ...) as int32 lanes."""
        return ir.Constant(vector(I32, count), list(range(start, start + count)))

    # memory
    def at(self, address: Value, *offsets: Value | int) -> Value:
        """address plus byte offsets."""
        for offset in offsets:
            if not (isinstance(offset, int) and offset == 0):
                address = self.b.add(address, self.const(offset) if isinstance(offset, int) else offset)
        return address

    def scaled(self, index: Value, size: int) -> Value:
        """index * size, as a byte offset."""
        return self.b.mul(index, self.const(size))

    def load(self, address: Value, kind: Value, offset: Value | int = 0) -> Value:
        """The value of type kind at address + offset."""
        return self.b.load(self.b.inttoptr(self.at(address, offset), ir.PointerType(kind)), align=1)

    def store(self, address: Value, value: Value, offset: Value | int = 0) -> None:
        """Write value at address + offset."""
        self.b.store(value, self.b.inttoptr(self.at(address, offset), ir.PointerType(value.type)), align=1)

    def splat(self, scalar: Value, count: int = LANES) -> Value:
        """The scalar in every lane."""
        kind = vector(scalar.type, count)
        undefined = ir.Constant(kind, ir.Undefined)
        first = self.b.insert_element(undefined, scalar, ir.Constant(I32, 0))
        return self.b.shuffle_vector(first, undefined, ir.Constant(vector(I32, count), [0] * count))

    def load_splat(self, address: Value, kind: Value, offset: Value | int = 0, count: int = LANES) -> Value:
        """A scalar from memory in every lane (folds to an embedded broadcast)."""
        return self.splat(self.load(address, kind, offset), count)

    def shuffle(self, a: Value, b: Value, lanes: Sequence[int]) -> Value:
        """Lanes of the concatenation of a and b."""
        return self.b.shuffle_vector(a, b, ir.Constant(vector(I32, len(lanes)), list(lanes)))

    def prefetch(self, address: Value, offset: Value | int = 0) -> None:
        """Ask for a cache line ahead of its use."""
        pointer = self.b.inttoptr(self.at(address, offset), ir.PointerType(I8))
        flags = [self.const(flag, I32) for flag in (0, 3, 1)]
        self.call("llvm.prefetch.p0", ir.VoidType(), pointer, *flags)

    # arithmetic
    def call(self, name: str, result: Value, *args: Value) -> Value:
        """Call an LLVM intrinsic or C function by name."""
        function = self.module.globals.get(name)
        if function is None:
            function = ir.Function(self.module, ir.FunctionType(result, [arg.type for arg in args]), name)
        return self.b.call(function, args)

    def unary(self, name: str, x: Value) -> Value:
        """llvm.<name> of float32 lanes or a scalar: sqrt, fabs, rint ..."""
        return self.call(f"llvm.{name}.{_suffix(x.type)}", x.type, x)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a * b + c, rounded once."""
        return self.call(f"llvm.fma.{_suffix(a.type)}", a.type, a, b, c)

    def maximum(self, a: Value, b: Value) -> Value:
        """The larger; b where a is NaN."""
        return self.b.select(self.b.fcmp_ordered(">", a, b), a, b)

    def sizes(self, x: Value) -> Value:
        """The bits of |x| as integer lanes: they order as the values do, with infinity and then NaN above all numbers."""
        kind = vector(I32, x.type.count)
        return self.b.and_(self.bits(x, kind), self.const(0x7FFFFFFF, kind))

    def larger(self, a: Value, b: Value) -> Value:
        """The larger integer of each lane."""
        return self.b.select(self.b.icmp_signed(">", a, b), a, b)

    def peak(self, sizes: Value) -> Value:
        """The largest of ``sizes`` as a float32: NaN or infinite where one of the values was, so that neither gets lost."""
        return self.bits(self._fold(sizes, self.larger), F32)

    def bits(self, value: Value, kind: Value) -> Value:
        """The same bits as another type."""
        return self.b.bitcast(value, kind)

    def sum_lanes(self, x: Value) -> Value:
        """Sum of the float32 lanes, halves onto halves: one fixed order on every CPU."""
        return self._fold(x, self.b.fadd)

    def max_lanes(self, x: Value) -> Value:
        """Largest float32 lane."""
        return self._fold(x, self.maximum)

    def sum_lanes_int(self, x: Value) -> Value:
        """Sum of integer lanes."""
        return self._fold(x, self.b.add)

    def _fold(self, x: Value, op: Any) -> Value:
        count = x.type.count
        while count > 1:
            count //= 2
            x = op(self.shuffle(x, x, range(count)), self.shuffle(x, x, range(count, 2 * count)))
        return self.b.extract_element(x, ir.Constant(I32, 0))

    def dot_bf16(self, total: Value, a: Value, b: Value) -> Value:
        """total float32 x 16 + sums of two bf16 products; a, b: 32 bf16 in any 512-bit type."""
        pairs = vector(BF16, 2 * LANES)
        return self.call("llvm.x86.avx512bf16.dpbf16ps.512", V16F, total, self.bits(a, pairs), self.bits(b, pairs))

    def fence(self) -> None:
        """A compiler barrier for loads: the scheduler would fill the registers with early ones."""
        kind = ir.FunctionType(ir.VoidType(), [])
        self.b.asm(kind, "", "~{memory}", [], True)

    # control
    def variable(self, initial: Value) -> Value:
        """A mutable local (a register after mem2reg); read with ``get``, write with ``set``."""
        with self.b.goto_entry_block():
            slot = self.b.alloca(initial.type)
        self.b.store(initial, slot)
        return slot

    def get(self, slot: Value) -> Value:
        """The local's value."""
        return self.b.load(slot)

    def set(self, slot: Value, value: Value) -> None:
        """Give the local a value."""
        self.b.store(value, slot)

    @contextmanager
    def loop(self, count: Value | int) -> Iterator[Value]:
        """for index in range(count); yields the index."""
        b = self.b
        count = self.const(count) if isinstance(count, int) else count
        head, body, done = (b.append_basic_block(name) for name in ("head", "body", "done"))
        start = b.block
        b.branch(head)
        b.position_at_end(head)
        index = b.phi(I64)
        index.add_incoming(ir.Constant(I64, 0), start)
        b.cbranch(b.icmp_signed("<", index, count), body, done)
        b.position_at_end(body)
        yield index
        index.add_incoming(b.add(index, ir.Constant(I64, 1)), b.block)
        b.branch(head)
        b.position_at_end(done)


def _suffix(kind: Value) -> str:
    """Type suffix of an overloaded intrinsic."""
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{_suffix(kind.element)}"
    return "f32" if isinstance(kind, ir.FloatType) else "f64"
