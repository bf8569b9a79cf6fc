"""The records that a page is on its way through the pipeline: a reference, an image, a text.  Plain facts, no behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pagemill.pipeline.errors import PageError
from pagemill.pipeline.geometry import PageGeometry

PageStatus = Literal["ok", "low_confidence", "truncated", "looped", "blank", "failed"]


@dataclass(frozen=True, slots=True)
class PageRef:
    """Which page.  Content identifies it (document_hash, page); the path only says where it lies today.

    document_hash: sha256 of the file, hexadecimal.  page: 0-based.
    """

    document: Path
    document_hash: str
    page: int


@dataclass(frozen=True, slots=True, eq=False)
class PageImage:
    """One page as the model sees it: upright, on white, at its final size, so that no stage resamples it again.

    pixels: (height, width, 3) uint8 RGB, contiguous; nobody writes to it.  image_hash: sha256 of size and pixels.
    source_dpi: pixels per inch of ``pixels``, None where the file does not say.  seconds: what rendering took.
    geometry, objects, mended: as in ``rendering.Rendering``.
    """

    ref: PageRef
    pixels: NDArray[np.uint8]
    image_hash: str
    source_dpi: float | None
    seconds: float
    geometry: PageGeometry | None = None
    objects: int | None = None
    mended: str = ""


@dataclass(frozen=True, slots=True)
class PageFailure:
    """A page that has no image, and why."""

    ref: PageRef
    error: PageError


@dataclass(frozen=True, slots=True)
class Attempt:
    """One reading of a page.  how: what was done differently, "" the first time.  tokens and mean_log_prob: of this reading.

    Its seconds are in the page's timings, as ``attempt_1`` and so on.
    """

    how: str
    status: PageStatus
    reason: str = ""
    tokens: int = 0
    mean_log_prob: float | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """The size of the image that a text was read from, what its coordinates refer to.  dpi: None where it is not known."""

    width_px: int
    height_px: int
    dpi: float | None = None


@dataclass(frozen=True, slots=True)
class PageText:
    """What a page says, and how far to trust it.

    text: Markdown, empty for blank and failed pages.  reason: empty when status is ok.
    mean_log_prob: of the decoded tokens, None where none was decoded.
    timings: seconds by stage; the only part that differs between two runs of the same page.
    provenance: who made the text and from what: software version, hashes of model, settings and page image.
    attempts: every reading of the page, in order; text and status are those of the best.
    word_confidences: percent, one for each of ``text.split()``; empty where unknown.  See ``pipeline.reading.confidence``.
    measures: what was measured on the page before it was read.
    picture: None where no image was made.  finished_at: when the record was made, seconds since 1970, None before that.
    """

    ref: PageRef
    text: str
    status: PageStatus
    reason: str = ""
    tokens: int = 0
    mean_log_prob: float | None = None
    timings: Mapping[str, float] = field(default_factory=dict)
    provenance: Mapping[str, str] = field(default_factory=dict)
    attempts: tuple[Attempt, ...] = ()
    word_confidences: tuple[int, ...] = ()
    measures: Mapping[str, float] = field(default_factory=dict)
    picture: Picture | None = None
    finished_at: int | None = None
