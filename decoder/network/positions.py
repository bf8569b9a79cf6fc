"""Rotary position tables."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pagemill.decoder.spec import RopeSpec

Floats = NDArray[np.float32]


def rope_tables(rope: RopeSpec, divisors: Floats | None, positions: int) -> tuple[Floats, Floats]:
    """cos and sin: (positions, dims / 2) float32, times the attention factor.

    divisors: (dims / 2,), of each frequency; from the file's rope_freqs tensor.  Angles are float32 products, as in the
    implementations that models were trained with.
    """
    frequencies = _frequencies(rope).astype(np.float32)
    if divisors is not None:
        frequencies = frequencies / divisors[: rope.dims // 2]
    angles = (np.arange(positions, dtype=np.float32)[:, None] * frequencies).astype(np.float64)
    factor = rope.attention_factor
    return (np.cos(angles) * factor).astype(np.float32), (np.sin(angles) * factor).astype(np.float32)


def _frequencies(rope: RopeSpec) -> NDArray[np.float64]:
    """Radians per position of each pair, scaled for a longer context where the file asks for it."""
    plain: NDArray[np.float64] = rope.base ** (-np.arange(0, rope.dims, 2) / rope.dims)
    if rope.scaling == "linear":
        return plain / rope.factor
    if rope.scaling == "yarn":
        kept = _yarn_kept(rope)
        return plain / rope.factor * (1 - kept) + plain * kept
    return plain


def _yarn_kept(rope: RopeSpec) -> NDArray[np.float64]:
    """How far each frequency keeps its pace: 1 for fast pairs, 0 for slow ones, a ramp between (Peng et al. 2023, 3.2)."""

    def pair_of(turns: float) -> float:
        return rope.dims * math.log(rope.original_context / (turns * 2 * math.pi)) / (2 * math.log(rope.base))

    low = max(math.floor(pair_of(rope.beta_fast)), 0)
    high = min(math.ceil(pair_of(rope.beta_slow)), rope.dims - 1)
    ramp = (np.arange(rope.dims // 2) - low) / max(high - low, 0.001)
    return 1 - np.clip(ramp, 0, 1)
