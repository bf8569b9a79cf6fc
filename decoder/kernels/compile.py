"""IR to machine code with llvmlite, without numba; compiled objects are cached under the hash of all that made them.

The key holds the IR text, the CPU, its features and LLVM's version, so a cached object is never stale.  A cache folder that
cannot be written costs time, never correctness.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from pagemill.decoder.kernels.isa import Isa
from pagemill.decoder.kernels.tiles.emit import I64, Emitter, Value

Emit = Callable[..., None]

_engines: list[Any] = []  # machine code lives as long as its engine


def cache_folder() -> Path:
    """Where compiled kernels are kept: PAGEMILL_CACHE, else the user's cache folder, else a private temporary one."""
    base = os.environ.get("PAGEMILL_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache"), "pagemill"
    )
    return _writable(Path(base))


@cache
def _writable(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        private = Path(tempfile.mkdtemp(prefix="pagemill-kernels-"))
        atexit.register(shutil.rmtree, private, ignore_errors=True)
        return private


def compile_kernel(name: str, arguments: int, emit: Emit, isa: Isa) -> int:
    """Address of a C function ``void name(int64 x arguments)`` whose body ``emit(emitter, *args)`` writes."""
    text = kernel_ir(name, arguments, emit, isa)
    machine, key = _target(isa)
    digest = hashlib.sha256(repr((text, key, llvm.llvm_version_info)).encode()).hexdigest()[:32]
    path = cache_folder() / "kernels" / f"{name}-{digest}.o"
    try:
        code = path.read_bytes()
    except OSError:
        code = _optimised(text, machine, asm=False)
        _keep(path, code)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    return int(engine.get_function_address(name))


def kernel_ir(name: str, arguments: int, emit: Emit, isa: Isa) -> str:
    """The kernel as LLVM IR text."""
    module = ir.Module(name)
    module.triple = isa.triple or llvm.get_process_triple()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64] * arguments), name)
    function.attributes.add("nounwind")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    args: tuple[Value, ...] = function.args
    emit(Emitter(builder, isa), *args)
    builder.ret_void()
    return str(module)


def kernel_assembly(name: str, arguments: int, emit: Emit, isa: Isa) -> str:
    """The kernel as assembly text of the variant's CPU, also of one that this machine is not."""
    return str(_optimised(kernel_ir(name, arguments, emit, isa), _target(isa)[0], asm=True))


def _optimised(text: str, machine: Any, *, asm: bool) -> Any:
    module = llvm.parse_assembly(text)
    module.verify()
    tuning = llvm.create_pipeline_tuning_options()
    tuning.speed_level = 2
    tuning.loop_vectorization = tuning.slp_vectorization = False
    llvm.create_pass_builder(machine, tuning).getModulePassManager().run(module, llvm.create_pass_builder(machine, tuning))
    return machine.emit_assembly(module) if asm else machine.emit_object(module)


@cache
def _target(isa: Isa) -> tuple[Any, str]:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    host = not isa.cpu
    cpu = llvm.get_host_cpu_name() if host else isa.cpu
    # LLVM's list of an ARM host lacks what the variant uses: its own features are always passed
    listed = [llvm.get_host_cpu_features().flatten()] if host else []
    features = ",".join(name for name in (*listed, isa.features) if name)
    triple = isa.triple or llvm.get_process_triple()
    target = llvm.Target.from_triple(triple)
    machine = target.create_target_machine(cpu=cpu, features=features, opt=3, jit=True)
    return machine, f"{triple} {cpu} {features}"


def _keep(path: Path, code: bytes) -> None:
    """Write the object for other processes: a private name, then an atomic rename; failing is harmless."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(code)
        os.replace(temporary, path)
    except OSError:
        return
