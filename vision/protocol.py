"""What every backend of the encoder offers."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pagemill.vision.patches import Patches
from pagemill.vision.spec import VisionSpec


class Encoder(Protocol):
    """One page at a time through the encoder and its projector.

    shares_cores: whether it computes on the cores that the text model needs, so that they take turns.
    """

    spec: VisionSpec
    shares_cores: bool

    def encode(self, patches: Patches) -> NDArray[np.float32]:
        """Embedding rows of one page: (blocks, out_width) float32, in reading order; the caller's to keep.

        Raises BadPixels for patches of another shape, BrokenRows for rows that are not numbers.
        """
        ...

    def close(self) -> None:
        """Release threads and memory; the encoder cannot be used after."""
        ...
