"""A PDF whose pages are the frames of an image file, each at its own size, without loss.

A JPEG that needs no turning is taken as it is; anything else is decoded once, as it would be shown, and stored by Flate.
A frame that does not decode is an empty page.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Sequence
from typing import BinaryIO

import pikepdf
from pikepdf import Array, Dictionary, Name, Stream
from PIL import Image

from pagemill.pipeline.documents.content import Content, open_content
from pagemill.pipeline.documents.raster import ORIENTATION, to_rgb
from pagemill.pipeline.page import PageText

UNKNOWN_DPI = 200.0
LARGEST_PT = 14_400.0  # what readers of PDF take
EMPTY_PT = (595.0, 842.0)
LEAST_DPI, MOST_DPI = 10.0, 5000.0


def image_pages(content: Content, pages: Sequence[PageText]) -> pikepdf.Pdf:
    """A new PDF with one page for each of ``pages``."""
    pdf = pikepdf.new()
    with open_content(content) as file, warnings.catch_warnings(action="ignore"):
        for page in pages:
            try:
                image = Image.open(file)
                image.seek(page.ref.number - 1)
                picture, size_px = _picture(pdf, image, file)
                dpi = _dpi(image)
            except Exception:  # Pillow raises any type on damaged frames; the page's own record says what is wrong
                pdf.add_blank_page(page_size=EMPTY_PT)
                continue
            _add_page(pdf, picture, size_px, dpi)
    return pdf


def _picture(pdf: pikepdf.Pdf, image: Image.Image, file: BinaryIO) -> tuple[Stream, tuple[int, int]]:
    """The image as an object, and its size as shown."""
    if image.format == "JPEG" and image.mode in ("L", "RGB") and image.getexif().get(ORIENTATION, 1) not in range(2, 9):
        image.load()  # damaged ones fail here
        file.seek(0)
        picture = Stream(pdf, file.read())
        picture.Filter = Name.DCTDecode
        is_grey, size = image.mode == "L", image.size
    else:
        grey = image.mode in ("1", "L")
        shown = to_rgb(image)
        shown = shown.convert("L") if grey else shown
        picture = Stream(pdf, zlib.compress(shown.tobytes(), 9))
        picture.Filter = Name.FlateDecode
        is_grey, size = grey, shown.size
    picture.Type, picture.Subtype = Name.XObject, Name.Image
    picture.Width, picture.Height = size
    picture.BitsPerComponent = 8
    picture.ColorSpace = Name.DeviceGray if is_grey else Name.DeviceRGB
    return picture, size


def _add_page(pdf: pikepdf.Pdf, picture: Stream, size_px: tuple[int, int], dpi: float) -> None:
    scale = min(72 / dpi, LARGEST_PT / max(size_px))
    width, height = (max(side * scale, 1.0) for side in size_px)
    pdf.add_blank_page(page_size=(width, height))
    page = pdf.pages[-1]
    page.obj.Resources = Dictionary(XObject=Dictionary({"/Page": pdf.make_indirect(picture)}))
    page.obj.MediaBox = Array([0, 0, round(width, 4), round(height, 4)])
    page.contents_add(Stream(pdf, f"q {width:.4f} 0 0 {height:.4f} 0 0 cm /Page Do Q\n".encode("ascii")))


def _dpi(image: Image.Image) -> float:
    try:
        dpi = float(image.info.get("dpi", (UNKNOWN_DPI,))[0])
    except (TypeError, ValueError, ZeroDivisionError, IndexError):
        return UNKNOWN_DPI
    return dpi if LEAST_DPI <= dpi <= MOST_DPI else UNKNOWN_DPI
