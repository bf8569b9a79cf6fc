"""Which files are documents, what kind and how many pages; and opening them, in a child process only.

The kind comes from the content, never from the extension.  ``Inspector`` and ``inspect`` are called by the parent: they read
a kilobyte themselves and leave the rest to a child with limits on time and memory.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self

from pagemill.pipeline.child import Child
from pagemill.pipeline.errors import PageError, TooLarge, Unreadable
from pagemill.pipeline.render.preprocess import RenderSettings
from pagemill.pipeline.render.rendering import Rendering

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
    """What the parent asks a child about one file."""

    path: Path
    password: str | None


class Document(Protocol):
    """An open document in a child process."""

    pages: int

    def render(self, page: int, settings: RenderSettings) -> Rendering:
        """Page ``page`` as pixels.  Raises PageError."""

    def close(self) -> None:
        """Close the file."""


class Inspector:
    """Inspects many documents with one child process; a hostile one costs that child and nothing else."""

    def __init__(self, *, timeout_seconds: float = INSPECT_SECONDS, memory_bytes: int = MEMORY_BYTES) -> None:
        self._child = Child(timeout_seconds=timeout_seconds, memory_bytes=memory_bytes)

    def inspect(self, path: Path, *, password: str | None = None, max_pages: int = MAX_PAGES) -> DocumentInfo:
        """Kind and page count, or a PageError that says why the file cannot be used."""
        kind = sniff(path)
        if kind not in ("pdf", "tiff"):
            return DocumentInfo(kind, 1)  # one page by definition; whether it decodes shows when it is rendered
        self._child.ask(InspectRequest(path, password))
        reply = self._child.wait()
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


def inspect(path: Path, *, password: str | None = None, max_pages: int = MAX_PAGES) -> DocumentInfo:
    """Kind and page count of one file; use an ``Inspector`` for many."""
    with Inspector() as inspector:
        return inspector.inspect(path, password=password, max_pages=max_pages)


def document_hash(path: Path) -> str:
    """sha256 of the file, hexadecimal: the identity of a document, whatever its name."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sniff(path: Path) -> DocumentKind:
    """The kind of a file by its first kilobyte; Unreadable where it is none of ours."""
    try:
        with path.open("rb") as file:
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


def open_document(path: Path, password: str | None) -> Document:
    """Open a file by its kind.  For child processes: the libraries behind this crash and hang on hostile files."""
    kind = sniff(path)
    if kind == "pdf":
        from pagemill.pipeline.documents.pdf import Pdf  # pdfium is loaded only where a PDF is opened

        return Pdf(path, password)
    from pagemill.pipeline.documents.raster import Images

    return Images(path, multipage=kind == "tiff")
