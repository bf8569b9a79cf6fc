"""What a CPU's vector unit can do, as facts that emitters branch on.

Layouts never depend on the CPU: a row group is always 16 rows, a vector of this code always has 16 float32 lanes; LLVM splits
it where registers are narrower.  The facts here choose the integer dot product, the bf16 dot product and how many
activations one tile holds in registers.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import llvmlite.binding as llvm

LANES = 16  # float32 lanes of every vector, and rows of every row group


@dataclass(frozen=True, slots=True)
class Isa:
    """One CPU variant.

    cpu, features: LLVM's names; an empty cpu is the host.  triple: empty is the host's.
    dot: how 4 x int8 products are summed into int32 lanes.  dot_lanes: int32 lanes of that instruction.
    bf16: whether a bf16 pair dot product exists.  tile_counts: activations per tile, smallest first.
    """

    name: str
    cpu: str
    features: str
    triple: str
    dot: Literal["vnni", "maddubs", "sdot", "generic"]
    dot_lanes: int
    bf16: bool
    tile_counts: tuple[int, ...]


AVX512 = Isa("avx512", "znver4", "", "", "vnni", 16, True, (1, 2, 4, 8, 16))
AVX512_NO_BF16 = Isa("avx512-vnni", "cascadelake", "", "", "vnni", 16, False, (1, 2, 4, 8, 16))
AVX2 = Isa("avx2", "haswell", "", "", "maddubs", 8, False, (1, 2, 4))
NEON = Isa("neon", "apple-m1", "", "aarch64-unknown-linux-gnu", "sdot", 4, False, (1, 2, 4, 8))
PORTABLE = Isa("portable", "", "", "", "generic", 4, False, (1, 2, 4))
ISAS: Mapping[str, Isa] = {isa.name: isa for isa in (AVX512, AVX512_NO_BF16, AVX2, NEON, PORTABLE)}


def detect() -> Isa:
    """The best variant that this CPU runs; ``PORTABLE`` where none is known."""
    has = {name for name, present in llvm.get_host_cpu_features().items() if present}
    if platform.machine() in ("arm64", "aarch64"):
        return _on_host(NEON) if "dotprod" in has else PORTABLE
    if {"avx512f", "avx512bw", "avx512vl", "avx512vnni", "avx512bf16"} <= has:
        return _on_host(AVX512)
    if {"avx512f", "avx512bw", "avx512vl", "avx512vnni"} <= has:
        return _on_host(AVX512_NO_BF16)
    if {"avx2", "fma", "f16c"} <= has:
        return _on_host(AVX2)
    return PORTABLE


def _on_host(isa: Isa) -> Isa:
    """The variant compiled for this very CPU."""
    return Isa(isa.name, "", "", "", isa.dot, isa.dot_lanes, isa.bf16, isa.tile_counts)


def named(name: str) -> Isa:
    """The variant called ``name``, compiled for the host where the host runs it; ``auto`` detects.

    Raises ValueError for a name that is not in ``ISAS``.
    """
    if name == "auto":
        return detect()
    if name not in ISAS:
        raise ValueError(f"CPU variant {name!r} is not one of auto, {', '.join(ISAS)}")
    found = detect()
    return found if found.name == name else ISAS[name]
