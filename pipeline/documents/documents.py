"""Which files are documents, what kind and how many pages; and opening them, in a child process only.

The kind comes from the content, never from the extension.  ``Inspector`` and ``inspect`` are called by the parent: they read
a kilobyte themselves and leave the rest to a child with limits on time and memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Protocol, Self

from pagemill.pipeline.documents.content import Content, open_content
from pagemill.pipeline.errors import Crashed, PageError, TimedOut, TooLarge, Unreadable
from pagemill.pipeline.render.preprocess import RenderSettings
from pagemill.pipeline.render.rendering import Rendering
from pagemill.vision import Child, ChildFailure

RENDERER = "pagemill.pipeline.render.renderer:Renderer"
DocumentKind = Literal["pdf", "png", "jpeg", "webp", "tiff"]
MAX_PAGES = 20_000
SNIFF_BYTES = 1024  # a PDF's header may lie anywhere in the first kilobyte
INSPECT_SECONDS = 60.0
MEMORY_BYTES = 2 << 30

_STARTS: tuple[tuple[bytes, DocumentKind], ...] = (
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"\xff\xd8\xff", "jpeg"),
    (b"II*\x00", "tiff"),
    (b"MM\x00*", "tiff"),
    (b"II+\x00", "tiff"),
    (b"MM\x00+", "tiff"),
)


@dataclass(frozen=True, slots=True)
class DocumentInfo:
    """What a file is.  pages: how many it claims; each may still turn out unreadable on its own."""

    kind: DocumentKind
    pages: int


@dataclass(frozen=True, slots=True)
class InspectRequest:
    """What the parent asks a child about one document."""

    content: Content
    password: str | None


class OpenDocument(Protocol):
    """An open document in a child process."""

    pages: int

    def render(self, page: int, settings: RenderSettings) -> Rendering:
        """Page ``page`` as pixels.  Raises PageError."""

    def close(self) -> None:
        """Close the file."""


class Inspector:
    """Inspects many documents with one child process; a hostile one costs that child and nothing else."""

    def __init__(self, *, timeout_seconds: float = INSPECT_SECONDS, memory_bytes: int = MEMORY_BYTES) -> None:
        self._child = Child(RENDERER, timeout_seconds=timeout_seconds, memory_bytes=memory_bytes)

    def inspect(self, content: Content, *, password: str | None = None, max_pages: int = MAX_PAGES) -> DocumentInfo:
        """Kind and page count, or a PageError that says why the document cannot be used."""
        kind = sniff(content)
        if kind not in ("pdf", "tiff"):
            return DocumentInfo(kind, 1)  # one page by definition; whether it decodes shows when it is rendered
        self._child.ask(InspectRequest(content, password))
        reply = self._child.wait()
        if isinstance(reply, ChildFailure):
            raise error_of(reply)
        if isinstance(reply, PageError):
            raise reply
        assert isinstance(reply, int)
        if reply > max_pages:
            raise TooLarge(f"document claims {reply} pages: expected at most {max_pages}; split it, or raise the limit")
        return DocumentInfo(kind, reply)

    def close(self) -> None:
        """End the child process."""
        self._child.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def inspect(content: Content, *, password: str | None = None, max_pages: int = MAX_PAGES) -> DocumentInfo:
    """Kind and page count of one document; use an ``Inspector`` for many."""
    with Inspector() as inspector:
        return inspector.inspect(content, password=password, max_pages=max_pages)


def error_of(failure: ChildFailure) -> PageError:
    """What a child's failure means for the page or document that it was at."""
    kinds = {"crashed": Crashed, "timed out": TimedOut, "memory": TooLarge, "error": Unreadable}
    return kinds[failure.kind](f"page cannot be rendered: {failure.message}")


def sniff(content: Content) -> DocumentKind:
    """The kind of a document by its first kilobyte; Unreadable where it is none of ours."""
    try:
        with open_content(content) as file:
            head = file.read(SNIFF_BYTES)
    except OSError as error:
        raise Unreadable(f"file cannot be read: {error.strerror}; check its name and permissions") from error
    if not head:
        raise Unreadable("file is empty: expected a PDF or an image, found 0 bytes; copy it again")
    for start, kind in _STARTS:
        if head.startswith(start):
            return kind
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "webp"
    if b"%PDF-" in head:
        return "pdf"
    raise Unreadable("not a document: expected the first bytes of a PDF, PNG, JPEG, WebP or TIFF; convert it to one of these")


def open_document(content: Content, password: str | None) -> OpenDocument:
    """Open a document by its kind.  For child processes: the libraries behind this crash and hang on hostile files."""
    kind = sniff(content)
    if kind == "pdf":
        from pagemill.pipeline.documents.pdf import Pdf  # pdfium is loaded only where a PDF is opened

        return Pdf(content, password)
    from pagemill.pipeline.documents.raster import Images

    return Images(open_content(content), multipage=kind == "tiff")
