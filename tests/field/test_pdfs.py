"""Field complaints 31 and 35 to 44: strange PDFs, each with the end that its pages must come to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pikepdf
import pytest

from pagemill.pipeline.render.preprocess import RenderSettings
from tests.field import files
from tests.field.files import drawn_pdf, fax, jpeg, picture_pdf, square_page
from tests.field.rendered import Case, Ended, check, is_dark, is_print, render_all
from tests.pipeline.inputs import page_object, page_tree, pdf_bytes, raw_pdf

TEN = pdf_bytes([(300, 400)] * 10)
GREY = files.encoded(files.Image.fromarray(files.scan()).convert("RGB").convert("CMYK"), "JPEG", quality=95)
JPX = files.encoded(files.Image.fromarray(files.scan()), "JPEG2000")
FLATE = files.zlib.compress(files.scan().tobytes())
SHAPE = pikepdf.Dictionary(K=-1, Columns=files.SIDE_PX, Rows=files.SIDE_PX, BlackIs1=True)
FAX = {"bits": 1, "DecodeParms": SHAPE}
FIELD = "<</Type/Annot/Subtype/Widget/FT/Tx/T(name)/V(MMMMMM)/DA(/Helv 40 Tf 0 g)/Rect[50 50 400 150]/F 4/P 3 0 R>>"
FORM = raw_pdf(
    [
        "<</Type/Catalog/Pages 2 0 R/AcroForm<</Fields[4 0 R]/NeedAppearances true/DR<</Font<</Helv 5 0 R>>>>>>>>",
        "<</Type/Pages/Kids[3 0 R]/Count 1>>",
        page_object(extra="/Annots[4 0 R]"),
        FIELD,
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
)
TYPE3 = drawn_pdf(
    page_object(extra="/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>"),
    "BT /F 100 Tf 100 400 Td (aa) Tj ET",
    "<</Type/Font/Subtype/Type3/FontBBox[0 0 10 10]/FontMatrix[.1 0 0 .1 0 0]/CharProcs<</a 6 0 R>>"
    "/Encoding<</Type/Encoding/Differences[97/a]>>/FirstChar 97/LastChar 97/Widths[10]>>",
    "<</Length 24>>\nstream\n10 0 d0 0 0 8 8 re f    \nendstream",
)

CASES: dict[str, Case] = {
    "monster of 200000 pt": Case(31, square_page("0 0 200000 200000", "/UserUnit 1"), ["suspect"]),
    "flate bomb": Case(35, lambda path: path.write_bytes(files.flate_bomb()), ["ink"]),
    "14400 pt": Case(35, square_page("0 0 14400 14400"), ["ink"]),
    "A0": Case(35, square_page("0 0 2384 3370"), ["ink"]),
    "zero bytes": Case(36, b"", ["Unreadable"], "found 0 bytes"),
    "text called pdf": Case(36, b"Dear Sir", ["Unreadable"], "not a document", file_name="a.pdf"),
    "2 kB of junk before": Case(36, b"junk " * 400 + square_page(), ["Unreadable"], "not a document"),
    "900 B of junk before": Case(36, b"junk " * 180 + square_page(), ["ink"]),
    "cut at half": Case(36, TEN[: len(TEN) // 2], ["ink"] + ["Unreadable"] * 9, "lost its content"),
    "cut at a tenth": Case(36, TEN[: len(TEN) // 10], ["Unreadable"], "truncated"),
    "without its end": Case(36, TEN[:-40], ["ink"] * 10),
    "cut to its head": Case(36, TEN[:60], ["Unreadable"], "truncated"),
    "cross-references damaged": Case(36, TEN.replace(b" 00000 n", b" 0000x n"), ["ink"] * 10),
    "no pages": Case(37, page_tree("", 0), ["Unreadable"], "has no pages"),
    "count lies": Case(38, page_tree("3 0 R", 5, page_object()), ["blank"] + ["Unreadable"] * 4, "page 2 cannot be loaded"),
    "kid is null": Case(38, page_tree("3 0 R null", 2, page_object()), ["blank", "Unreadable"]),
    "kids loop": Case(38, page_tree("3 0 R 2 0 R", 2, page_object()), ["blank", "Unreadable"]),
    "kid is its parent": Case(38, page_tree("2 0 R", 1), ["Unreadable"]),
    "two nodes hold each other": Case(
        38, page_tree("3 0 R", 1, "<</Type/Pages/Kids[4 0 R]/Count 1>>", "<</Type/Pages/Kids[3 0 R]/Count 1>>"), ["Unreadable"]
    ),
    "needs a password": Case(39, pdf_bytes(user="open", owner="o"), ["PasswordNeeded"], "needs a password"),
    "wrong password": Case(39, pdf_bytes(user="open", owner="o"), ["PasswordNeeded"], "does not open", "shut"),
    "password": Case(39, pdf_bytes(user="open", owner="o"), ["ink"], password="open"),
    "password beyond ASCII": Case(39, pdf_bytes(user="Grüße パス", owner="o"), ["ink"], password="Grüße パス"),
    "owner's password alone": Case(39, pdf_bytes(owner="o"), ["ink"]),
    "password not needed": Case(39, square_page(), ["ink"], password="for others"),
    "crop box outside": Case(40, square_page(extra="/CropBox[900 900 1000 1000]"), ["Degenerate"], "expected an area"),
    "no media box": Case(
        40, drawn_pdf("<</Type/Page/Parent 2 0 R/Contents 4 0 R>>"), ["ink"], holds=lambda p: p.shape[0] == 1540
    ),
    "empty media box": Case(40, square_page("0 0 0 0"), ["ink"], holds=lambda pixels: pixels.shape[:2] == (1540, 1204)),
    "box from corner to corner": Case(40, square_page("595 842 0 0"), ["ink"]),
    "negative box": Case(40, square_page("-100 -100 495 742"), ["ink"]),
    "user unit": Case(
        40,
        drawn_pdf(page_object("0 0 59 84", "/UserUnit 10/Contents 4 0 R"), "0 g 10 10 20 20 re f"),
        ["ink"],
        holds=lambda pixels: max(pixels.shape) == 1540,
    ),
    "turned 90": Case(
        41, square_page("0 0 400 600", "/Rotate 90"), ["ink"], holds=lambda pixels: pixels.shape[1] > pixels.shape[0]
    ),
    "turned -90": Case(41, square_page("0 0 400 600", "/Rotate -90"), ["ink"], holds=lambda p: p.shape[1] > p.shape[0]),
    "turned 45": Case(41, square_page("0 0 400 600", "/Rotate 45"), ["ink"], holds=lambda p: p.shape[1] < p.shape[0]),
    "turned 360": Case(41, square_page("0 0 400 600", "/Rotate 360"), ["ink"], holds=lambda p: p.shape[1] < p.shape[0]),
    "sliver": Case(42, square_page("0 0 1 10000"), ["Degenerate"], "50 : 1"),
    "strip of 100 to 1": Case(42, square_page("0 0 72 7200"), ["Degenerate"], "100 : 1"),
    "a point": Case(42, square_page("0 0 1 1"), ["Degenerate"], "too small for a letter"),
    "CMYK JPEG": Case(
        43, picture_pdf(GREY, "/DCTDecode", space="/DeviceCMYK", Decode=pikepdf.Array([1, 0] * 4)), ["ink"], holds=is_print
    ),
    "JPEG": Case(43, picture_pdf(jpeg(), "/DCTDecode"), ["ink"], holds=is_print),
    "JPEG without its end mark": Case(43, picture_pdf(jpeg()[:-2], "/DCTDecode"), ["ink"], holds=is_print),
    "JPEG cut": Case(43, picture_pdf(jpeg()[:-4000], "/DCTDecode"), ["Unreadable"], "of its rows are missing"),
    "JPEG progressive": Case(43, picture_pdf(jpeg(progressive=True), "/DCTDecode"), ["ink"], holds=is_print),
    "JPEG progressive, cut": Case(43, picture_pdf(jpeg(progressive=True)[:-4000], "/DCTDecode"), ["Unreadable"], "cut off"),
    "JPEG of junk": Case(43, picture_pdf(b"\0" * 500, "/DCTDecode"), ["Unreadable"], "cannot be decoded"),
    "JPEG 2000": Case(43, picture_pdf(JPX, "/JPXDecode"), ["ink"], holds=is_print),
    "JPEG 2000 cut": Case(43, picture_pdf(JPX[: len(JPX) // 2], "/JPXDecode"), ["Unreadable"], "cannot be decoded"),
    "JBIG2 of junk": Case(43, picture_pdf(b"\0\1\2\3" * 50, "/JBIG2Decode", bits=1), ["Unreadable"], "cannot be decoded"),
    "fax": Case(43, picture_pdf(fax(), "/CCITTFaxDecode", **FAX), ["ink"], holds=is_print),
    "fax cut": Case(43, picture_pdf(fax()[: len(fax()) // 2], "/CCITTFaxDecode", **FAX), ["Unreadable"], "rows are black"),
    "deflated picture": Case(43, picture_pdf(FLATE, "/FlateDecode"), ["ink"], holds=is_print),
    "deflated picture cut": Case(43, picture_pdf(FLATE[:-9000], "/FlateDecode"), ["Unreadable"], "expected 40000 bytes"),
    "picture beside text": Case(43, picture_pdf(b"\0\1\2\3" * 50, "/JBIG2Decode", bits=1), ["Unreadable"], "cannot be decoded"),
    "white picture": Case(43, drawn_pdf(page_object(extra="/Contents 4 0 R"), "1 g 0 0 500 800 re f"), ["suspect"]),
    "beyond 2 GiB": Case(44, files.beyond_2_gib, ["ink"], holds=is_dark),
    "form": Case(44, FORM, ["ink"], holds=is_dark),
    "type 3 font": Case(44, TYPE3, ["ink"], holds=is_dark),
    "contents that are nowhere": Case(36, drawn_pdf(page_object(extra="/Contents 9 0 R")), ["Unreadable"], "lost its content"),
    "contents in part nowhere": Case(36, drawn_pdf(page_object(extra="/Contents[9 0 R]")), ["Unreadable"], "lost its content"),
    "contents that do not decode": Case(36, files.undecodable(), ["Unreadable"], "cannot be decoded"),
    "contents that draw what is nowhere": Case(36, drawn_pdf(page_object(extra="/Contents 4 0 R"), "q /Im7 Do Q"), ["suspect"]),
    "contents that draw nothing": Case(36, drawn_pdf(page_object(extra="/Contents 4 0 R"), "q 1 0 0 1 0 0 cm Q"), ["blank"]),
    "no contents": Case(44, page_tree("3 0 R", 1, page_object()), ["blank"]),
}


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    return render_all(tmp_path_factory.mktemp("pdfs"), CASES, RenderSettings())


@pytest.mark.parametrize("name", CASES)
def test_strange_pdf_ends_as_it_must(ended: dict[str, Ended], name: str) -> None:
    check(CASES[name], ended[name])


def test_a_page_renders_the_same_in_a_fresh_process_as_after_hostile_files(ended: dict[str, Ended], tmp_path: Path) -> None:
    case = {"form": CASES["form"]}
    again = render_all(tmp_path, case, RenderSettings())["form"].first
    first = ended["form"].first
    assert first is not None
    assert again is not None
    assert (again == first).all()


def test_a_page_whose_text_layer_is_empty_is_drawn(tmp_path: Path) -> None:
    hidden = picture_pdf(jpeg(), "/DCTDecode", after=b" BT 3 Tr ET")
    ended = render_all(tmp_path, {"scan": Case(21, hidden, ["ink"])}, RenderSettings())["scan"]
    assert ended.ends == ["ink"]
    assert ended.first is not None
    assert is_print(ended.first)


def test_the_parent_never_loads_pdfium(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(square_page())
    code = f"""
import sys
import os
import subprocess
import sys
from pathlib import Path
from pagemill.pipeline.documents.documents import inspect
from pagemill.pipeline.page import PageImage, PageRef
from pagemill.pipeline.render.preprocess import RenderSettings
from pagemill.pipeline.render.producer import Producer
from pagemill.pipeline.render.renderer import RenderRequest
path = Path({str(tmp_path / "a.pdf")!r})
assert inspect(path).pages == 1
requests = [RenderRequest(PageRef("h", 0), path, RenderSettings())] * 8
with Producer(workers=2) as producer:
    assert all(isinstance(page, PageImage) for page in producer.render(requests))
print([name for name in ("pypdfium2", "pikepdf") if name in sys.modules])
"""
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "[]"
