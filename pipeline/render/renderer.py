"""What rendering children do: count a document's pages, render one.  Imports neither numba nor the engine."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass

from PIL import Image

from pagemill.pipeline.documents.content import Content
from pagemill.pipeline.documents.documents import InspectRequest, OpenDocument, open_document
from pagemill.pipeline.errors import PageError, Unreadable
from pagemill.pipeline.page import PageImage, PageRef
from pagemill.pipeline.render.preprocess import RenderSettings


@dataclass(frozen=True, slots=True)
class RenderRequest:
    """One page to render.  content: of its document.  password: of an encrypted PDF."""

    ref: PageRef
    content: Content
    settings: RenderSettings
    password: str | None = None


class Renderer:
    """Answers inspect and render requests; keeps the last document open, since its next page is likely to follow."""

    def __init__(self) -> None:
        Image.MAX_IMAGE_PIXELS = None  # preprocess.image_size has the limit
        self._opened: tuple[Content, str | None] | None = None
        self._document: OpenDocument | None = None

    def __call__(self, request: InspectRequest | RenderRequest) -> int | PageImage | PageError:
        """The page count, the page, or why there is none."""
        try:
            if isinstance(request, InspectRequest):
                return self._open(request.content, request.password).pages
            return render_page(self._open(request.content, request.password), request.ref, request.settings)
        except PageError as error:
            return error

    def _open(self, content: Content, password: str | None) -> OpenDocument:
        """The document, from the last request where it is the same."""
        if self._document is not None and self._opened == (content, password):
            return self._document
        if self._document is not None:
            self._document.close()
        self._document = None
        self._document, self._opened = open_document(content, password), (content, password)
        return self._document


def render_page(document: OpenDocument, ref: PageRef, settings: RenderSettings) -> PageImage:
    """One page of an open document.  Raises PageError."""
    started = time.perf_counter()
    if ref.page >= document.pages:
        raise Unreadable(f"page {ref.number} does not exist: found {document.pages} pages; the file has changed")
    page = document.render(ref.page, settings)
    image_hash = hashlib.sha256(repr(page.pixels.shape).encode() + b"\n")
    image_hash.update(page.pixels.data)
    seconds = time.perf_counter() - started
    return PageImage(ref, page.pixels, image_hash.hexdigest(), page.dpi, seconds, page.geometry, page.objects, page.mended)
