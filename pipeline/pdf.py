"""PDF pages through pdfium.  Runs in a child process only: pdfium crashes, hangs and is not safe with threads.

Refuses what cannot be opened with the reason found out, not guessed: pdfium reports a PDF without pages under the error of
whatever failed before it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pypdfium2
import pypdfium2.raw as pdfium
from numpy.typing import NDArray

from pipeline.errors import Degenerate, PasswordNeeded, TooLarge, Unreadable
from pipeline.geometry import PageGeometry
from pipeline.preprocess import POINTS_PER_INCH, RenderSettings, pdf_size
from pipeline.rendering import Rendering

WHITE = (255, 255, 255, 255)
TAIL_BYTES = 2048  # readers look for the end mark in the last kilobyte or two
ABSENT = b"/nonexistent/\x00"


class Pdf:
    """An open PDF: ``pages``, ``render`` and ``close``."""

    def __init__(self, path: Path, password: str | None = None) -> None:
        self._document = _open(path, password)
        self._document.init_forms()  # before any page is loaded, or field values are not drawn
        self.pages = len(self._document)

    def render(self, page: int, settings: RenderSettings) -> Rendering:
        """Draw one page, /Rotate, annotations and form values included."""
        try:
            loaded = self._document[page]
        except pypdfium2.PdfiumError as error:
            raise Unreadable(f"page {page + 1} cannot be loaded: its object is missing or damaged") from error
        try:
            width_pt, height_pt = loaded.get_size()
            size = pdf_size(width_pt, height_pt, settings)
            pixels = self._draw(loaded, *size)
            dpi = POINTS_PER_INCH * max(size) / max(width_pt, height_pt)
            return Rendering(pixels, dpi, _geometry(loaded, *size), pdfium.FPDFPage_CountObjects(loaded))
        finally:
            loaded.close()

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


def _geometry(page: pypdfium2.PdfPage, width_px: int, height_px: int) -> PageGeometry:
    """Where the drawing lies on the page."""
    box = pdfium.FS_RECTF()
    pdfium.FPDF_GetPageBoundingBox(page, box)
    return PageGeometry(
        box.left, box.bottom, box.right - box.left, box.top - box.bottom, page.get_rotation(), width_px, height_px
    )


def _open(path: Path, password: str | None) -> pypdfium2.PdfDocument:
    """Open the file, or raise why it does not open."""
    pdfium.FPDF_LoadDocument(ABSENT, None)  # leaves "file not found" as the last error, see _refusal
    try:
        return _load(path, password)
    except pypdfium2.PdfiumError as failure:
        raise _refusal(failure.err_code, path, password) from failure


def _load(path: Path, password: str | None) -> pypdfium2.PdfDocument:
    """pdfium takes names in UTF-8; a name that is not opens through a file object."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return pypdfium2.PdfDocument(path.open("rb"), password=password, autoclose=True)
    return pypdfium2.PdfDocument(path.absolute(), password=password)


def _refusal(error: int, path: Path, password: str | None) -> Unreadable:
    """Why the document did not open."""
    if error == pdfium.FPDF_ERR_PASSWORD and password is None:
        return PasswordNeeded("PDF is encrypted and needs a password: give it as the input password")
    if error == pdfium.FPDF_ERR_PASSWORD:
        return PasswordNeeded("PDF is encrypted and the given password does not open it")
    if error == pdfium.FPDF_ERR_SECURITY:
        return PasswordNeeded("PDF is encrypted by a method that pdfium does not know: decrypt it first")
    if error == pdfium.FPDF_ERR_FILE:  # the file is there, so this is the error planted before: pdfium set none
        return Unreadable("PDF has no pages")
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        whole = b"%%EOF" in file.read()
    cause = "its cross-references are damaged" if whole else "the file ends without %%EOF, so it is truncated"
    return Unreadable(f"PDF cannot be opened: {cause}; copy it again, or repair it with qpdf")
