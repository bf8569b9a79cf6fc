"""How keys and values are stored: one row of ``CODECS`` a way.  The layouts are drawn here, once.

The memory of one (layer, kv head) is a K region, then a V region, of ``capacity`` positions each: whole blocks of 256
positions, one after the other, so that attention reads either region as one stream.  d is a dimension, p a position:

    f32, f16    K [p/16][d][16 positions]                       V [p][d]
    bf16        K [p/16][d/2][16 positions][2 dimensions]       V [p/2][d][2 positions]
    int8_bf16   K [p/16]: codes uint8 [d/4][16 positions][4 dimensions], 128 is zero; scales float32 [16 positions]
                V as bf16; a block of K is as long as one of V, its end unused
    q8_0        K [p/16]: codes uint8 [d/4][16 positions][4 dimensions], 128 is zero; scales float16 [d/32][16 positions]
                V [p/256][d/32]: scales float16 [256 positions]; codes int8 [64][32 dimensions][4 positions]

q8_0 stores rotated keys and values (``rotation``): a Hadamard matrix spreads outliers over the head before codes are rounded.
int8_bf16, the encoder's, rotates keys only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

BLOCK_POSITIONS = 256  # positions per block; also keys per step of a flash attention, at absolute multiples

SCALE_VALUES = 32  # values that share a scale in q8_0

VALUES_BYTES = BLOCK_POSITIONS * (2 + SCALE_VALUES)  # bytes of 32 dimensions of a block of values in q8_0

_VALUE_ROTATION = 64


@dataclass(frozen=True, slots=True)
class Codec:
    """One way of storing.  value_bytes: of a code, the larger where keys and values differ.  scale_bytes: of a scale per 32
    codes.  byte_keys: keys are bytes with a scale a position.  for_patches: vision only; no decode kernel."""

    name: Literal["f32", "f16", "bf16", "int8_bf16", "q8_0"]
    value_bytes: int
    scale_bytes: int = 0
    byte_keys: bool = False
    for_patches: bool = False

    def block_bytes(self, head_dim: int) -> int:
        """Bytes of 256 positions of one region of one kv head."""
        return BLOCK_POSITIONS * (head_dim * self.value_bytes + head_dim // SCALE_VALUES * self.scale_bytes)

    def position_bytes(self, kv_heads: int, head_dim: int) -> int:
        """Bytes of one cached position of one layer, keys and values."""
        return 2 * kv_heads * self.block_bytes(head_dim) // BLOCK_POSITIONS

    def head_bytes(self, head_dim: int, capacity: int) -> int:
        """Bytes of both regions of one kv head."""
        return 2 * (capacity // BLOCK_POSITIONS) * self.block_bytes(head_dim)

    def refusal(self, head_dim: int) -> str | None:
        """Why heads of this size cannot be stored, or None."""
        multiple = SCALE_VALUES if self.scale_bytes or self.byte_keys else 16
        if head_dim % multiple:
            return f"kv cache {self.name} needs head_dim in multiples of {multiple}, found {head_dim}"
        return None

    def key_rotation(self, head_dim: int) -> int:
        """Size of the Hadamard blocks of queries and keys: the largest 64 * 2^i dividing head_dim; 0 is none."""
        is_rotated = self.scale_bytes or self.byte_keys
        return head_dim & -head_dim if is_rotated and head_dim % 64 == 0 else 0

    def value_rotation(self, head_dim: int) -> int:
        """Size of the Hadamard blocks of values and outputs; 0 is none."""
        return _VALUE_ROTATION if self.scale_bytes and head_dim % _VALUE_ROTATION == 0 else 0


CODECS: Mapping[str, Codec] = {
    "f32": Codec("f32", 4),
    "f16": Codec("f16", 2),
    "bf16": Codec("bf16", 2, for_patches=True),
    "int8_bf16": Codec("int8_bf16", 2, byte_keys=True, for_patches=True),
    "q8_0": Codec("q8_0", 1, scale_bytes=2),
}


def codec_named(name: str) -> Codec:
    """A sequence's codec; ValueError for a name that is none."""
    names = [codec.name for codec in CODECS.values() if not codec.for_patches]
    if name not in names:
        raise ValueError(f"kv cache {name!r} is not one of {', '.join(names)}")
    return CODECS[name]


def round_capacity(positions: int) -> int:
    """The smallest whole number of blocks that holds ``positions``, in positions."""
    return max(1, -(-positions // BLOCK_POSITIONS)) * BLOCK_POSITIONS
