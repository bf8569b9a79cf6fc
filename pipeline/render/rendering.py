"""What a document in a child process gives for one page, before it becomes a ``PageImage``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pagemill.pipeline.geometry import PageGeometry


@dataclass(frozen=True, slots=True, eq=False)
class Rendering:
    """One page as pixels.

    pixels: (height, width, 3) uint8 RGB.  dpi: their dots per inch, None where the file does not say.
    geometry: where they lie on a PDF page, None for image files.  objects: how many texts, pictures and paths a PDF page
    draws, None for image files: a page that draws something and shows no ink is suspect.
    mended: how a damaged document was opened after all, "" where it was whole.
    """

    pixels: NDArray[np.uint8]
    dpi: float | None
    geometry: PageGeometry | None = None
    objects: int | None = None
    mended: str = ""
