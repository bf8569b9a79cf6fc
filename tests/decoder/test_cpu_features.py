"""The variant that each CPU gets, from what its system says of it."""

from __future__ import annotations

import pytest

from pagemill.decoder.errors import ModelError
from pagemill.decoder.kernels.cpu_features import SYSCTL, features_of_hwcap, features_of_sysctl
from pagemill.decoder.kernels.isa import AVX2, AVX512, AVX512_NO_BF16, ISAS, NEON, PORTABLE, Isa, choose, detect, reasons
from pagemill.decoder.model import cpu_variant

# "Features" of /proc/cpuinfo in the order of their bits (arch/arm64/include/uapi/asm/hwcap.h), apart from the product's table.
NAMES = """
fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt fcma lrcpc
dcpop sha3 sm3 sm4 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs sb paca pacg
"""
NAMES2 = """
dcpodp sve2 sveaes svepmull svebitperm svesha3 svesm4 flagm2 frint svei8mm svef32mm svef64mm svebf16 i8mm bf16 dgh rng bti
"""
CORTEX_A72 = "fp asimd evtstrm crc32 cpuid"  # Raspberry Pi 4
CORTEX_A76 = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp"  # Pi 5
N1 = f"{CORTEX_A76} ssbs"  # Graviton 2, Ampere Altra
V1 = f"{N1} jscvt fcma sha3 sm3 sm4 sha512 sve asimdfhm dit uscat ilrcpc flagm paca pacg dcpodp svebf16 i8mm bf16 dgh rng"
V2 = f"{V1} sve2 sveaes svepmull svebitperm svesha3 svesm4 flagm2 frint sb"  # Graviton 4, Grace
DOT = {"neon", "fullfp16", "dotprod"}
LINUX_ARM: dict[str, tuple[str, Isa, set[str]]] = {
    "Cortex-A72": (CORTEX_A72, PORTABLE, {"neon"}),
    "Cortex-A76": (CORTEX_A76, NEON, DOT),
    "Neoverse N1": (N1, NEON, DOT),
    "Neoverse V1": (V1, NEON, DOT | {"i8mm", "bf16"}),
    "Neoverse V2": (V2, NEON, DOT | {"i8mm", "bf16"}),
}
M1 = {"AdvSIMD": 1, "arm.FEAT_FP16": 1, "arm.FEAT_DotProd": 1, "arm.FEAT_I8MM": 0, "arm.FEAT_BF16": 0}
MACS = {"M1": M1, **{name: M1 | {"arm.FEAT_I8MM": 1, "arm.FEAT_BF16": 1} for name in ("M2", "M3", "M4")}}
OLD_X86 = {"sse4.2", "popcnt", "ssse3"}
HASWELL = OLD_X86 | {"avx", "avx2", "fma", "f16c", "bmi2"}
CASCADE_LAKE = HASWELL | {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512cd", "avx512vnni"}
ZEN4 = CASCADE_LAKE | {"avx512bf16", "avx512vbmi", "avx512ifma"}
X86 = {
    "Westmere": (OLD_X86, PORTABLE),
    "Haswell": (HASWELL, AVX2),
    "Cascade Lake": (CASCADE_LAKE, AVX512_NO_BF16),
    "Zen 4": (ZEN4, AVX512),
}


def hwcaps(names: str) -> tuple[int, int]:
    """AT_HWCAP and AT_HWCAP2 of a CPU with these features."""
    tables, known = (NAMES.split(), NAMES2.split()), set(names.split())
    assert known <= {*tables[0], *tables[1]}
    first, second = (sum(1 << bit for bit, name in enumerate(table) if name in known) for table in tables)
    return first, second


@pytest.mark.parametrize("cpu", LINUX_ARM)
def test_arm_under_linux_by_its_auxiliary_vector(cpu: str) -> None:
    names, isa, expected = LINUX_ARM[cpu]
    features = features_of_hwcap(*hwcaps(names))
    assert features == expected
    assert choose("aarch64", features) is isa


@pytest.mark.parametrize("mac", MACS)
def test_a_mac_by_sysctl(mac: str) -> None:
    known = {f"hw.optional.{name}": value for name, value in MACS[mac].items()}
    assert set(SYSCTL.values()) == known.keys()
    features = features_of_sysctl(lambda name: known.get(name, 0))
    assert ("i8mm" in features) == (mac != "M1")
    assert choose("aarch64", features) is NEON


@pytest.mark.parametrize("cpu", X86)
def test_x86_by_llvms_list(cpu: str) -> None:
    features, isa = X86[cpu]
    assert choose("x86_64", frozenset(features)) is isa


def test_a_machine_of_another_kind_runs_the_portable_kernels() -> None:
    assert choose("riscv64", frozenset({"v"})) is PORTABLE
    assert reasons("riscv64", frozenset()) == []


def test_what_a_better_variant_lacks_is_named() -> None:
    assert reasons("aarch64", features_of_hwcap(*hwcaps(CORTEX_A72))) == ["no neon: this CPU lacks dotprod"]
    assert reasons("x86_64", frozenset(ZEN4)) == []
    assert reasons("x86_64", frozenset(CASCADE_LAKE)) == ["no avx512: this CPU lacks avx512bf16"]


def test_a_variant_that_the_host_cannot_run_is_refused_by_name() -> None:
    here = detect()
    assert cpu_variant("auto") == cpu_variant(here.name) == here
    for isa in ISAS.values():
        if isa.machine not in ("", ISAS[here.name].machine):
            with pytest.raises(ModelError, match=f"{isa.name}' cannot run here: it is for {isa.machine}"):
                cpu_variant(isa.name)
    with pytest.raises(ModelError, match="not one of auto, avx512"):
        cpu_variant("z80")


def test_every_variant_but_the_portable_one_names_its_triple_and_what_it_needs() -> None:
    for isa in ISAS.values():
        assert bool(isa.triple) == bool(isa.needs) == bool(isa.cpu) == (isa is not PORTABLE)
