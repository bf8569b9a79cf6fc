"""What driver loops need beside plain numba: calls by address, memory by address, atomics and a polite pause.

All are module-level numba intrinsics over int64 addresses.  A driver compiled with ``driver`` is cached on disk in a folder
named after the hash of this package's sources, because numba's own key does not see changes in callees.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic as untyped_intrinsic

from pagemill.decoder.kernels.compile import cache_folder

F = TypeVar("F", bound=Callable[..., Any])

_I64, _F32, _F64 = ir.IntType(64), ir.FloatType(), ir.DoubleType()
_ON_X86 = platform.machine() in ("x86_64", "AMD64")


def intrinsic(function: Callable[..., Any]) -> Any:
    """numba's intrinsic, typed."""
    return untyped_intrinsic(function)


def _sources_hash() -> str:
    folder = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


numba.config.CACHE_DIR = str(cache_folder() / f"drivers-{_sources_hash()}")


def driver(function: F) -> F:
    """Compile a driver: no lock held, cached on disk, IEEE arithmetic."""
    compiled: F = numba.njit(nogil=True, cache=True, boundscheck=False)(function)
    return compiled


def _as_pointer(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, ir.PointerType(kind))


def _caller(count: int) -> Any:
    """call<count>(address, int64 x count): a call of ``void f(int64 ...)``."""
    signature = types.void(*[types.int64] * (count + 1))

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [_I64] * count)
        builder.call(_as_pointer(builder, args[0], kind), args[1:])
        return context.get_dummy_value()

    parameters = ", ".join(f"a{i}" for i in range(count + 1))
    scope: dict[str, Any] = {"signature": signature, "codegen": codegen}
    exec(f"def call{count}(typing, {parameters}):\n    return signature, codegen\n", scope)  # intrinsics need fixed arity
    return intrinsic(scope[f"call{count}"])


call2, call3, call4, call5, call6, call7, call8 = (_caller(count) for count in range(2, 9))
call9, call10, call11, call12, call13, call14 = (_caller(count) for count in range(9, 15))


@intrinsic
def load_i64(typing: Any, address: Any) -> Any:
    """The int64 at address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_as_pointer(builder, args[0], _I64))

    return types.int64(types.int64), codegen


@intrinsic
def load_i32(typing: Any, address: Any) -> Any:
    """The int32 at address, as int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.sext(builder.load(_as_pointer(builder, args[0], ir.IntType(32))), _I64)

    return types.int64(types.int64), codegen


@intrinsic
def store_i64(typing: Any, address: Any, value: Any) -> Any:
    """Write an int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[1], _as_pointer(builder, args[0], _I64))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def atomic_add(typing: Any, address: Any, value: Any) -> Any:
    """Add to the int64 at address; the value before."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", _as_pointer(builder, args[0], _I64), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def load_acquire(typing: Any, address: Any) -> Any:
    """The int64 at address; what its writer released before is visible."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_as_pointer(builder, args[0], _I64), "acquire", 8)

    return types.int64(types.int64), codegen


@intrinsic
def store_release(typing: Any, address: Any, value: Any) -> Any:
    """Write the int64 at address after all writes before it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[1], _as_pointer(builder, args[0], _I64), "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


def _external(builder: Any, name: str, result: Any, args: list[Any]) -> Any:
    module = builder.module
    function = module.globals.get(name)
    if function is None:
        function = ir.Function(module, ir.FunctionType(result, [arg.type for arg in args]), name)
    return builder.call(function, args)


@intrinsic
def pause(typing: Any) -> Any:
    """Tell the core that this is a spin loop."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if _ON_X86:
            _external(builder, "llvm.x86.sse2.pause", ir.VoidType(), [])
        else:
            _external(builder, "llvm.aarch64.hint", ir.VoidType(), [ir.Constant(ir.IntType(32), 1)])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def yield_core(typing: Any) -> Any:
    """Let another thread have this core."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _external(builder, "sched_yield", ir.IntType(32), [])
        return context.get_dummy_value()

    return types.void(), codegen


_CLOCKS = {"Linux": (1, 3), "Darwin": (6, 16)}  # CLOCK_MONOTONIC and CLOCK_THREAD_CPUTIME_ID of clock_gettime(2)


def _clock(name: str, index: int) -> Any:
    """An intrinsic that reads one of the system's clocks, in nanoseconds."""
    number = _CLOCKS.get(platform.system(), _CLOCKS["Linux"])[index]

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        with builder.goto_entry_block():
            slot = builder.alloca(_I64, 2)
        address = builder.ptrtoint(slot, _I64)
        _external(builder, "clock_gettime", ir.IntType(32), [ir.Constant(ir.IntType(32), number), address])
        seconds = builder.load(slot)
        nanoseconds = builder.load(builder.gep(slot, [ir.Constant(ir.IntType(32), 1)]))
        return builder.add(builder.mul(seconds, ir.Constant(_I64, 1_000_000_000)), nanoseconds)

    def typed(typing: Any) -> Any:
        return types.int64(), codegen

    typed.__name__ = typed.__qualname__ = name
    return intrinsic(typed)


wall_nanoseconds = _clock("wall_nanoseconds", 0)
thread_nanoseconds = _clock("thread_nanoseconds", 1)
