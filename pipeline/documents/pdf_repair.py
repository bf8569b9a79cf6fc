"""A PDF that pdfium does not open, rebuilt once by pikepdf from the objects that are still there.

Runs in a child process only.  What was lost stays visible: pages that the file once claimed and no longer has, and pages
whose content was cut, fail by themselves.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pikepdf

from pagemill.pipeline.documents.content import Content, open_content, size_of
from pagemill.pipeline.errors import PasswordNeeded, Unreadable

LARGEST_BYTES = 1 << 29  # a larger file is not rebuilt: it would be in memory twice
LARGEST_UNIT = 75_000.0  # a page of a point would be a kilometre
MOST_PAGES = 100_000  # a larger claim is nonsense
OBJECT_NUMBER_BYTES = 16
_OBJECT = re.compile(rb"(\d+)[ \t]+(\d+)[ \t]+obj\b")
_PAGE_TREE = re.compile(rb"/Type\s*/Pages\b")
_PAINTING = re.compile(rb"(?<![^\s\])>])(?:Tj|TJ|Do|EI|sh|[fFSsBb]\*?|['\"])(?![^\s/\[(<])")
_COUNT = re.compile(rb"/Count\s+(\d{1,6})\b")


@dataclass(frozen=True, slots=True)
class Mended:
    """A rebuilt document.

    pages: as many as it has or once claimed to have, whichever is more.  cut: 0-based pages whose content or picture was
    the object at which the file broke off.
    """

    content: bytes
    pages: int
    cut: frozenset[int]


def mend(content: Content, password: str | None) -> Mended | None:
    """The document rebuilt, None where too little is left of it.  Raises PasswordNeeded."""
    damaged = _read(content)
    if damaged is None:
        return None
    try:
        with pikepdf.open(io.BytesIO(damaged), password=password or "") as pdf:
            pages, cut = len(pdf.pages), _cut_pages(pdf, damaged)
            buffer = io.BytesIO()
            pdf.save(buffer, encryption=False)
    except pikepdf.PasswordError as error:
        raise PasswordNeeded("PDF is damaged, and encrypted by a password that is missing or wrong") from error
    except (pikepdf.PdfError, pikepdf.ForeignObjectError, ValueError, TypeError, AttributeError, RuntimeError):
        return None
    return Mended(buffer.getvalue(), max(pages, _claimed_pages(damaged)), cut) if pages else None


def user_units(content: Content, password: str | None) -> dict[int, float]:
    """Page -> how many 1/72 inch its unit is, for pages that say so.  pdfium does not tell."""
    try:
        with open_content(content) as file, pikepdf.open(file, password=password or "") as pdf:
            units = {number: float(page.obj.get("/UserUnit", 1)) for number, page in enumerate(pdf.pages)}
    except (pikepdf.PdfError, ValueError, TypeError, AttributeError, RuntimeError, OSError):
        return {}
    return {number: unit for number, unit in units.items() if unit != 1 and 0 < unit <= LARGEST_UNIT}


def painting_operators(content: Content, password: str | None, page: int) -> int:
    """How many painting operators a page's content has, for a page of which pdfium drew none: it ignores content that
    is missing or does not decode.  Raises Unreadable where that is so."""
    try:
        with open_content(content) as file, pikepdf.open(file, password=password or "") as pdf:
            found = pdf.pages[page].obj
            contents = found.get("/Contents")
            if contents is None and not _names_content(content, found.objgen):
                return 0
            streams = list(contents) if isinstance(contents, pikepdf.Array) else [contents]
            if not all(isinstance(stream, pikepdf.Stream) for stream in streams):
                raise Unreadable(f"page {page + 1} lost its content: the file is damaged; copy it again")
            return sum(len(_PAINTING.findall(stream.read_bytes())) for stream in streams)
    except pikepdf.DataDecodingError as error:
        raise Unreadable(f"page {page + 1} has content that cannot be decoded: the file is damaged; copy it again") from error
    except (pikepdf.PdfError, IndexError, ValueError, TypeError, AttributeError, RuntimeError, OSError):
        return 0  # pdfium and pikepdf disagree on what the page is


def _names_content(content: Content, objgen: tuple[int, int]) -> bool:
    """Does the page object name a content that is nowhere?  pikepdf hides entries whose object does not exist."""
    whole = _read(content) or b""
    start = whole.rfind(b"\n%d %d obj" % objgen)
    return start >= 0 and b"/Contents" in whole[start : whole.find(b"endobj", start)]


def _read(content: Content) -> bytes | None:
    """All of it, None where that would be too much."""
    if size_of(content) > LARGEST_BYTES:
        return None
    with open_content(content) as file:
        return file.read()


def _claimed_pages(damaged: bytes) -> int:
    """The largest count of any page tree node that is left in the file."""
    largest = 0
    for node in _PAGE_TREE.finditer(damaged):
        start, end = damaged.rfind(b" obj", 0, node.start()), damaged.find(b"endobj", node.end())
        counts = [int(count) for count in _COUNT.findall(damaged[max(start, 0) : end if end > 0 else len(damaged)])]
        largest = max([largest, *(count for count in counts if count <= MOST_PAGES)])
    return largest


def _cut_pages(pdf: pikepdf.Pdf, damaged: bytes) -> frozenset[int]:
    """The pages that use the object within which the file ends."""
    start = damaged.rfind(b" obj")
    last = _OBJECT.search(damaged, max(0, start - OBJECT_NUMBER_BYTES))
    if start < 0 or last is None or damaged.find(b"endobj", start) >= 0:
        return frozenset()
    broken = (int(last[1]), int(last[2]))
    return frozenset(number for number, page in enumerate(pdf.pages) if any(one.objgen == broken for one in _streams(page.obj)))


def _streams(page: pikepdf.Object) -> Iterator[pikepdf.Object]:
    """A page itself, its content streams, and its pictures and forms."""
    yield page
    contents = page.get("/Contents")
    yield from contents if isinstance(contents, pikepdf.Array) else [] if contents is None else [contents]
    resources = page.get("/Resources")
    pictures = resources.get("/XObject") if isinstance(resources, pikepdf.Dictionary) else None
    if isinstance(pictures, pikepdf.Dictionary):
        yield from (pictures[name] for name in pictures.keys())  # noqa: SIM118 (a pikepdf dictionary)
