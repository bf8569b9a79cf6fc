"""Builders of PDFs and images, good and hostile, made on the fly.  Raw bytes where a library would refuse to write them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import pikepdf
from PIL import Image

A4_PT = (595.28, 841.89)
BLACK_SQUARE = b"0 0 0 rg 100 100 200 200 re f"


def pdf_bytes(sizes_pt: Sequence[tuple[float, float]] = (A4_PT,), *, rotate: int = 0, user: str = "", owner: str = "") -> bytes:
    """A PDF of pages of these sizes, each with a black square 100 pt from its lower left corner."""
    pdf = pikepdf.new()
    for size in sizes_pt:
        page = pdf.add_blank_page(page_size=size)
        page.Contents = pdf.make_stream(BLACK_SQUARE)
        page.Rotate = rotate
    buffer = io.BytesIO()
    encryption = pikepdf.Encryption(user=user, owner=owner) if user or owner else False
    pdf.save(buffer, encryption=encryption, deterministic_id=not encryption)
    return buffer.getvalue()


def raw_pdf(objects: Sequence[str]) -> bytes:
    """A PDF of these object bodies, numbered from 1 (the catalog), with true cross-references."""
    content = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(content))
        content += f"{number} 0 obj\n{body}\nendobj\n".encode()
    start = len(content)
    content += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    content += b"".join(f"{offset:010d} 00000 n \n".encode() for offset in offsets)
    return bytes(content) + f"trailer\n<</Size {len(objects) + 1}/Root 1 0 R>>\nstartxref\n{start}\n%%EOF\n".encode()


def page_tree(kids: str, count: int, *pages: str) -> bytes:
    """A PDF whose page tree says ``kids`` and ``count``; ``pages`` are the objects from number 3 on."""
    return raw_pdf(["<</Type/Catalog/Pages 2 0 R>>", f"<</Type/Pages/Kids[{kids}]/Count {count}>>", *pages])


def page_object(box: str = "0 0 595 842", extra: str = "") -> str:
    """A page with this MediaBox."""
    return f"<</Type/Page/Parent 2 0 R/MediaBox[{box}]{extra}>>"


def save(folder: Path, name: str, content: bytes | Image.Image, **options: object) -> Path:
    """Write bytes or an image into ``folder``."""
    path = folder / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        content.save(path, **options)  # type: ignore[arg-type]
    return path
