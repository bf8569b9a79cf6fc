"""Facts of a vision encoder, as one frozen record.  ``vision.archs`` fills it from an mmproj header."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class VisionSpec:
    """A Pixtral-like encoder and its projector.

    width, ff_width, heads, layers: of the encoder.  out_width: width of an embedding row, the text model's.
    merge: a merge x merge block of patches becomes one row.  longest_edge_px: larger pages shrink to it, none is enlarged.
    mean, std: per channel, of pixels in 0..1.  projector_eps: the projector's norm (the text model's eps).
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
