"""Which instructions this CPU has, by LLVM's names for them.

On x86 LLVM knows.  On ARM it does not: its list of the host's features lacks the dot product on Linux and is empty on macOS
(LLVM 15 to 20), so the kernel is asked: by HWCAP (arch/arm64/include/uapi/asm/hwcap.h) or by sysctl (hw.optional.arm).
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Callable, Mapping

import llvmlite.binding as llvm

AT_HWCAP, AT_HWCAP2 = 16, 26  # <linux/auxvec.h>
HWCAP: Mapping[str, int] = {"neon": 1 << 1, "fullfp16": 1 << 10, "dotprod": 1 << 20}
HWCAP2: Mapping[str, int] = {"i8mm": 1 << 13, "bf16": 1 << 14}
SYSCTL: Mapping[str, str] = {
    "neon": "hw.optional.AdvSIMD",
    "fullfp16": "hw.optional.arm.FEAT_FP16",
    "dotprod": "hw.optional.arm.FEAT_DotProd",
    "i8mm": "hw.optional.arm.FEAT_I8MM",
    "bf16": "hw.optional.arm.FEAT_BF16",
}


def host_features() -> frozenset[str]:
    """The features of the CPU at hand."""
    if host_machine() != "aarch64":
        return frozenset(name for name, present in llvm.get_host_cpu_features().items() if present)
    if sys.platform == "darwin":
        return features_of_sysctl(_sysctl)
    getauxval = ctypes.CDLL(None).getauxval
    getauxval.restype, getauxval.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
    return features_of_hwcap(getauxval(AT_HWCAP), getauxval(AT_HWCAP2))


def host_machine() -> str:
    """The instruction set of the CPU at hand, as LLVM's triples begin: x86_64, aarch64 or another."""
    machine = platform.machine().lower()
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(machine, machine)


def host_cpu_name() -> str:
    """The CPU's name, as LLVM calls it: apple-m1, neoverse-n1, znver4; "generic" for one that it does not know."""
    return str(llvm.get_host_cpu_name())


def features_of_hwcap(hwcap: int, hwcap2: int) -> frozenset[str]:
    """The features of an ARM CPU by the auxiliary vector of Linux."""
    tables = ((HWCAP, hwcap), (HWCAP2, hwcap2))
    return frozenset(name for table, bits in tables for name, bit in table.items() if bits & bit)


def features_of_sysctl(read: Callable[[str], int]) -> frozenset[str]:
    """The features of an Apple CPU.  read: the value of a name, 0 where there is none."""
    return frozenset(name for name, key in SYSCTL.items() if read(key) == 1)


def _sysctl(name: str) -> int:
    value, size = ctypes.c_int(0), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int))
    code = ctypes.CDLL(None).sysctlbyname(name.encode("ascii"), ctypes.byref(value), ctypes.byref(size), None, 0)
    return value.value if code == 0 else 0
