"""PDF pages through pdfium.  Runs in a child process only: pdfium crashes, hangs and is not safe with threads.

Refuses what cannot be opened with the reason found out, not guessed: pdfium reports a PDF without pages under the error of
whatever failed before it.  A damaged file is rebuilt once; pages and pictures of which something is lost are refused.
"""

from __future__ import annotations

import numpy as np
import pypdfium2
import pypdfium2.raw as pdfium
from numpy.typing import NDArray

from pagemill.pipeline.documents.content import Content, open_content, size_of
from pagemill.pipeline.documents.pdf_images import refuse_damaged
from pagemill.pipeline.documents.pdf_repair import Mended, mend, painting_operators, user_units
from pagemill.pipeline.errors import Degenerate, PasswordNeeded, TooLarge, Unreadable
from pagemill.pipeline.geometry import PageGeometry
from pagemill.pipeline.render.preprocess import POINTS_PER_INCH, RenderSettings, pdf_size
from pagemill.pipeline.render.rendering import Rendering

WHITE = (255, 255, 255, 255)
TAIL_BYTES = 2048  # readers look for the end mark in the last kilobyte or two
ABSENT = b"/nonexistent/\x00"
MENDED = "the PDF is damaged and was rebuilt from what is left of it"


class Pdf:
    """An open PDF: ``pages``, ``render`` and ``close``."""

    def __init__(self, content: Content, password: str | None = None) -> None:
        self._content = content
        self._password = password
        self._mended: Mended | None = None
        self._units: dict[int, float] | None = None
        self._document = self._open(password)
        self._document.init_forms()  # before any page is loaded, or field values are not drawn
        self.pages = max(len(self._document), self._mended.pages if self._mended else 0)

    def render(self, page: int, settings: RenderSettings) -> Rendering:
        """Draw one page, /Rotate, annotations and form values included."""
        loaded = self._load(page)
        try:
            width_pt, height_pt = (side * self._unit(loaded, page, settings) for side in loaded.get_size())
            size = pdf_size(width_pt, height_pt, settings)
            pixels = self._draw(loaded, *size)
            refuse_damaged(loaded, page + 1)
            objects = pdfium.FPDFPage_CountObjects(loaded)
            if self._mended is not None and (objects == 0 or page in self._mended.cut):
                raise Unreadable(f"page {page + 1} lost its content: the file is truncated or damaged; copy it again")
            objects = objects or painting_operators(self._content, self._password, page)
            dpi = POINTS_PER_INCH * max(size) / max(width_pt, height_pt)
            return Rendering(pixels, dpi, _geometry(loaded, *size), objects, MENDED if self._mended else "")
        finally:
            loaded.close()

    def _load(self, page: int) -> pypdfium2.PdfPage:
        try:
            return self._document[page]
        except (pypdfium2.PdfiumError, IndexError) as error:  # an index beyond the end: lost with the end of the file
            raise Unreadable(f"page {page + 1} cannot be loaded: its object is missing or damaged") from error

    def _unit(self, loaded: pypdfium2.PdfPage, page: int, settings: RenderSettings) -> float:
        """1/72 inches of the page's unit.  Only asked of pages that seem small: larger ones are drawn the same anyway."""
        longest_px = max(loaded.get_size()) * settings.max_dpi / POINTS_PER_INCH
        if longest_px >= settings.longest_edge_px:
            return 1.0
        if self._units is None:
            self._units = user_units(self._content, self._password)
        return self._units.get(page, 1.0)

    def _draw(self, page: pypdfium2.PdfPage, width: int, height: int) -> NDArray[np.uint8]:
        """Draw at exactly this size; asking pdfium for a scale instead gives a pixel more on some pages."""
        bitmap = pypdfium2.PdfBitmap.new_native(width, height, pdfium.FPDFBitmap_BGR)
        if not bitmap.raw:
            raise TooLarge(f"no memory for a bitmap of {width} x {height} px")
        bitmap.fill_rect(WHITE, 0, 0, width, height)
        place = (bitmap, page, 0, 0, width, height, 0, pdfium.FPDF_ANNOT | pdfium.FPDF_REVERSE_BYTE_ORDER)
        pdfium.FPDF_RenderPageBitmap(*place)
        if self._document.formenv:
            pdfium.FPDF_FFLDraw(self._document.formenv, *place)
        pixels = np.ascontiguousarray(bitmap.to_numpy()).copy()
        bitmap.close()
        if pixels.shape != (height, width, 3):
            raise Degenerate(f"expected a drawing of {width} x {height} px, found {pixels.shape}")
        return pixels

    def close(self) -> None:
        """Close the file."""
        self._document.close()

    def _open(self, password: str | None) -> pypdfium2.PdfDocument:
        """Open the document, rebuilt where it is damaged, or raise why it does not open."""
        pdfium.FPDF_LoadDocument(ABSENT, None)  # leaves "file not found" as the last error, see _refusal
        content = self._content
        try:
            return _load(content, password)
        except pypdfium2.PdfiumError as failure:
            self._mended = mend(content, password) if failure.err_code == pdfium.FPDF_ERR_FORMAT else None
            refusal = _refusal(failure.err_code, content, password)
            if self._mended is None:
                raise refusal from failure
        self._content, self._password = self._mended.content, None
        try:
            return _load(self._mended.content, None)
        except pypdfium2.PdfiumError as failure:
            raise refusal from failure


def _geometry(page: pypdfium2.PdfPage, width_px: int, height_px: int) -> PageGeometry:
    """The drawing's place on the page."""
    box = pdfium.FS_RECTF()
    pdfium.FPDF_GetPageBoundingBox(page, box)
    return PageGeometry(
        box.left, box.bottom, box.right - box.left, box.top - box.bottom, page.get_rotation(), width_px, height_px
    )


def _load(content: Content, password: str | None) -> pypdfium2.PdfDocument:
    """pdfium takes names in UTF-8; a name that is not opens through a file object."""
    if isinstance(content, bytes):
        return pypdfium2.PdfDocument(content, password=password)
    try:
        str(content).encode()
    except UnicodeEncodeError:
        return pypdfium2.PdfDocument(content.open("rb"), password=password, autoclose=True)
    return pypdfium2.PdfDocument(content.absolute(), password=password)


def _refusal(error: int, content: Content, password: str | None) -> Unreadable:
    """Why the document did not open."""
    if error == pdfium.FPDF_ERR_PASSWORD and password is None:
        return PasswordNeeded("PDF is encrypted and needs a password: give it as the input password")
    if error == pdfium.FPDF_ERR_PASSWORD:
        return PasswordNeeded("PDF is encrypted and the given password does not open it")
    if error == pdfium.FPDF_ERR_SECURITY:
        return PasswordNeeded("PDF is encrypted by a method that pdfium does not know: decrypt it first")
    if error == pdfium.FPDF_ERR_FILE:  # the file is there, so this is the error planted before: pdfium set none
        return Unreadable("PDF has no pages")
    with open_content(content) as file:
        file.seek(max(0, size_of(content) - TAIL_BYTES))
        whole = b"%%EOF" in file.read()
    cause = "its cross-references are damaged" if whole else "the file ends without %%EOF, so it is truncated"
    return Unreadable(f"PDF cannot be opened: {cause}; copy it again, or repair it with qpdf")
