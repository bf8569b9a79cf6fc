"""Kinds and page counts of good and hostile files, and what one page of each becomes.

Pages are decoded in this process where the file is harmless (``open_document``), in a child where the point is the child.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from pagemill.pipeline.documents.content import hash_content
from pagemill.pipeline.documents.documents import DocumentInfo, Inspector, inspect, open_document
from pagemill.pipeline.errors import Degenerate, PageError, PasswordNeeded, TooLarge, Unreadable
from pagemill.pipeline.render.preprocess import RenderSettings, image_size, pdf_size
from tests.pipeline import inputs
from tests.pipeline.inputs import page_object, page_tree, pdf_bytes, save

SETTINGS = RenderSettings()
RAMP = np.tile(np.linspace(0, 1, 280), (56, 1))  # (56, 280), black to white
BYTE_RAMP = np.rint(RAMP * 255).astype(np.uint8)


@pytest.fixture(scope="module")
def inspector() -> object:
    with Inspector() as shared:
        yield shared


def render(path: Path, page: int = 0, settings: RenderSettings = SETTINGS) -> NDArray[np.uint8]:
    document = open_document(path, None)
    try:
        return document.render(page, settings).pixels
    finally:
        document.close()


@pytest.mark.parametrize(
    ("name", "kind"), [("a.png", "png"), ("a.jpg", "jpeg"), ("a.webp", "webp"), ("a.tif", "tiff"), ("a.pdf", "pdf")]
)
@pytest.mark.parametrize("extension", ["", ".png", ".txt"])
def test_kind_comes_from_the_content(tmp_path: Path, inspector: Inspector, name: str, kind: str, extension: str) -> None:
    source = save(tmp_path, name, pdf_bytes() if kind == "pdf" else Image.new("RGB", (40, 30)))
    path = source.rename(tmp_path / ("file" + extension))
    assert inspector.inspect(path) == DocumentInfo(kind, 1)


GOOD = pdf_bytes([inputs.A4_PT] * 3)
UNREADABLE = {
    "zero_bytes": (b"", "empty"),
    "text": (b"Dear Sir, I have not the pleasure", "not a document"),
    "html": (b"<!doctype html><html>", "not a document"),
    "zero_pages": (page_tree("", 0), "no pages"),
    "truncated": (GOOD[:60], "truncated"),
    "junk_inside": (b"%PDF-1.4\n" + b"x" * 4000 + b"\n%%EOF\n", "damaged"),
    "encrypted": (pdf_bytes(user="open sesame", owner="o"), "password"),
    "damaged_tiff": (b"II*\x00\x08\x00\x00\x00\xff\xff", "damaged or truncated"),
}


@pytest.mark.parametrize("name", UNREADABLE)
@pytest.mark.parametrize("after", ["zero_pages", "encrypted", "junk_inside"])
def test_refusal_names_the_cause_whatever_failed_before(tmp_path: Path, inspector: Inspector, name: str, after: str) -> None:
    content, cause = UNREADABLE[name]
    with pytest.raises(Unreadable):
        inspector.inspect(save(tmp_path, "before.pdf", UNREADABLE[after][0]))
    with pytest.raises(Unreadable, match=cause):
        inspector.inspect(save(tmp_path, "x.pdf", content))


def test_missing_file_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="No such file"):
        inspect(tmp_path / "absent.pdf")


@pytest.mark.parametrize("password", ["secret", "Grüße", "パス"])
def test_password_opens_and_a_wrong_one_is_told_apart(tmp_path: Path, inspector: Inspector, password: str) -> None:
    path = save(tmp_path, "locked.pdf", pdf_bytes(user=password, owner="owner"))
    assert inspector.inspect(path, password=password).pages == 1
    with pytest.raises(PasswordNeeded, match="needs a password"):
        inspector.inspect(path)
    with pytest.raises(PasswordNeeded, match="does not open"):
        inspector.inspect(path, password="wrong")


def test_owner_password_alone_needs_none(tmp_path: Path, inspector: Inspector) -> None:
    assert inspector.inspect(save(tmp_path, "owner.pdf", pdf_bytes(owner="owner"))).pages == 1


def test_page_count_is_capped(tmp_path: Path, inspector: Inspector) -> None:
    path = save(tmp_path, "three.pdf", GOOD)
    assert inspector.inspect(path, max_pages=3).pages == 3
    with pytest.raises(TooLarge, match="3 pages"):
        inspector.inspect(path, max_pages=2)


@pytest.mark.parametrize("name", [b"\xff\xfe.pdf", "-dash\nnewline ä.pdf".encode()])
def test_awkward_names_open(tmp_path: Path, inspector: Inspector, name: bytes) -> None:
    path = tmp_path / os.fsdecode(name)
    path.write_bytes(GOOD)
    assert inspector.inspect(path).pages == 3
    assert len(hash_content(path)) == 64


# name: (file, pages that it claims, index -> error or None)
LYING_TREES = {
    "count_lies": (page_tree("3 0 R", 5, page_object()), 5, {0: None, 1: Unreadable, 4: Unreadable}),
    "null_kid": (page_tree("3 0 R null", 2, page_object()), 2, {0: None, 1: Unreadable}),
    "kids_loop": (page_tree("3 0 R 2 0 R", 2, page_object()), 2, {0: None, 1: Unreadable}),
    "huge_count": (page_tree("3 0 R", 2**31 - 1, page_object()), 1, {0: None}),
    "crop_outside": (page_tree("3 0 R", 1, page_object(extra="/CropBox[900 900 1000 1000]")), 1, {0: Degenerate}),
    "sliver": (page_tree("3 0 R", 1, page_object("0 0 1 10000")), 1, {0: Degenerate}),
    "strip": (page_tree("3 0 R", 1, page_object("0 0 72 7200")), 1, {0: Degenerate}),
    "enormous": (page_tree("3 0 R", 1, page_object("0 0 200000 200000")), 1, {0: None}),
    "no_box": (page_tree("3 0 R", 1, "<</Type/Page/Parent 2 0 R>>"), 1, {0: None}),
}


@pytest.mark.parametrize("name", LYING_TREES)
def test_each_page_of_a_lying_pdf_ends_on_its_own(tmp_path: Path, inspector: Inspector, name: str) -> None:
    content, pages, errors = LYING_TREES[name]
    path = save(tmp_path, "lying.pdf", content)
    assert inspector.inspect(path).pages == pages
    for page, error in errors.items():
        if error is None:
            assert max(render(path, page).shape) <= 1540
        else:
            with pytest.raises(error):
                render(path, page)


@pytest.mark.parametrize(
    ("size_pt", "size_px"),
    [
        (inputs.A4_PT, (1092, 1540)),  # 2145 tokens
        ((612, 792), (1204, 1540)),  # Letter: 2365 tokens
        ((842, 842), (1540, 1540)),
        ((216, 360), (616, 1008)),  # a receipt: 600 x 1000 px at 200 dpi, not enlarged
        ((14400, 14400), (1540, 1540)),
    ],
)
def test_pdf_is_drawn_at_exactly_the_size_that_the_model_takes(size_pt: tuple[float, float], size_px: tuple[int, int]) -> None:
    assert pdf_size(*size_pt, SETTINGS) == size_px
    assert image_size(*size_px, SETTINGS) == size_px  # nothing left to resample


def test_sizes_equal_those_of_the_vision_stage() -> None:
    patches = pytest.importorskip("pagemill.vision.patches")
    spec = pytest.importorskip("pagemill.vision.spec").VisionSpec(
        "test", 8, 8, 1, 1, 14, 2, 1540, 8, 1e-5, 1e-6, 1e4, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
    )
    for width, height in [(13, 1540), (1540, 1540), (1541, 1539), (2480, 3508), (700, 29), (5000, 333), (28, 28), (27, 57)]:
        assert image_size(width, height, SETTINGS) == patches.fit(width, height, spec)


@pytest.mark.parametrize(
    ("rotate", "corner"), [(0, "bottom left"), (90, "top left"), (-90, "bottom right"), (45, "bottom left")]
)
def test_pdf_rotation_is_honoured(tmp_path: Path, rotate: int, corner: str) -> None:
    pixels = render(save(tmp_path, "r.pdf", pdf_bytes([(600, 600)], rotate=rotate)))
    dark = np.argwhere(pixels[..., 0] < 128).mean(axis=0) / pixels.shape[:2]
    assert f"{'top' if dark[0] < 0.5 else 'bottom'} {'left' if dark[1] < 0.5 else 'right'}" == corner


def test_form_values_are_drawn(tmp_path: Path) -> None:
    field = "<</Type/Annot/Subtype/Widget/FT/Tx/T(name)/V(MMMMMM)/DA(/Helv 40 Tf 0 g)/Rect[50 50 400 150]/F 4/P 3 0 R>>"
    catalog = "<</Type/Catalog/Pages 2 0 R/AcroForm<</Fields[4 0 R]/NeedAppearances true/DR<</Font<</Helv 5 0 R>>>>>>>>"
    font = "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"
    pages = "<</Type/Pages/Kids[3 0 R]/Count 1>>"
    content = inputs.raw_pdf([catalog, pages, page_object(extra="/Annots[4 0 R]"), field, font])
    assert (render(save(tmp_path, "form.pdf", content)) < 100).any()


@pytest.mark.parametrize(
    ("name", "image", "options"),
    [
        ("grey.png", Image.fromarray(BYTE_RAMP), {}),
        ("grey.tif", Image.fromarray(BYTE_RAMP), {}),
        ("i16.png", Image.fromarray(np.rint(RAMP * 65535).astype(np.uint16)), {}),
        ("i16.tif", Image.fromarray(np.rint(RAMP * 65535).astype(np.uint16)), {}),
        ("i16_white_is_zero.tif", Image.fromarray(np.rint((1 - RAMP) * 65535).astype(np.uint16)), {"tiffinfo": {262: 0}}),
        ("i8_white_is_zero.tif", Image.fromarray(BYTE_RAMP), {"tiffinfo": {262: 0}}),
        ("i32.tif", Image.fromarray(np.rint(RAMP * 65535).astype(np.int32)), {}),
        ("float_0_1.tif", Image.fromarray(RAMP.astype(np.float32)), {}),
        ("float_0_255.tif", Image.fromarray((RAMP * 255).astype(np.float32)), {}),
        ("palette.png", Image.fromarray(BYTE_RAMP).convert("P"), {}),
        ("cmyk.jpg", Image.fromarray(BYTE_RAMP).convert("RGB").convert("CMYK"), {"quality": 95}),
        ("cmyk.tif", Image.fromarray(BYTE_RAMP).convert("RGB").convert("CMYK"), {}),
        ("rgb.webp", Image.fromarray(BYTE_RAMP).convert("RGB"), {"lossless": True}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_mode_keeps_its_greys(tmp_path: Path, name: str, image: Image.Image, options: dict[str, object]) -> None:
    pixels = render(save(tmp_path, name, image, **options))
    assert pixels.shape == (56, 280, 3)
    expected = BYTE_RAMP
    assert np.abs(pixels.astype(int) - expected[..., None]).max() <= (4 if "cmyk" in name else 1)


@pytest.mark.parametrize(
    ("name", "image", "options"),
    [
        ("rgba.png", Image.new("RGBA", (60, 40), (0, 0, 0, 0)), {}),
        ("la.png", Image.new("LA", (60, 40), (0, 0)), {}),
        ("key.png", Image.new("L", (60, 40), 0), {"transparency": 0}),
        ("palette.png", Image.new("P", (60, 40), 0), {"transparency": 0}),
        ("rgba.webp", Image.new("RGBA", (60, 40), (0, 0, 0, 0)), {"lossless": True}),
        ("one_bit.tif", Image.new("1", (60, 40), 1), {"compression": "group4"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_transparency_lies_on_white_paper(tmp_path: Path, name: str, image: Image.Image, options: dict[str, object]) -> None:
    assert (render(save(tmp_path, name, image, **options)) == 255).all()


@pytest.mark.parametrize("kind", ["L.jpg", "L.tif", "L_lzw.tif", "I;16.tif", "RGB.tif"])
@pytest.mark.parametrize(("orientation", "turns"), [(0, 0), (1, 0), (3, 2), (6, -1), (8, 1), (9, 0), (255, 0)])
def test_orientation_is_applied_once(tmp_path: Path, kind: str, orientation: int, turns: int) -> None:
    page = np.full((56, 112), 255, np.uint8)
    page[:20, :30] = 0  # a mark at the upper left
    mode = kind.partition(".")[0].partition("_")[0]
    image = Image.fromarray(page.astype(np.uint16) * 257) if mode == "I;16" else Image.fromarray(page).convert(mode)
    exif = Image.Exif()
    exif[274] = orientation
    options = {"exif": exif, "quality": 95} if kind.endswith("jpg") else {"tiffinfo": {274: orientation}}
    if "lzw" in kind:
        if orientation not in range(1, 9):
            pytest.skip("libtiff does not write it")
        options["compression"] = "tiff_lzw"
    pixels = render(save(tmp_path, "o." + kind.rpartition(".")[2], image, **options))
    expected = np.rot90(page, turns)
    assert pixels.shape[:2] == expected.shape
    assert np.abs(pixels[..., 0].astype(int) - expected).mean() < 3


def three_frames(path: Path) -> tuple[bytearray, list[int]]:
    """A TIFF of three frames, and the offsets at which each names the next one's directory."""
    frames = [Image.new("L", size, 200) for size in ((300, 400), (1, 1), (60, 80))]
    frames[0].save(path, save_all=True, append_images=frames[1:])
    content = bytearray(path.read_bytes())
    links, at = [], struct.unpack_from("<I", content, 4)[0]
    while at:
        links.append(at + 2 + 12 * struct.unpack_from("<H", content, at)[0])
        at = struct.unpack_from("<I", content, links[-1])[0]
    return content, links


def test_tiff_frames_are_pages_and_a_bad_one_fails_alone(tmp_path: Path, inspector: Inspector) -> None:
    path = tmp_path / "m.tif"
    three_frames(path)
    assert inspector.inspect(path) == DocumentInfo("tiff", 3)
    document = open_document(path, None)
    assert document.render(2, SETTINGS).pixels.shape == (84, 84, 3)
    with pytest.raises(Degenerate, match="1 x 1"):
        document.render(1, SETTINGS)
    assert document.render(0, SETTINGS).pixels.shape == (420, 308, 3)
    document.close()


@pytest.mark.parametrize(("target", "pages"), [(8, 1), (0x7FFFFFFF, 2), (40, 2)], ids=["loops", "dangles", "into pixels"])
def test_tiff_with_a_bad_directory_keeps_its_first_page(tmp_path: Path, inspector: Inspector, target: int, pages: int) -> None:
    path = tmp_path / "m.tif"
    content, links = three_frames(path)
    struct.pack_into("<I", content, links[0], target)
    path.write_bytes(content)
    assert inspector.inspect(path).pages == pages
    assert render(path).shape == (420, 308, 3)
    if pages == 2:
        with pytest.raises(PageError):
            render(path, 1)


def test_truncated_images_are_unreadable(tmp_path: Path) -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (300, 300), np.uint8))
    for name in ("a.jpg", "a.png", "a.tif", "a.webp"):
        path = save(tmp_path, name, noise)
        path.write_bytes(path.read_bytes()[:5000])
        with pytest.raises(Unreadable):
            render(path)


def test_pixel_limit_is_checked_before_decoding(tmp_path: Path) -> None:
    path = save(tmp_path, "bomb.png", Image.new("1", (6000, 5000)))
    with pytest.raises(TooLarge, match="6000 x 5000"):
        render(path, settings=RenderSettings(max_pixels=29_999_999))


def test_large_image_is_resized_once_as_the_vision_stage_would(tmp_path: Path) -> None:
    image = Image.fromarray(np.random.default_rng(1).integers(0, 255, (700, 2000, 3), np.uint8))
    pixels = render(save(tmp_path, "large.png", image))
    assert (pixels == np.asarray(image.resize((1540, 560), Image.Resampling.BICUBIC))).all()
