#!/usr/bin/env bash
# Pagemill on an emulated ARM CPU (aarch64, NEON), from the registries alone: Debian's archive and PyPI.
#
#   tests/arm/emulated.sh setup DIR                    once: qemu, an arm64 sysroot with Python 3.11, aarch64 wheels (0.5 GB)
#   tests/arm/emulated.sh pagemill DIR [CPU] ARGUMENTS...   e.g.  pagemill DIR neoverse-n1 doctor
#   tests/arm/emulated.sh test DIR [CPU] ARGUMENTS...       e.g.  test DIR max tests/decoder/test_matmul.py
#
# CPU: max (dotprod, i8mm, bf16, sve), neoverse-n1 (dotprod only, as Apple M1), cortex-a72 (none of them).  See README.md.
set -eu
repo=$(cd "$(dirname "$0")/../.." && pwd)
say() { echo "== $*" >&2; }

setup() {
  mkdir -p "$1"; dir=$(cd "$1" && pwd)
  command -v qemu-aarch64-static >/dev/null || { apt-get update -qq; apt-get install -y -qq --no-install-recommends qemu-user-static; }
  say "arm64 packages, with an apt of their own (the host's dpkg is not told)"
  apt=$dir/apt; mkdir -p "$apt"/state/lists/partial "$apt"/cache/archives/partial; : > "$apt/status"
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Codename: bookworm' | sort -u | grep -v security | head -n 1)  # the host's own
  echo "deb [arch=arm64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bookworm main" > "$apt/sources.list"
  printf '%s\n' 'APT::Architecture "arm64";' 'APT::Architectures "arm64";' 'APT::Install-Recommends "false";' \
    "Dir::State \"$apt/state\";" "Dir::State::status \"$apt/status\";" "Dir::Cache \"$apt/cache\";" \
    "Dir::Etc::SourceList \"$apt/sources.list\";" 'Dir::Etc::SourceParts "/dev/null";' > "$apt/apt.conf"
  APT_CONFIG=$apt/apt.conf apt-get update -qq
  APT_CONFIG=$apt/apt.conf apt-get install -y -qq --download-only python3.11 libstdc++6 ca-certificates >/dev/null
  mkdir -p "$dir/sysroot/proc"
  for deb in "$apt"/cache/archives/*.deb; do dpkg -x "$deb" "$dir/sysroot"; done
  say "aarch64 wheels"
  # not "pip install .": pip reads the markers of coremltools for this machine, not for the one that it downloads for
  mapfile -t needs < <(python3 -c 'import tomllib,sys; d=tomllib.load(open(sys.argv[1],"rb"))["project"]["dependencies"]; print("\n".join(x for x in d if not x.startswith("coremltools")))' "$repo/pyproject.toml")
  platforms=(); for p in manylinux2014 manylinux_2_17 manylinux_2_26 manylinux_2_27 manylinux_2_28 manylinux_2_31 manylinux_2_34; do platforms+=(--platform "${p}_aarch64"); done
  python3 -m pip install -q --target "$dir/site" --only-binary=:all: "${platforms[@]}" --python-version 3.11 --implementation cp --abi cp311 --abi abi3 --abi none \
    "${needs[@]}" pytest pytest-timeout hypothesis psutil jiwer
  # argv[0] is the wrapper, so that sys.executable is too: children that Python starts are emulated as well
  cat > "$dir/python" <<X
#!/bin/sh
exec qemu-aarch64-static -cpu "\${ARM_CPU:-max}" -L $dir/sysroot -0 $dir/python $dir/sysroot/usr/bin/python3.11 "\$@"
X
  chmod +x "$dir/python"
  du -sh "$dir/sysroot" "$dir/site" >&2
}

cpuinfo() {  # CPU: what Linux prints on such a machine
  local features='fp asimd evtstrm crc32 cpuid' implementer=0x41 part=0xd08  # Cortex-A72
  case $1 in
    max) implementer=0x61 part=0x023 features='fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt fcma lrcpc dcpop sha3 asimddp sha512 asimdfhm dit uscat ilrcpc flagm ssbs sb paca pacg dcpodp flagm2 frint' ;;  # Apple M1
    neoverse-n1) part=0xd0c features='fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp ssbs' ;;
  esac
  printf 'processor\t: 0\nFeatures\t: %s\nCPU implementer\t: %s\nCPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: %s\nCPU revision\t: 1\n\n' "$features" "$implementer" "$part"
}

environment() {  # DIR [CPU]
  dir=$(cd "$1" && pwd); shift
  export ARM_CPU=max; case "${1:-}" in max|neoverse-n1|cortex-a72) ARM_CPU=$1; shift ;; esac
  rest=("$@")
  # qemu 7.2 shows the host's /proc/cpuinfo, where LLVM looks for the CPU's name.  One CPU at a time in one DIR: numba and the
  # kernels are compiled for what this file says.
  cpuinfo "$ARM_CPU" > "$dir/sysroot/proc/cpuinfo"
  export PYTHONPATH=$dir/site:$repo PYTHONPYCACHEPREFIX=$dir/pyc PAGEMILL_CACHE=$dir/cache-$ARM_CPU
  export OPENBLAS_CORETYPE=ARMV8  # OpenBLAS's SVE code, which "max" would choose, raises floating point flags that numpy warns of
  mkdir -p "$PAGEMILL_CACHE"
}

what=$1; shift
case $what in
  setup) setup "$@" ;;
  test) environment "$@"; cd "$repo"; exec "$dir/python" -m pytest -p no:cacheprovider -q "${rest[@]}" ;;
  pagemill) environment "$@"; exec "$dir/python" -m pagemill "${rest[@]}" ;;
esac
