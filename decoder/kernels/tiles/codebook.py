"""4-bit codes to the bytes of a codebook, by each CPU family's table lookup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pagemill.decoder.kernels.tiles.dots import takes_signed_bytes
from pagemill.decoder.kernels.tiles.emit import I8, Emitter, Value, vector

SIZE = 16

# Dot product family -> intrinsic (table, codes), and its bytes. x86 looks up within each 16 bytes, so the table repeats.
LOOKUPS: Mapping[str, tuple[str, int]] = {
    "vnni": ("llvm.x86.avx512.pshuf.b.512", 64),
    "maddubs": ("llvm.x86.avx2.pshuf.b", 32),
    "sdot": ("llvm.aarch64.neon.tbl1.v16i8", 16),
}


def look_up(e: Emitter, codes: Value, codebook: Sequence[int]) -> Value:
    """codes: a vector of bytes below 16.  Returns their bytes as ``dot_codes`` takes 8-bit codes: signed, or plus 128."""
    if len(codebook) != SIZE:
        raise ValueError(f"expected a codebook of {SIZE} bytes, found {len(codebook)}")
    table = list(codebook) if takes_signed_bytes(e.isa) else [(value + 128) % 256 for value in codebook]
    if e.isa.dot not in LOOKUPS:
        return _chosen(e, codes, table)
    name, size = LOOKUPS[e.isa.dot]
    parts = []
    for first in range(0, codes.type.count, size):
        part = e.shuffle(codes, codes, range(first, first + size))
        parts.append(e.call(name, vector(I8, size), e.bytes_of(table * (size // SIZE)), part))
    while len(parts) > 1:
        width = 2 * parts[0].type.count
        parts = [e.shuffle(low, high, range(width)) for low, high in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _chosen(e: Emitter, codes: Value, table: Sequence[int]) -> Value:
    """Plain LLVM: a comparison and a choice for each entry."""
    found = e.const(table[0], codes.type)
    for code, value in enumerate(table[1:], 1):
        is_it = e.b.icmp_unsigned("==", codes, e.const(code, codes.type))
        found = e.b.select(is_it, e.const(value, codes.type), found)
    return found
