"""Stand-ins for the parts of a run: a reader that echoes, a source without children, a store in memory, a full disk."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pagemill.jobs.errors import DiskFull
from pagemill.jobs.inputs.discover import Document
from pagemill.pipeline.errors import Crashed, PageError
from pagemill.pipeline.page import PageFailure, PageImage, PageRef, PageText
from pagemill.pipeline.reading.settings import ReadSettings
from pagemill.pipeline.render.renderer import RenderRequest

PROVENANCE = {"software": "test", "model": "m", "settings": "s"}


class Killed(BaseException):
    """Ends a run as kill -9 does: nobody catches it."""


def fake_image(ref: PageRef) -> PageImage:
    """A small image whose first pixel is the page number."""
    pixels = np.full((2, 2, 3), ref.page % 256, np.uint8)
    return PageImage(ref, pixels, hashlib.sha256(pixels.tobytes()).hexdigest(), 72.0, 0.0)


@dataclass
class FakeRendering:
    """Images at once.  errors: what pages fail with, each time or the first times.  ahead: as of a Producer."""

    errors: dict[int, list[PageError]] = field(default_factory=dict)
    ahead: int = 4
    waiting: list[PageRef] = field(default_factory=list)

    @property
    def room(self) -> int:
        return self.ahead - len(self.waiting)

    def submit(self, request: RenderRequest) -> PageRef:
        assert self.room > 0
        self.waiting.append(request.ref)
        return request.ref

    def step(self) -> list[PageImage | PageFailure]:
        refs, self.waiting = self.waiting, []
        return [
            PageFailure(ref, self.errors[ref.page].pop(0)) if self.errors.get(ref.page) else fake_image(ref) for ref in refs
        ]

    def wait(self, seconds: float) -> None:
        """Nothing to wait for."""

    def cancel(self, ref: PageRef) -> None:
        self.waiting = [one for one in self.waiting if one != ref]

    def close(self) -> None:
        self.waiting.clear()


class EchoReader:
    """Answers with what it sees: the page number and the image's hash.  Later pages may end before earlier ones.

    statuses: page -> status other than ok.  seen: pages in the order of submission.
    """

    def __init__(self, slots: int = 4, statuses: Mapping[int, str] | None = None) -> None:
        self.slots, self.statuses = slots, dict(statuses or {})
        self.seen: list[int] = []
        self.most_at_once = 0
        self._running: dict[PageRef, tuple[int, PageImage]] = {}

    @property
    def room(self) -> int:
        return self.slots - len(self._running)

    def submit(self, image: PageImage, settings: ReadSettings | None = None) -> PageRef:
        assert self.room > 0
        self.seen.append(image.ref.page)
        steps = 1 + int(image.image_hash[:2], 16) % 3
        self._running[image.ref] = (steps, image)
        self.most_at_once = max(self.most_at_once, len(self._running))
        return image.ref

    def step(self) -> list[PageText]:
        ended = []
        for ref, (steps, image) in list(self._running.items()):
            self._running[ref] = (steps - 1, image)
            if steps == 1:
                del self._running[ref]
                ended.append(self._answer(image))
        return ended

    def cancel(self, ref: PageRef) -> None:
        self._running.pop(ref, None)

    def close(self) -> None:
        self._running.clear()

    def _answer(self, image: PageImage) -> PageText:
        status = self.statuses.get(image.ref.page, "ok")
        text = f"page {image.ref.number} of {image.ref.document_hash[:8]} looks like {image.image_hash[:16]}"
        provenance = {**PROVENANCE, "image": image.image_hash}
        return PageText(image.ref, text, status, "" if status == "ok" else "as told", 5, -0.25, {}, provenance)  # type: ignore[arg-type]


@dataclass
class MemoryStore:
    """Records in memory.  space: pages until the disk is full."""

    space: int = 1 << 30
    texts: dict[tuple[str, int], PageText] = field(default_factory=dict)
    writes: list[int] = field(default_factory=list)

    def put(self, pages: Sequence[PageText]) -> None:
        if len(self.writes) + len(pages) > self.space:
            raise DiskFull("the disk is full")
        self.writes += [page.ref.page for page in pages]
        self.texts |= {(page.ref.document_hash, page.ref.page): page for page in pages}

    def get(self, ref: PageRef) -> PageText | None:
        return self.texts.get((ref.document_hash, ref.page))

    def pages(self, document_hash: str) -> set[int]:
        return {page for document, page in self.texts if document == document_hash}


@dataclass
class FakeOutputs:
    """Notes which documents were settled, and when."""

    settled: list[str] = field(default_factory=list)

    def settle(self, document: Document) -> None:
        self.settled.append(document.found.path.name)


def crashes(times: int) -> list[PageError]:
    """Errors for a page whose rendering crashes so often."""
    return [Crashed("renderer died by SIGSEGV") for _ in range(times)]
