"""Builders of the field's hostile files; ``tests.pipeline.inputs`` has the plain ones."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pikepdf
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from tests.pipeline.inputs import page_object, raw_pdf

SIDE_PX = 200
TEXT = "Medical Officer of Health, 1912"


def scan(width: int = SIDE_PX, height: int = SIDE_PX, text: str = TEXT) -> NDArray[np.uint8]:
    """(height, width) grey paper with lines of print, on a textured ground so that no row is of one value."""
    noise = np.random.default_rng(1).integers(225, 250, (height, width), np.uint8)
    image = Image.fromarray(noise)
    for top in range(10, height - 10, 24):
        ImageDraw.Draw(image).text((10, top), text, font=ImageFont.load_default(14), fill=20)
    return np.asarray(image)


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    """An image file's bytes."""
    buffer = io.BytesIO()
    image.copy().save(buffer, kind, **options)  # type: ignore[arg-type]  # a copy: saving leaves traces in an image
    return buffer.getvalue()


def jpeg(**options: object) -> bytes:
    """The scan as a JPEG."""
    return encoded(Image.fromarray(scan()), "JPEG", **options)


def fax() -> bytes:
    """The scan as a bare CCITT group 4 stream."""
    tiff = encoded(Image.fromarray(scan()).convert("1", dither=Image.Dither.NONE), "TIFF", compression="group4")
    tags = Image.open(io.BytesIO(tiff)).tag_v2  # type: ignore[attr-defined]
    return tiff[tags[273][0] : tags[273][0] + tags[279][0]]


def picture_pdf(
    data: bytes,
    kind: str,
    *,
    space: str = "/DeviceGray",
    bits: int = 8,
    side: int = SIDE_PX,
    after: bytes = b"",
    **more: object,
) -> bytes:
    """A PDF of one page that is one picture with this stream.  after: what it draws then.  more: the picture's entries."""
    pdf = pikepdf.new()
    page = pdf.add_blank_page(page_size=(300, 300))
    picture = pikepdf.Stream(pdf, data)
    picture.Type, picture.Subtype = pikepdf.Name.XObject, pikepdf.Name.Image
    picture.Width = picture.Height = side
    picture.ColorSpace, picture.BitsPerComponent, picture.Filter = pikepdf.Name(space), bits, pikepdf.Name(kind)
    for name, value in more.items():
        picture[f"/{name}"] = value
    page.Resources = pikepdf.Dictionary(XObject=pikepdf.Dictionary(Im=picture))
    page.Contents = pdf.make_stream(b"q 300 0 0 300 0 0 cm /Im Do Q" + after)
    return saved(pdf)


def saved(pdf: pikepdf.Pdf) -> bytes:
    """The PDF's bytes."""
    buffer = io.BytesIO()
    pdf.save(buffer, object_stream_mode=pikepdf.ObjectStreamMode.disable, deterministic_id=True)
    return buffer.getvalue()


def drawn_pdf(page: str, drawing: str = "0 g 100 100 200 200 re f", *more: str) -> bytes:
    """A PDF of one page object, which may name objects 5, 6 ... in ``more``; its content draws ``drawing``."""
    stream = f"<</Length {len(drawing)}>>\nstream\n{drawing}\nendstream"
    pages = "<</Type/Pages/Kids[3 0 R]/Count 1>>"
    return raw_pdf(["<</Type/Catalog/Pages 2 0 R>>", pages, page, stream, *more])


def undecodable() -> bytes:
    """A page whose content is called deflated and is not."""
    content = "<</Length 26/Filter/FlateDecode>>\nstream\nthis was never deflated !!\nendstream"
    pages = "<</Type/Pages/Kids[3 0 R]/Count 1>>"
    return raw_pdf(["<</Type/Catalog/Pages 2 0 R>>", pages, page_object(extra="/Contents 4 0 R"), content])


def square_page(box: str = "0 0 595 842", extra: str = "") -> bytes:
    """A page with a black square."""
    return drawn_pdf(page_object(box, extra + "/Contents 4 0 R"))


def flate_bomb(side: int = 20_000) -> bytes:
    """A picture of 400 million grey pixels in 389 kB."""
    packer = zlib.compressobj(9)
    row = bytes([255]) * side
    data = b"".join(packer.compress(row) for _ in range(side // 2))
    data += b"".join(packer.compress(bytes(side)) for _ in range(side - side // 2)) + packer.flush()
    return picture_pdf(data, "/FlateDecode", side=side)


def beyond_2_gib(path: Path) -> Path:
    """A sparse PDF whose objects lie beyond 2**31 bytes."""
    body = square_page()
    start = (1 << 31) + 4096
    head, tail = body.split(b"\nxref\n")
    lines = tail.split(b"\n")
    shift = start - len(b"%PDF-1.4\n")
    for index, line in enumerate(lines):
        if line.endswith(b" n "):
            lines[index] = b"%010d 00000 n " % (int(line[:10]) + shift)
    moved = head[len(b"%PDF-1.4\n") :]
    at = start + len(moved) + 1
    tail = b"\n".join(lines)
    before, _, _ = tail.partition(b"startxref\n")
    with path.open("wb") as file:
        file.write(b"%PDF-1.4\n")
        file.seek(start)
        file.write(moved + b"\nxref\n" + before + b"startxref\n%d\n%%%%EOF\n" % at)
    return path


def png_header_bomb(width: int, height: int) -> bytes:
    """A PNG that claims this size and holds next to nothing."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


def frames(change: Callable[[bytearray, list[int], list[int]], None] | None = None) -> bytes:
    """A TIFF of frames of 300 x 400, 1 x 1 and 200 x 200 px.  change: alters its bytes, given the offsets of the frames'
    directories and of their links to the next one."""
    pages = [Image.fromarray(scan(300, 400)), Image.new("L", (1, 1), 200), Image.fromarray(scan())]
    one_strip = {"compression": "tiff_lzw", "strip_size": 1 << 20}
    content = bytearray(encoded(pages[0], "TIFF", save_all=True, append_images=pages[1:], **one_strip))
    starts, links = [], []
    at = struct.unpack_from("<I", content, 4)[0]
    while at:
        starts.append(at)
        links.append(at + 2 + 12 * struct.unpack_from("<H", content, at)[0])
        at = struct.unpack_from("<I", content, links[-1])[0]
    if change:
        change(content, starts, links)
    return bytes(content)


def bad_first_strip(content: bytearray, starts: list[int], links: list[int]) -> None:
    """Damage the first frame's pixels."""
    tags = {}
    for entry in range(struct.unpack_from("<H", content, starts[0])[0]):
        tag, _, _, value = struct.unpack_from("<HHII", content, starts[0] + 2 + 12 * entry)
        tags[tag] = value
    start, length = tags[273], tags[279]  # one strip
    content[start + length // 4 : start + length] = bytes(length - length // 4)
