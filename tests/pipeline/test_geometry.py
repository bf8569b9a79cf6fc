"""Boxes on rendered pages map back to where their content stands in the PDF, however the page is turned and cropped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pagemill.pipeline.documents.documents import open_document
from pagemill.pipeline.geometry import PageGeometry
from pagemill.pipeline.render.preprocess import RenderSettings
from tests.pipeline.inputs import page_object, raw_pdf, save

SQUARE_PT = (100.0, 150.0, 300.0, 250.0)
DRAWING = "0 g 100 150 200 100 re f"
BOXES = {
    "letter": ("0 0 612 792", ""),
    "negative": ("-50 -60 612 792", ""),
    "cropped": ("0 0 612 792", "/CropBox[90 40 400 500]"),
    "crop beyond media": ("0 0 612 792", "/CropBox[50 50 900 900]"),
    "user unit": ("0 0 612 792", "/UserUnit 3"),
}


def turned_page(box: str, extra: str, rotate: int) -> bytes:
    page = page_object(box, f"{extra}/Rotate {rotate}/Contents 4 0 R")
    stream = f"<</Length {len(DRAWING)}>>\nstream\n{DRAWING}\nendstream"
    return raw_pdf(["<</Type/Catalog/Pages 2 0 R>>", "<</Type/Pages/Kids[3 0 R]/Count 1>>", page, stream])


@pytest.mark.parametrize("rotate", [0, 90, 180, 270, -90, 360, 45])
@pytest.mark.parametrize("name", BOXES)
def test_box_of_a_drawn_square_maps_back_to_the_square(tmp_path: Path, name: str, rotate: int) -> None:
    document = open_document(save(tmp_path, "turned.pdf", turned_page(*BOXES[name], rotate)), None)
    page = document.render(0, RenderSettings())
    document.close()
    assert page.geometry is not None
    rows, columns = np.nonzero(page.pixels[..., 0] < 128)
    box_px = (float(columns.min()), float(rows.min()), float(columns.max() + 1), float(rows.max() + 1))
    pixel_pt = 612 / 1000  # at most, of these pages
    assert page.geometry.to_points(box_px) == pytest.approx(SQUARE_PT, abs=pixel_pt)
    assert page.objects == 1


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_points_and_pixels_are_inverse(rotation: int) -> None:
    geometry = PageGeometry(-10, 20, 595, 842, rotation, 1092, 1540)
    box = (12.5, 99.0, 640.0, 1300.25)
    assert geometry.to_pixels(geometry.to_points(box)) == pytest.approx(box)
    left, bottom, right, top = geometry.to_points(box)
    assert left < right
    assert bottom < top
