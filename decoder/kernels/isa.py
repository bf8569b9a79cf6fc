"""What a CPU's vector unit can do, as facts that emitters branch on.

Layouts never depend on the CPU: a row group is always 16 rows, a vector of this code always has 16 float32 lanes; LLVM splits
it where registers are narrower.  The facts here choose the integer dot product, the bf16 dot product and how many
activations one tile holds in registers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from pagemill.decoder.kernels.cpu_features import host_features, host_machine

LANES = 16  # float32 lanes of every vector, and rows of every row group


@dataclass(frozen=True, slots=True)
class Isa:
    """One CPU variant.

    cpu, features, triple: LLVM's names; an empty cpu is the host, whose features are added to these; an empty triple is the
    host's.  needs: LLVM's names of the features that its kernels use.
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
    needs: frozenset[str] = frozenset()

    @property
    def machine(self) -> str:
        """The instruction set, as its triple begins; "" for any."""
        return self.triple.partition("-")[0]


_X86, _ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
_VNNI = frozenset({"avx512f", "avx512bw", "avx512vl", "avx512vnni"})
AVX512 = Isa("avx512", "znver4", "", _X86, "vnni", 16, True, (1, 2, 4, 8, 16), _VNNI | {"avx512bf16"})
AVX512_NO_BF16 = Isa("avx512-vnni", "cascadelake", "", _X86, "vnni", 16, False, (1, 2, 4, 8, 16), _VNNI)
AVX2 = Isa("avx2", "haswell", "", _X86, "maddubs", 8, False, (1, 2, 4), frozenset({"avx2", "fma", "f16c"}))
NEON = Isa("neon", "apple-m1", "+dotprod", _ARM, "sdot", 4, False, (1, 2, 4, 8), frozenset({"neon", "dotprod"}))
PORTABLE = Isa("portable", "", "", "", "generic", 4, False, (1, 2, 4))
ISAS: Mapping[str, Isa] = {isa.name: isa for isa in (AVX512, AVX512_NO_BF16, AVX2, NEON, PORTABLE)}  # the best first


@cache
def detect() -> Isa:
    """The best variant that this CPU runs, compiled for this very CPU; ``PORTABLE`` where no other is known."""
    return _on_host(choose(host_machine(), host_features()))


def choose(machine: str, features: frozenset[str]) -> Isa:
    """The best variant for a CPU.  machine: x86_64, aarch64 or another.  features: LLVM's names."""
    return next(isa for isa in ISAS.values() if isa.machine in ("", machine) and isa.needs <= features)


def reasons(machine: str, features: frozenset[str]) -> list[str]:
    """Why no better variant was chosen for a CPU: what each of them needs and does not find."""
    chosen = choose(machine, features)
    better = list(ISAS.values())[: list(ISAS).index(chosen.name)]
    return [f"no {isa.name}: {lacks(isa, machine, features)}" for isa in better if isa.machine == machine]


def lacks(isa: Isa, machine: str, features: frozenset[str]) -> str:
    """What a CPU lacks to run a variant, "" where it runs."""
    if isa.machine not in ("", machine):
        return f"it is for {isa.machine}, this CPU is {machine}"
    missing = ", ".join(sorted(isa.needs - features))
    return f"this CPU lacks {missing}" if missing else ""


def named(name: str) -> Isa:
    """The variant called ``name``; ``auto`` detects.  Another than the best is compiled for its own CPU, to be what it says.

    Raises ValueError for a name that is not in ``ISAS``, and for a variant that the host cannot run.
    """
    if name == "auto":
        return detect()
    if name not in ISAS:
        raise ValueError(f"CPU variant {name!r} is not one of auto, {', '.join(ISAS)}")
    missing = lacks(ISAS[name], host_machine(), host_features())
    if missing:
        raise ValueError(f"CPU variant {name!r} cannot run here: {missing}; use auto")
    return detect() if name == detect().name else replace(ISAS[name], triple="")


def _on_host(isa: Isa) -> Isa:
    return replace(isa, cpu="", triple="")
