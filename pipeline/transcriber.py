"""From pages of documents to their texts: rendering and reading as one stage."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from pagemill.pipeline.errors import PageError
from pagemill.pipeline.page import PageFailure, PageImage, PageRef, PageText
from pagemill.pipeline.reading.settings import ReadSettings
from pagemill.pipeline.render.renderer import RenderRequest
from pagemill.pipeline.stage import Stage, WaitingStage

_log = logging.getLogger("pagemill")

Rendering = WaitingStage[RenderRequest, PageImage | PageFailure, PageRef]


class ReadingStage(Stage[PageImage, PageText, PageRef], Protocol):
    """``PageReader``, or what stands for it."""

    def submit(self, image: PageImage, settings: ReadSettings | None = None) -> PageRef:
        """Take in one page, with settings of its own or those of all."""


class Transcriber:
    """A stage from RenderRequest to PageText, or PageFailure for a page that has no image.

    rendering, reader: its stages, which their owner closes.  check: raises the PageError of a page whose document is no
    longer what it was when the page was submitted; asked once it is rendered.
    """

    def __init__(self, rendering: Rendering, reader: ReadingStage, check: Callable[[RenderRequest], None]) -> None:
        self._rendering, self._reader, self._check = rendering, reader, check
        self._pages: dict[PageRef, tuple[RenderRequest, ReadSettings | None]] = {}  # not yet read
        self._images: deque[PageImage] = deque()  # of those, in order, what waits for the reader
        self._reading: set[PageRef] = set()

    @property
    def room(self) -> int:
        """How many more pages may be on their way to the reader."""
        return max(0, self._rendering.room - len(self._images))

    @property
    def reading(self) -> int:
        """How many pages the reader has."""
        return len(self._reading)

    @property
    def rendering(self) -> int:
        """How many pages are rendered or wait for the reader."""
        return len(self._pages)

    def submit(self, request: RenderRequest, settings: ReadSettings | None = None) -> PageRef:
        """Transcribe a page.  settings: how it is read, None for the reader's own."""
        self._pages[request.ref] = request, settings
        return self._rendering.submit(request)

    def step(self) -> list[PageText | PageFailure]:
        """Give the reader what it has room for, and go on by a token a page."""
        ended: list[PageText | PageFailure] = []
        for rendered in self._rendering.step():
            if isinstance(rendered, PageImage):
                self._images.append(rendered)
            else:
                del self._pages[rendered.ref]
                ended.append(rendered)
        while self._images and self._reader.room:
            failure = self._read(self._images.popleft())
            if failure is not None:
                ended.append(failure)
        texts = self._reader.step()
        self._reading.difference_update(text.ref for text in texts)
        return ended + list(texts)

    def wait(self, seconds: float) -> None:
        """Wait for an image, unless the reader has work."""
        if not self._reading and not self._images:
            self._rendering.wait(seconds)

    def cancel(self, ref: PageRef) -> None:
        """Drop a page, wherever it is."""
        self._rendering.cancel(ref)
        self._reader.cancel(ref)
        self._images = deque(image for image in self._images if image.ref != ref)
        self._pages.pop(ref, None)
        self._reading.discard(ref)

    def close(self) -> None:
        """Drop all pages."""
        for ref in [*self._pages, *self._reading]:
            self.cancel(ref)

    def _read(self, image: PageImage) -> PageFailure | None:
        request, settings = self._pages.pop(image.ref)
        try:
            self._check(request)  # after rendering: what was drawn is what was looked at
            self._reader.submit(image, settings)
        except PageError as error:
            return PageFailure(image.ref, error)
        except Exception as error:  # one page must not end the run; the log has the trace
            _log.exception("%s", image.ref)
            return PageFailure(image.ref, PageError(f"internal error, please report it: {type(error).__name__}: {error}"))
        self._reading.add(image.ref)
        return None
