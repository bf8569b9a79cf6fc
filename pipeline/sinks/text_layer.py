"""Invisible text on the pages of a PDF: the original's own pages, or pages made of an image file's frames.

Runs in a child process (``PdfMaker`` answers ``MakePdf``), since it opens files that may be hostile.  The text stands in a
content stream of its own before the page's, in render mode 3, so nothing that the page draws can change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO

import pikepdf
from pikepdf import Array, Dictionary, Name, Stream

from pagemill.pipeline.documents.content import hash_content
from pagemill.pipeline.documents.documents import sniff
from pagemill.pipeline.errors import PageError, PasswordNeeded, Unreadable
from pagemill.pipeline.geometry import PageGeometry
from pagemill.pipeline.layout import THOUSAND, Block, blocks_of, line_text
from pagemill.pipeline.page import PageText
from pagemill.pipeline.sinks.bidi import visual_order
from pagemill.pipeline.sinks.document import SourceDocument
from pagemill.pipeline.sinks.facts import boxes_note, date_of, facts_of, xml_text
from pagemill.pipeline.sinks.glyphless import EM, WIDTH, Codes, add_font
from pagemill.pipeline.sinks.image_pages import image_pages

FONT = Name("/PagemillText")
LETTER_SHARE = 0.8  # of a line's height
LARGEST_SHARE = 1 / 50  # of the page's height, for lines in a block that is mostly white
SMALLEST_PT = 1.0
TURNS = {0: (1, 0, 0, 1), 90: (0, 1, -1, 0), 180: (-1, 0, 0, -1), 270: (0, -1, 1, 0)}


@dataclass(frozen=True, slots=True)
class MakePdf:
    """What the child is asked for."""

    document: SourceDocument
    pages: tuple[PageText, ...]


class PdfMaker:
    """Answers with the PDF's bytes."""

    def __call__(self, request: MakePdf) -> bytes | PageError:
        """The searchable PDF, or why there is none."""
        try:
            return make_pdf(request.document, request.pages)
        except PageError as error:
            return error


def make_pdf(document: SourceDocument, pages: Sequence[PageText]) -> bytes:
    """The original with the text of ``pages`` on its pages.  Raises PageError where it does not open."""
    is_pdf = sniff(document.content) == "pdf"
    if hash_content(document.content) != document.content_hash:
        raise Unreadable("the original has changed since it was read: run the job again")
    with _open(document) if is_pdf else image_pages(document.content, pages) as pdf:
        if not len(pdf.pages):
            raise Unreadable("PDF has no pages")
        codes = Codes(letter for page in pages for line in _all_lines(page) for letter in line)
        font = add_font(pdf, codes)
        for page in pages:
            if page.ref.number <= len(pdf.pages):
                add_text(pdf, pdf.pages[page.ref.number - 1], font, codes, page)
        _add_facts(pdf, document, pages)
        target = BytesIO()
        pdf.save(
            target,
            deterministic_id=True,
            fix_metadata_version=False,
            stream_decode_level=pikepdf.StreamDecodeLevel.none,
            object_stream_mode=pikepdf.ObjectStreamMode.preserve,
        )
        return target.getvalue()


def add_text(pdf: pikepdf.Pdf, page: pikepdf.Page, font: pikepdf.Object, codes: Codes, text: PageText) -> None:
    """Put a page's text in front of its content.  Lines share the height of their block evenly."""
    geometry = geometry_of(page, text.turn)
    blocks = blocks_of(text)
    if geometry is None or not blocks:
        return
    shown = [operator for block in blocks for operator in _block(geometry, block, codes)]
    content = "\n".join(["q", "BT", "3 Tr", *shown, "ET", "Q", ""]).encode("ascii")
    _give_font(page, font)
    page.contents_add(Stream(pdf, content), prepend=True)


def geometry_of(page: pikepdf.Page, turn: int = 0) -> PageGeometry | None:
    """The visible page in user space; its pixels are thousandths, as blocks have them.  None for a page without area.

    turn: degrees clockwise by which it was turned to be read, beyond its own rotation.
    """
    try:
        crop, media = ([float(side) for side in box] for box in (page.cropbox, page.mediabox))
        own = int(page.rotation) % 360
    except (ValueError, TypeError, AttributeError, pikepdf.PdfError):
        return None
    if len(crop) != 4 or len(media) != 4:
        return None
    left, right = max(min(crop[::2]), min(media[::2])), min(max(crop[::2]), max(media[::2]))
    bottom, top = max(min(crop[1::2]), min(media[1::2])), min(max(crop[1::2]), max(media[1::2]))
    if right <= left or top <= bottom:
        return None
    return PageGeometry(
        left, bottom, right - left, top - bottom, (turn + own if own in TURNS else turn) % 360, THOUSAND, THOUSAND
    )


def _block(geometry: PageGeometry, block: Block, codes: Codes) -> Iterable[str]:
    """Operators that show a block's lines from its top to its bottom."""
    left, top, right, bottom = block.box or (0, 0, THOUSAND, THOUSAND)
    is_turned = geometry.rotation in (90, 270)
    across_pt, down_pt = (geometry.height_pt, geometry.width_pt) if is_turned else (geometry.width_pt, geometry.height_pt)
    pitch = max(bottom - top, 1) / max(len(block.lines), 1)
    size = max(min(LETTER_SHARE * pitch * down_pt / THOUSAND, LARGEST_SHARE * down_pt), SMALLEST_PT)
    width_pt = max(right - left, 1) * across_pt / THOUSAND
    yield f"{FONT} {size:.3f} Tf"
    for number, line in enumerate(block.lines):
        text = _standing(line_text(line))
        natural = len(text) * WIDTH / EM * size
        yield f"{100 * min(1.0, width_pt / natural):.3f} Tz"
        base = top + pitch * (number + LETTER_SHARE)
        x, y, _, _ = geometry.to_points((left, base, left, base))
        yield f"{' '.join(str(part) for part in TURNS[geometry.rotation])} {x:.3f} {y:.3f} Tm"
        yield f"{codes.encode(text)} Tj"


def _all_lines(page: PageText) -> Iterable[str]:
    return (_standing(line_text(line)) for block in blocks_of(page) for line in block.lines)


def _standing(line: str) -> str:
    return visual_order(xml_text(line).replace("\r", " "))


def _open(document: SourceDocument) -> pikepdf.Pdf:
    source = BytesIO(document.content) if isinstance(document.content, bytes) else document.content
    try:
        return pikepdf.open(source, password=document.password or "", suppress_warnings=True)
    except pikepdf.PasswordError as error:
        raise PasswordNeeded("PDF is encrypted, and the password given does not open it") from error
    except pikepdf.PdfError as error:
        raise Unreadable(f"PDF cannot be opened: {error}") from error


def _give_font(page: pikepdf.Page, font: pikepdf.Object) -> None:
    """Name the font in the page's resources, in copies of what the page shares with others or inherits."""
    node = page.obj
    for _ in range(100):  # a cycle of parents ends too
        if Name.Resources in node or Name.Parent not in node:
            break
        node = node.Parent
    inherited = node.get(Name.Resources)
    resources = Dictionary(inherited) if isinstance(inherited, Dictionary) else Dictionary()
    fonts = resources.get(Name.Font)
    resources.Font = Dictionary(fonts) if isinstance(fonts, Dictionary) else Dictionary()
    resources.Font[str(FONT)] = font
    page.obj.Resources = resources


def _add_facts(pdf: pikepdf.Pdf, document: SourceDocument, pages: Sequence[PageText]) -> None:
    """Say who made the text, where PDF has a place for it: PieceInfo of the catalogue."""
    known = [[("page", str(page.ref.number)), ("boxes", boxes_note(page)), *facts_of(page)] for page in pages]
    lines = [pikepdf.String("; ".join(f"{name}: {value}" for name, value in facts)) for facts in known]
    private = Dictionary(OriginalSHA256=pikepdf.String(document.content_hash), Pages=Array(lines))
    date = date_of(pages)
    stamp = date.strftime("D:%Y%m%d%H%M%SZ") if date else "D:19700101000000Z"
    known = pdf.Root.get(Name.PieceInfo)
    info = known if isinstance(known, Dictionary) else Dictionary()
    info["/Pagemill"] = Dictionary(LastModified=pikepdf.String(stamp), Private=private)
    pdf.Root.PieceInfo = info
