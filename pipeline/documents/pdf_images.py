"""Does a PDF page's every picture decode whole?  pdfium draws what it can and ignores the rest silently.

A picture that does not decode leaves its place white, one that was cut leaves part of it white, grey or black: read as it
is drawn, such a page would lose its text without a word.  Runs in a child process only.
"""

from __future__ import annotations

import ctypes
import io

import numpy as np
import pypdfium2
import pypdfium2.raw as pdfium
from numpy.typing import NDArray
from PIL import Image, ImageFile

from pagemill.pipeline.errors import Unreadable

MOST_IMAGES = 32  # of one page that are looked at: pages of more are drawings, whose tiles are no scans
DEEPEST_FORM = 3
IMAGE_FILTERS = frozenset({"DCTDecode", "JPXDecode", "JBIG2Decode", "CCITTFaxDecode"})
SHORT_NAMES = {"DCT": "DCTDecode", "CCF": "CCITTFaxDecode"}  # of inline images
JPEG_END = b"\xff\xd9"  # of JPEG 2000 code streams too
JPEG_FILL = 128
TAIL_BYTES = 64
MISSING_PART = 0.01  # of a picture; encoders that count a row less are common
LOST_ROWS = 0.05  # of a fax picture that are black to its end: the decoder fills so what is cut off


def refuse_damaged(page: pypdfium2.PdfPage, number: int) -> None:
    """Raise Unreadable where a picture of the page is damaged.  number: of the page, from 1."""
    images = page.get_objects(filter=[pdfium.FPDF_PAGEOBJ_IMAGE], max_depth=DEEPEST_FORM)
    for _, image in zip(range(MOST_IMAGES), images, strict=False):
        fault = _fault(image, page)
        if fault:
            raise Unreadable(f"page {number} has a picture that {fault}: it would be read without what is lost; scan it again")


def _fault(image: pypdfium2.PdfObject, page: pypdfium2.PdfPage) -> str:
    """What is wrong with one picture, "" when nothing is."""
    facts = pdfium.FPDF_IMAGEOBJ_METADATA()
    if not pdfium.FPDFImageObj_GetImageMetadata(image, page, facts) or not (facts.width and facts.height):
        return ""  # draws nothing
    kind = _last_filter(image)
    if kind not in IMAGE_FILTERS:
        row_bytes = (facts.width * facts.bits_per_pixel + 7) // 8
        found = pdfium.FPDFImageObj_GetImageDataDecoded(image, None, 0)
        short = found < row_bytes * facts.height * (1 - MISSING_PART)
        return f"is cut off: expected {row_bytes * facts.height} bytes, found {found}" if short else ""
    if kind in ("DCTDecode", "JPXDecode"):
        data = _data(image)
        if JPEG_END in data[-TAIL_BYTES:] and _has_header(data):
            return ""
        if kind == "DCTDecode" and _has_header(data):
            lost = _lost_rows(data)
            return f"is cut off: {lost:.0%} of its rows are missing ({kind})" if lost > LOST_ROWS else ""
    bitmap = pdfium.FPDFImageObj_GetBitmap(image)
    if not bitmap:
        return f"cannot be decoded ({kind})"
    try:
        return _cut_fax(bitmap) if kind == "CCITTFaxDecode" else ""
    finally:
        pdfium.FPDFBitmap_Destroy(bitmap)


def _last_filter(image: pypdfium2.PdfObject) -> str:
    count = pdfium.FPDFImageObj_GetImageFilterCount(image)
    if count < 1:
        return ""
    name = ctypes.create_string_buffer(64)
    pdfium.FPDFImageObj_GetImageFilter(image, count - 1, name, len(name))
    text = name.value.decode("ascii", "replace")
    return SHORT_NAMES.get(text, text)


def _data(image: pypdfium2.PdfObject) -> bytes:
    """The picture's stream as its own filter reads it: filters around it are undone."""
    length = pdfium.FPDFImageObj_GetImageDataDecoded(image, None, 0)
    buffer = ctypes.create_string_buffer(max(1, length))
    pdfium.FPDFImageObj_GetImageDataDecoded(image, buffer, length)
    return buffer.raw[:length]


def _has_header(data: bytes) -> bool:
    try:
        with Image.open(io.BytesIO(data)):
            return True
    except Exception:  # Pillow raises any type on damaged files
        return False


def _lost_rows(data: bytes) -> float:
    """The part of a JPEG's rows that its data does not reach: libjpeg makes them exactly grey, which no scanned row is.

    A progressive one has every row from its first pass on, so that the lack of its end counts.
    """
    before, ImageFile.LOAD_TRUNCATED_IMAGES = ImageFile.LOAD_TRUNCATED_IMAGES, True
    try:
        with Image.open(io.BytesIO(data)) as image:
            if "progressive" in image.info:
                return 1.0
            image.load()
            levels = np.asarray(image)
    except Exception:
        return 1.0
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = before
    lost: int = _equal_tail(levels.reshape(levels.shape[0], -1), JPEG_FILL)
    return lost / len(levels)


def _cut_fax(bitmap: pdfium.FPDF_BITMAP) -> str:
    """A fax picture that is black from some row to its end, and was not black before."""
    height, stride = pdfium.FPDFBitmap_GetHeight(bitmap), pdfium.FPDFBitmap_GetStride(bitmap)
    address = ctypes.cast(pdfium.FPDFBitmap_GetBuffer(bitmap), ctypes.POINTER(ctypes.c_ubyte))
    levels = np.ctypeslib.as_array(address, (height, stride))
    used = pdfium.FPDFBitmap_GetWidth(bitmap) * {pdfium.FPDFBitmap_Gray: 1, pdfium.FPDFBitmap_BGR: 3}.get(
        pdfium.FPDFBitmap_GetFormat(bitmap), 4
    )
    lost = _equal_tail(levels[:, :used], 0) / height
    return f"is cut off: the last {lost:.0%} of its rows are black (CCITTFaxDecode)" if LOST_ROWS < lost < 1 else ""


def _equal_tail(rows: NDArray[np.uint8], level: int) -> int:
    """How many rows at the end have this level throughout."""
    other = np.flatnonzero((rows != level).any(axis=1))
    return len(rows) - (int(other[-1]) + 1 if len(other) else 0)
