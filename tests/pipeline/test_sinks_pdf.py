"""Searchable PDF: its text is found again by pdfium and poppler in order, its pages look as the original's, to the pixel."""

from __future__ import annotations

import ctypes
import io
import shutil
import subprocess
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pikepdf
import pypdfium2
import pytest
from numpy.typing import NDArray
from PIL import Image

from pagemill.pipeline.documents.content import hash_content
from pagemill.pipeline.documents.raster import to_rgb
from pagemill.pipeline.page import Attempt, PageRef, PageText
from pagemill.pipeline.sinks import SINKS, SourceDocument
from pagemill.pipeline.sinks.bidi import visual_order
from pagemill.pipeline.sinks.text_layer import make_pdf
from tests.pipeline.hostile_pages import CASES, TEXTS
from tests.pipeline.inputs import page_object, page_tree, raw_pdf

SAMPLES = Path(__file__).parents[2] / "samples" / "documents"
WORDS = "First line of the page\nsecond \u00e9\u00df\u0142, third\n\u6f22\u5b57 \u0938\u0902\u0938\u094d\nlast 1912."
needs_poppler = pytest.mark.skipif(shutil.which("pdftotext") is None, reason="needs pdftotext: install poppler-utils")


def source(path: Path, pages: int, password: str | None = None) -> SourceDocument:
    return SourceDocument(path.name, path, hash_content(path), pages, password, path.stem)


def reads(document: SourceDocument, *texts: str) -> list[PageText]:
    return [PageText(PageRef(document.content_hash, page, document.label), text, "ok") for page, text in enumerate(texts)]


def draw(content: bytes | Path, page: int, password: str | None = None) -> NDArray[np.uint8]:
    pdf = pypdfium2.PdfDocument(content, password=password)
    return np.asarray(pdf[page].render(scale=1.5).to_numpy()).copy()


def found_by_pdfium(content: bytes, page: int) -> str:
    text: str = pypdfium2.PdfDocument(content)[page].get_textpage().get_text_range()
    return text.replace("\r\n", "\n").replace("\x02", "")


def found_by_poppler(content: bytes, page: int, *options: str) -> str:
    command = ["pdftotext", "-f", str(page + 1), "-l", str(page + 1), *options, "-", "-"]
    text = subprocess.run(command, input=content, capture_output=True, check=True).stdout.decode()
    return "".join(letter for letter in text if unicodedata.category(letter) != "Cf").removesuffix("\f")


def scan(path: Path, change: Callable[[pikepdf.Page], None] = lambda page: None, pages: int = 1) -> SourceDocument:
    """A PDF of pages with drawn bars and no text."""
    with pikepdf.new() as pdf:
        for number in range(pages):
            pdf.add_blank_page(page_size=(300, 400))
            bars = "".join(f"0.{bar} g {20 + 5 * number} {40 * bar} {200 - 9 * bar} 11 re f\n" for bar in range(1, 9))
            pdf.pages[-1].contents_add(pikepdf.Stream(pdf, bars.encode()))
            change(pdf.pages[-1])
        pdf.save(path)
    return source(path, pages)


def boxed(key: str, box: Sequence[float]) -> Callable[[pikepdf.Page], None]:
    return lambda page: page.obj.__setitem__(key, pikepdf.Array(box))


def turned(degrees: int) -> Callable[[pikepdf.Page], None]:
    return lambda page: page.obj.__setitem__("/Rotate", degrees)


def unbalanced(page: pikepdf.Page) -> None:
    page.contents_add(b"q 0.3 0 0 0.3 7 9 cm q 1 0 0 rg /Nothing gs Q Q Q Q", prepend=False)


def scaled_first(page: pikepdf.Page) -> None:
    page.contents_add(b"0.5 0 0 -0.5 3 390 cm", prepend=True)


PAGES = {
    "plain": lambda page: None,
    "turned 90": turned(90),
    "turned 180": turned(180),
    "turned 270": turned(270),
    "turned -90": turned(-90),
    "turned 45": turned(45),
    "cropped": boxed("/CropBox", [40, 50, 260, 380]),
    "crop larger than media": boxed("/CropBox", [-500, -500, 900, 900]),
    "origin elsewhere": boxed("/MediaBox", [-100, -50, 250, 400]),
    "sides turned round": boxed("/MediaBox", [300, 400, 0, 0]),
    "user unit": lambda page: page.obj.__setitem__("/UserUnit", 3),
    "state left open": unbalanced,
    "state changed first": scaled_first,
    "no resources": lambda page: page.obj.__delitem__("/Resources") if "/Resources" in page.obj else None,
}


@pytest.mark.parametrize("case", PAGES)
def test_text_is_found_in_order_and_no_pixel_changes(tmp_path: Path, case: str) -> None:
    document = scan(tmp_path / "scan.pdf", PAGES[case])
    content = make_pdf(document, reads(document, WORDS))
    assert found_by_pdfium(content, 0) == WORDS
    assert np.array_equal(draw(content, 0), draw(document.content, 0))
    if shutil.which("pdftotext"):
        assert found_by_poppler(content, 0).split() == WORDS.split()


@pytest.mark.parametrize("case", ["plain", "turned 90", "turned 180", "turned 270", "cropped", "origin elsewhere"])
def test_text_stands_in_its_box(tmp_path: Path, case: str) -> None:
    document = scan(tmp_path / "scan.pdf", PAGES[case])
    content = make_pdf(document, reads(document, "![text](100,600,900,650) word"))
    page = pypdfium2.PdfDocument(content)[0]
    textpage = page.get_textpage()
    left, bottom, right, top = textpage.get_charbox(0, loose=True)
    crop, turn = page.get_cropbox(), page.get_rotation()
    across = [(side - crop[0]) / (crop[2] - crop[0]) for side in (left, right)]
    up = [(side - crop[1]) / (crop[3] - crop[1]) for side in (bottom, top)]
    shown = {0: (across, [1 - side for side in up]), 90: (up, across), 180: ([1 - side for side in across], up)}
    shown[270] = ([1 - side for side in up], [1 - side for side in across])
    xs, ys = shown[turn]
    assert min(xs) == pytest.approx(0.1, abs=0.02)
    assert 0.59 < min(ys) < max(ys) < 0.66
    assert len(textpage.get_text_range()) == 4


@pytest.mark.parametrize("case", ["plain", "turned 90", "turned 270"])
@pytest.mark.parametrize("turn", [90, 180, 270])
def test_text_of_a_page_that_was_turned_to_be_read_stands_as_it_does_there(tmp_path: Path, case: str, turn: int) -> None:
    document = scan(tmp_path / "scan.pdf", PAGES[case])
    record = replace(reads(document, "![text](100,600,900,650) word")[0], attempts=(Attempt("ok", turn=turn),))
    content = make_pdf(document, [record])
    with pikepdf.open(io.BytesIO(content)) as pdf:  # turn the page as it was turned to be read, then look
        pdf.pages[0].rotate(turn, relative=True)
        pdf.save(tmp_path / "turned.pdf")
    page = pypdfium2.PdfDocument(tmp_path / "turned.pdf")[0]
    left, bottom, right, top = page.get_textpage().get_charbox(0, loose=True)
    width, height = page.get_size()
    corners = [_shown(page, x, y) for x in (left, right) for y in (bottom, top)]
    assert min(x for x, _ in corners) / width == pytest.approx(0.1, abs=0.02)
    assert 0.59 < min(y for _, y in corners) / height < max(y for _, y in corners) / height < 0.66


def _shown(page: pypdfium2.PdfPage, x: float, y: float) -> tuple[float, float]:
    """Where a point of the page is drawn, from the upper left, at 72 dpi."""
    width, height = (round(side) for side in page.get_size())
    shown_x, shown_y = ctypes.c_int(), ctypes.c_int()
    pypdfium2.raw.FPDF_PageToDevice(page, 0, 0, width, height, 0, x, y, shown_x, shown_y)
    return shown_x.value, shown_y.value


@pytest.mark.parametrize("name", sorted(path.name for path in SAMPLES.glob("*.pdf")))
def test_sample_pdf_keeps_its_pixels_and_gains_text(name: str) -> None:
    path = SAMPLES / name
    count = len(pypdfium2.PdfDocument(path))
    document = source(path, count)
    texts = [f"Page {page + 1}\n{WORDS}" for page in range(count)]
    content = SINKS["pdf"].render(document, reads(document, *texts))  # through the child process
    for page in range(count):
        assert found_by_pdfium(content, page).startswith(texts[page])
        assert np.array_equal(draw(content, page), draw(path, page))


@needs_poppler
def test_poppler_reads_a_page_that_has_text_already_in_the_order_of_its_content() -> None:
    document = source(SAMPLES / "mill.pdf", 7)
    content = make_pdf(document, reads(document, *[WORDS] * 7))
    assert found_by_poppler(content, 0, "-raw").split()[: len(WORDS.split())] == WORDS.split()


@pytest.mark.parametrize("name", sorted(path.name for path in SAMPLES.iterdir() if path.suffix != ".pdf"))
def test_pdf_of_an_image_file_shows_its_frames_to_the_pixel(name: str) -> None:
    with Image.open(SAMPLES / name) as image:
        count = getattr(image, "n_frames", 1)
    document = source(SAMPLES / name, count)
    content = make_pdf(document, reads(document, *[f"frame {frame}" for frame in range(count)]))
    with pikepdf.open(io.BytesIO(content)) as pdf, Image.open(SAMPLES / name) as image:
        for frame, page in enumerate(pdf.pages):
            image.seek(frame)
            shown = pikepdf.PdfImage(page.obj.Resources.XObject["/Page"]).as_pil_image().convert("RGB")
            assert np.array_equal(np.asarray(shown), np.asarray(to_rgb(image)))
            assert found_by_pdfium(content, frame) == f"frame {frame}"
        assert len(pdf.pages) == count


def test_jpeg_goes_into_the_pdf_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    Image.effect_noise((120, 80), 90).convert("RGB").save(path, quality=50, dpi=(300, 300))
    document = source(path, 1)
    with pikepdf.open(io.BytesIO(make_pdf(document, reads(document, "x")))) as pdf:
        assert pdf.pages[0].obj.Resources.XObject["/Page"].read_raw_bytes() == path.read_bytes()
        assert [float(side) for side in pdf.pages[0].mediabox] == [0, 0, 28.8, 19.2]


def test_bad_frame_is_an_empty_page_among_good_ones(tmp_path: Path) -> None:
    frames = [Image.new("L", (40, 60), shade) for shade in (10, 20, 30)]
    frames[0].save(tmp_path / "m.tif", save_all=True, append_images=frames[1:])
    document = source(tmp_path / "m.tif", 4)
    with pikepdf.open(io.BytesIO(make_pdf(document, reads(document, *"abcd")))) as pdf:
        assert [len(page.obj.Resources.get("/XObject", {})) for page in pdf.pages] == [1, 1, 1, 0]


@pytest.mark.parametrize("case", CASES)
def test_every_text_goes_in_and_plain_words_come_out(tmp_path: Path, case: str) -> None:
    document = scan(tmp_path / "scan.pdf")
    content = make_pdf(document, [CASES[case]])
    assert np.array_equal(draw(content, 0), draw(document.content, 0))
    if case in ("plain", "markup", "astral", "5000 lines", "table", "truncated"):
        wanted = SINKS["text"].render(document, [CASES[case]]).decode().split()
        assert found_by_pdfium(content, 0).split() == wanted


HEBREW, ARABIC = "\u05e9\u05dc\u05d5\u05dd", "\u0645\u0631\u062d\u0628\u0627"
LEFT = "\nmany more words from left to right, so that it is the page's direction\n" * 2


@pytest.mark.parametrize(
    "line",
    [f"{HEBREW} \u05d0\u05d1", f"{ARABIC} {ARABIC}", f"abc {HEBREW} 12 \u05d0\u05d1 def", f"{HEBREW} abc \u05d0\u05d1",
     f"{HEBREW} 1912 \u05d0\u05d1", f"abc {HEBREW}"],
)  # fmt: skip
def test_pdfium_finds_right_to_left_text_in_reading_order(tmp_path: Path, line: str) -> None:
    document = scan(tmp_path / "scan.pdf")
    assert found_by_pdfium(make_pdf(document, reads(document, line)), 0) == line
    assert sorted(visual_order(line)) == sorted(line)


@needs_poppler
@pytest.mark.parametrize(
    ("line", "others"),
    [(f"{HEBREW} \u05d0\u05d1", ""), (f"{HEBREW} 1912 \u05d0\u05d1", ""), (f"{ARABIC} {ARABIC}", ""),
     (f"abc {HEBREW} \u05d0\u05d1 def", LEFT), (f"abc {HEBREW} 12 \u05d0\u05d1 def", LEFT), (f"{HEBREW} \u05d0\u05d1", LEFT)],
)  # fmt: skip
def test_poppler_finds_right_to_left_text_in_reading_order(tmp_path: Path, line: str, others: str) -> None:
    document = scan(tmp_path / "scan.pdf")
    found = found_by_poppler(make_pdf(document, reads(document, line + others)), 0)
    assert found.split("\n")[0].replace(" ", "") == line.replace(" ", "")  # it drops spaces where the direction turns


def test_same_records_give_the_same_bytes(tmp_path: Path) -> None:
    document = scan(tmp_path / "scan.pdf", pages=3)
    texts = reads(document, WORDS, "", TEXTS["boxes"])
    assert make_pdf(document, texts) == make_pdf(document, texts)


def test_shared_and_inherited_resources_are_left_alone(tmp_path: Path) -> None:
    document = scan(tmp_path / "scan.pdf", pages=2)
    with pikepdf.open(document.content, allow_overwriting_input=True) as pdf:
        shared = pikepdf.Dictionary(ExtGState=pikepdf.Dictionary(G=pikepdf.Dictionary(CA=0.5)))
        for page in pdf.pages:
            del page.obj.Resources
        pdf.Root.Pages.Resources = pdf.make_indirect(shared)
        pdf.save()
    document = source(document.content, 2)
    with pikepdf.open(io.BytesIO(make_pdf(document, reads(document, "one", "")))) as pdf:
        first, second = pdf.pages
        assert {"/ExtGState", "/Font"} == set(first.obj.Resources.keys())
        assert {"/ExtGState"} == set(second.resources.keys())


def test_encrypted_original_opens_with_its_password(tmp_path: Path) -> None:
    plain = scan(tmp_path / "plain.pdf")
    with pikepdf.open(plain.content) as pdf:
        pdf.save(tmp_path / "locked.pdf", encryption=pikepdf.Encryption(owner="o", user="secret"))
    document = source(tmp_path / "locked.pdf", 1, "secret")
    content = make_pdf(document, reads(document, "hello"))
    assert found_by_pdfium(content, 0) == "hello"
    assert np.array_equal(draw(content, 0), draw(document.content, 0, "secret"))


@pytest.mark.parametrize("trouble", ["locked", "damaged", "gone", "changed"])
def test_original_that_does_not_open_becomes_pages_that_say_why(tmp_path: Path, trouble: str) -> None:
    document = scan(tmp_path / "scan.pdf", pages=2)
    if trouble == "locked":
        with pikepdf.open(document.content, allow_overwriting_input=True) as pdf:
            pdf.save(encryption=pikepdf.Encryption(owner="o", user="secret"))
        document = source(document.content, 2)
    elif trouble == "damaged":
        document.content.write_bytes(b"%PDF-1.7\nnothing")
        document = source(document.content, 2)
    elif trouble == "gone":
        document.content.unlink()
    else:
        document.content.write_bytes(document.content.read_bytes() + b"\n")
    content = SINKS["pdf"].render(document, reads(document, "a", "b"))
    reasons = {"locked": "password", "damaged": "PDF cannot be opened", "gone": "cannot be read", "changed": "has changed"}
    for page in range(2):
        said = found_by_pdfium(content, page).replace("\n", "")
        assert f"scan.pdf, page {page + 1}: the original could not be opened." in said
        assert reasons[trouble] in said


HOSTILE = {
    "pages in a circle": raw_pdf(["<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 >>"]),
    "no pages": raw_pdf(["<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [] /Count 0 >>"]),
    "fewer pages than said": page_tree("3 0 R", 9, page_object()),
    "a page that is null": page_tree("3 0 R null", 2, page_object()),
    "no area": page_tree("3 0 R", 1, page_object(box="0 0 0 0")),
    "box of words": page_tree("3 0 R", 1, page_object(box="/a /b /c /d")),
    "half a file": page_tree("3 0 R", 1, page_object())[:200],
    "text after the start": b"%PDF-1.7" + b"x" * 3000,
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_original_gives_a_pdf_that_opens(tmp_path: Path, case: str) -> None:
    path = tmp_path / "bad.pdf"
    path.write_bytes(HOSTILE[case])
    document = source(path, 2)
    content = SINKS["pdf"].render(document, reads(document, "one", "two"))
    assert content.startswith(b"%PDF-")
    with pikepdf.open(io.BytesIO(content)) as pdf:
        assert len(pdf.pages) in (1, 2)


def test_record_says_where_the_text_comes_from(tmp_path: Path) -> None:
    document = scan(tmp_path / "scan.pdf")
    with pikepdf.open(io.BytesIO(make_pdf(document, [CASES["plain"]]))) as pdf:
        said = pdf.Root.PieceInfo.Pagemill
        assert str(said.LastModified) == "D:20251129221500Z"
        assert str(said.Private.OriginalSHA256) == document.content_hash
        for fact in ("status: ok", "software: pagemill 0.1.0", f"model_hash: {'cd' * 32}", f"image_hash: {'01' * 32}"):
            assert fact in str(said.Private.Pages[0])


def test_original_is_not_written(tmp_path: Path) -> None:
    document = scan(tmp_path / "scan.pdf")
    document.content.chmod(0o444)
    before = document.content.stat().st_mtime_ns, document.content.read_bytes()
    SINKS["pdf"].render(document, reads(document, WORDS))
    assert (document.content.stat().st_mtime_ns, document.content.read_bytes()) == before
