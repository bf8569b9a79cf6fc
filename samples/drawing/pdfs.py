"""Pages as PDF files, one function a kind."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path

import numpy as np
import pikepdf
from drawing.images import scan
from drawing.typeset import Page
from fpdf import FPDF

POINTS_PER_PX = 72 / 200  # PDF pages are drawn at 200 dots per inch
MADE = datetime(2026, 1, 1, tzinfo=UTC)  # so that a rerun gives the same bytes
PASSWORD = "deckle"  # in jobs/samples.yaml, too


def write_pdf(pages: Sequence[Page], path: Path) -> None:
    """Text that pdfium draws, fonts embedded in part."""
    _text_pdf(pages).output(str(path))


def write_locked_pdf(pages: Sequence[Page], path: Path) -> None:
    """The same, behind a password; RC4, as the stronger ciphers give other bytes each time."""
    pdf = _text_pdf(pages)
    pdf.set_encryption(owner_password=PASSWORD, user_password=PASSWORD)
    pdf.output(str(path))


def write_turned_pdf(pages: Sequence[Page], path: Path) -> None:
    """The same, its pages drawn on their side or head, and /Rotate to put them upright."""
    upright = io.BytesIO(bytes(_text_pdf(pages).output()))
    with pikepdf.open(upright) as pdf:
        for page, degrees in zip(pdf.pages, cycle((90, 180, 270)), strict=False):
            _turn(pdf, page, degrees)
        pdf.save(path, deterministic_id=True)


def write_scanned_pdf(pages: Sequence[Page], path: Path) -> None:
    """One scanned image a page."""
    noise = np.random.default_rng(0)
    pdf = _new_pdf(_points(pages[0]))
    for page in pages:
        encoded = io.BytesIO()
        scan(page, noise).save(encoded, "JPEG", quality=92)
        pdf.add_page(format=_points(page))
        pdf.image(encoded, 0, 0, *_points(page))
    pdf.output(str(path))


def _text_pdf(pages: Sequence[Page]) -> FPDF:
    pdf = _new_pdf(_points(pages[0]))
    for page in pages:
        pdf.add_page(format=_points(page))
        for line in page.lines:
            name = f"{line.font}-{'bold' if line.bold else 'regular'}"
            if name not in pdf.fonts:
                pdf.add_font(name, fname=line.face)
            pdf.set_font(name, size=line.size * POINTS_PER_PX)
            pdf.text(line.x * POINTS_PER_PX, line.y * POINTS_PER_PX, line.text)
        for rule in page.rules:
            pdf.set_line_width(POINTS_PER_PX)
            pdf.line(*(side * POINTS_PER_PX for side in (rule.left, rule.y, rule.right, rule.y)))
    return pdf


def _turn(pdf: pikepdf.Pdf, page: pikepdf.Page, degrees: int) -> None:
    """Draw a page turned back by so much, and have viewers turn it forward."""
    _, _, width, height = (float(side) for side in page.mediabox)
    matrix = {90: (0, 1, -1, 0, height, 0), 180: (-1, 0, 0, -1, width, height), 270: (0, -1, 1, 0, 0, width)}[degrees]
    page.contents_add(pdf.make_stream(f"q {' '.join(f'{number:g}' for number in matrix)} cm\n".encode()), prepend=True)
    page.contents_add(pdf.make_stream(b"\nQ"))
    page.mediabox = [0, 0, width, height] if degrees == 180 else [0, 0, height, width]
    page.Rotate = degrees


def _new_pdf(usual: tuple[float, float]) -> FPDF:
    pdf = FPDF(unit="pt", format=usual)
    pdf.set_auto_page_break(False)
    pdf.set_margin(0)
    pdf.creation_date = MADE
    return pdf


def _points(page: Page) -> tuple[float, float]:
    return page.width * POINTS_PER_PX, page.height * POINTS_PER_PX
