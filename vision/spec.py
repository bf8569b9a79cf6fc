"""Facts of a vision encoder, as frozen records.  ``vision.archs`` fills them from an mmproj header."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from pagemill.decoder import AttentionSpec, BlockSpec, NormSpec, RopeSpec


class VisionRole(Enum):
    """What a tensor is for that only encoders have; those of transformer blocks have decoder's ``Role``."""

    PATCH_EMBEDDING = "patch_embedding"
    PRE_NORM = "pre_norm"
    PROJECTOR_NORM = "projector_norm"
    PROJECTOR_MERGE = "projector_merge"
    PROJECTOR_IN = "projector_in"
    PROJECTOR_OUT = "projector_out"


@dataclass(frozen=True, slots=True)
class VisionSpec:
    """A pre-norm patch transformer with 2-D rope and full attention, and the projector after it.

    width, ff_width, heads, layers: of the encoder.  out_width: width of an embedding row, the text model's.
    merge: a merge x merge block of patches becomes one row.  longest_edge_px: larger pages shrink to it, none is enlarged.
    mean, std: per channel, of pixels in 0..1.  projector_eps: the projector's norm (the text model's eps).
    rope_pairing: which two dimensions of a head form a pair, (2i, 2i+1) for ``adjacent`` or (i, i + head_dim/2) for ``halves``.
    """

    architecture: str
    width: int
    ff_width: int
    heads: int
    layers: int
    patch_px: int
    merge: int
    longest_edge_px: int
    out_width: int
    eps: float
    projector_eps: float
    rope_base: float
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    rope_pairing: Literal["adjacent", "halves"] = "adjacent"

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.width // self.heads

    @property
    def block(self) -> BlockSpec:
        """One transformer block; its angles come from the page's grid, not from a base."""
        rope = RopeSpec(self.rope_base, self.head_dim, self.rope_pairing)
        attention = AttentionSpec(self.heads, self.heads, self.head_dim, self.head_dim**-0.5, rope=rope)
        return BlockSpec(self.width, self.ff_width, NormSpec("rms", self.eps), attention, "silu")

    @property
    def patch_width(self) -> int:
        """Numbers in one patch: three channels of patch_px x patch_px."""
        return 3 * self.patch_px**2

    @property
    def block_px(self) -> int:
        """Side of the square of pixels that becomes one embedding row."""
        return self.patch_px * self.merge
