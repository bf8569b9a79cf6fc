"""The records that a page is on its way through the pipeline: a reference, an image, a text.  Plain facts, no behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pagemill.pipeline.errors import PageError
from pagemill.pipeline.geometry import PageGeometry

PageStatus = Literal["ok", "low_confidence", "truncated", "looped", "blank", "failed"]

# The page of a document that could not be opened: how many it has is not known, and that it failed is recorded once.
WHOLE_DOCUMENT = -1


@dataclass(frozen=True, slots=True)
class PageRef:
    """Which page.  Store, ledger, reports and review know a page by it.

    document_hash: sha256 of the document's content, hexadecimal.  page: 0-based, or WHOLE_DOCUMENT.
    name: the document's name for people, no part of the identity.
    """

    document_hash: str
    page: int
    name: str = field(default="", compare=False)

    @property
    def number(self) -> int:
        """The page as people count it, from 1; 1 for a whole document."""
        return max(self.page, 0) + 1

    def __str__(self) -> str:
        return f"{self.name or self.document_hash[:12]}, page {self.number}"


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
    """A page that has no image or no text, and why."""

    ref: PageRef
    error: PageError


@dataclass(frozen=True, slots=True)
class Attempt:
    """One reading of a page, and what was done to the page for it.

    tokens, mean_log_prob: of this reading.  turn: degrees clockwise that the page was turned by.  scale: of its size.
    temperature: None for that of the settings.  parts: 2 where the page was read as halves, one after the other.
    seconds: of encoding and decoding; differs from run to run.
    """

    status: PageStatus
    reason: str = ""
    tokens: int = 0
    mean_log_prob: float | None = None
    turn: int = 0
    scale: float = 1.0
    temperature: float | None = None
    parts: int = 1
    seconds: float = field(default=0.0, compare=False)

    @property
    def changes(self) -> str:
        """What was done differently, in words; "" where nothing was."""
        changes = [f"turned {self.turn} degrees"] if self.turn else []
        changes += [] if self.temperature is None else [f"temperature {self.temperature:g}"]
        changes += [] if self.scale == 1.0 else [f"size {self.scale:g}"]
        changes += [] if self.parts == 1 else ["halves"]
        return ", ".join(changes)


@dataclass(frozen=True, slots=True)
class Picture:
    """The size of the image that a text was read from, what its coordinates refer to.  dpi: None where it is not known."""

    width_px: int
    height_px: int
    dpi: float | None = None


@dataclass(frozen=True, slots=True)
class PageText:
    """A page's transcription, and how far to trust it.

    text: Markdown, empty for blank and failed pages.  reason: empty when status is ok.
    mean_log_prob: of the decoded tokens, None where none was decoded.
    timings: seconds by stage; they and the attempts' seconds alone differ between two runs of the same page.
    provenance: who made the text and from what: software version, hashes of model, settings and page image.
    attempts: every reading of the page, in order.  chosen: which of them text and status come from.
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
    chosen: int = 0
    word_confidences: tuple[int, ...] = ()
    measures: Mapping[str, float] = field(default_factory=dict)
    picture: Picture | None = None
    finished_at: int | None = None

    @property
    def turn(self) -> int:
        """By how many degrees clockwise the page was turned to be read: 0, 90, 180 or 270."""
        return self.attempts[self.chosen].turn if self.attempts else 0
