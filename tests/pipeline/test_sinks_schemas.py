"""ALTO, PAGE, METS and hOCR are valid for every page: ok, blank, failed, and with hostile text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from lxml import etree

from pagemill.pipeline.page import PageRef, PageText
from pagemill.pipeline.sinks import SINKS, OutputFile, SourceDocument
from tests.pipeline.hocr_rules import faults
from tests.pipeline.hostile_pages import CASES, HASH, NOT_OK, PATH, PICTURE, TEXTS, TURNED, page

SCHEMAS = {"alto": "alto-4-3.xsd", "page_xml": "pagecontent-2019-07-15.xsd", "mets": "mets.xsd"}
NAMES = {
    "alto": "{http://www.loc.gov/standards/alto/ns-v4#}",
    "page_xml": "{http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15}",
}
LABEL = 'a & <b>/\u05d0 "scan";\udcff%.pdf'


@cache
def schema(name: str) -> etree.XMLSchema:
    return etree.XMLSchema(etree.parse(Path(__file__).parent / "schemas" / SCHEMAS[name]))


def schema_faults(name: str) -> Callable[[bytes], list[str]]:
    def check(content: bytes) -> list[str]:
        tree = etree.fromstring(content, etree.XMLParser(huge_tree=True))
        validator = schema(name)
        return [] if validator.validate(tree) else [str(error) for error in validator.error_log]

    return check


CHECKS = {name: schema_faults(name) for name in SCHEMAS} | {"hocr": faults}


def render(name: str, pages: Sequence[PageText]) -> bytes:
    files = tuple(
        OutputFile(f"a/scan.p{number}{SINKS[one].suffix}", HASH, 7, one, number, SINKS[one].media_type)
        for one in ("alto", "page_xml")
        for number in range(len(pages))
    )
    whole = OutputFile("a/sc\udcffan \u05d0.pdf", HASH, 7, "pdf", None, "application/pdf")
    return SINKS[name].render(SourceDocument(LABEL, PATH, HASH, len(pages), name="a/scan", files=(*files, whole)), pages)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", CHECKS)
def test_file_of_one_page_is_valid(name: str, case: str) -> None:
    assert CHECKS[name](render(name, [CASES[case]])) == []


@pytest.mark.parametrize("name", [name for name in CHECKS if SINKS[name].scope != "page"])
def test_file_of_all_pages_is_valid(name: str) -> None:
    pages = [replace(one, ref=PageRef(HASH, number, PATH.name)) for number, one in enumerate(CASES.values())]
    assert CHECKS[name](render(name, pages)) == []


@pytest.mark.parametrize("name", CHECKS)
def test_checks_find_what_is_wrong(name: str) -> None:
    content = render(name, [CASES["plain"]])
    wrong = {"alto": b"PHYSICAL_IMG_NR", "page_xml": b"imageWidth", "mets": b'TYPE="physical', "hocr": b"ocr_carea"}
    broken = content.replace(wrong[name], b"WRONG", 1) if name != "mets" else content.replace(b"<fileSec", b"<fileSac", 1)
    assert CHECKS[name](broken.replace(b"</fileSec>", b"</fileSac>") if name == "mets" else broken)


@pytest.mark.parametrize("case", TEXTS)
def test_every_word_is_in_alto_hocr_and_page(case: str) -> None:
    one = CASES[case]
    text = SINKS["text"].render(SourceDocument("x", PATH, HASH, 1), [one]).decode()
    bad = set(map(chr, [*range(32), 0xFFFE, 0xFFFF])) - set("\t\n\r")
    words = text.replace("?", "\ufffd").split()
    expected = ["".join("\ufffd" if letter in bad else letter for letter in word) for word in words]
    alto = etree.fromstring(render("alto", [one]), etree.XMLParser(huge_tree=True))
    words = [string.get("CONTENT").replace("?", "\ufffd") for string in alto.iter(NAMES["alto"] + "String")]
    assert words == expected
    hocr = etree.fromstring(render("hocr", [one]), etree.XMLParser(huge_tree=True))
    assert [span.text.replace("?", "\ufffd") for span in hocr.iter("{*}span") if span.get("class") == "ocrx_word"] == words
    lines = etree.fromstring(render("page_xml", [one])).iterfind(f".//{NAMES['page_xml']}TextLine//{NAMES['page_xml']}Unicode")
    assert " ".join(line.text for line in lines).replace("?", "\ufffd").split() == words


@pytest.mark.parametrize("name", CHECKS)
def test_provenance_is_in_every_file(name: str) -> None:
    content = render(name, [CASES["plain"]]).decode()
    for said in ("0.1.0", "cd" * 32, "ef" * 32, "01" * 32, "temperature 0.2", "2025-11-29T22:15:00Z", HASH):
        assert said in content


@pytest.mark.parametrize("name", CHECKS)
def test_reason_is_in_the_file_of_a_page_that_is_not_ok(name: str) -> None:
    for case in ("blank", "truncated", "looped", "low_confidence"):
        assert NOT_OK[case].reason in render(name, [NOT_OK[case]]).decode()


@pytest.mark.parametrize("name", ["alto", "hocr", "page_xml"])
def test_file_says_whose_boxes_it_has(name: str) -> None:
    assert "one block stands for the whole page" in render(name, [CASES["plain"]]).decode()
    assert "Block boxes are the model" in render(name, [CASES["boxes"]]).decode()


def test_boxes_are_pixels_of_the_picture() -> None:
    alto = etree.fromstring(render("alto", [CASES["boxes"]]))
    blocks = list(alto.iter(NAMES["alto"] + "TextBlock"))
    assert [blocks[1].get(side) for side in ("HPOS", "VPOS", "WIDTH", "HEIGHT")] == ["54.6", "154.0", "469.6", "1232.0"]
    assert len(list(alto.iter(NAMES["alto"] + "Illustration"))) == 1
    xml = etree.fromstring(render("page_xml", [CASES["boxes"]]))
    points = [coords.get("points") for coords in xml.iterfind(f".//{NAMES['page_xml']}TextRegion/{NAMES['page_xml']}Coords")]
    assert points[1] == "55,154 524,154 524,1386 55,1386"


@pytest.mark.parametrize("turn", [90, 180, 270])
def test_boxes_of_a_turned_page_are_turned_back(turn: int) -> None:
    """A mark drawn on the page as it was read, that page turned back, and the mark looked for there."""
    width, height = PICTURE.width_px, PICTURE.height_px
    read = np.zeros((height, width), bool)
    read[round(0.2 * height) : round(0.25 * height), round(0.1 * width) : round(0.3 * width)] = True
    original = np.rot90(read, turn // 90)
    rows, columns = np.nonzero(original)
    wanted = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    xml = etree.fromstring(render("page_xml", [TURNED[f"turned {turn}"]]))
    region = xml.find(f".//{NAMES['page_xml']}TextRegion")
    left_top, _, right_bottom, _ = (point.split(",") for point in region[0].get("points").split())
    assert [int(side) for side in (*left_top, *right_bottom)] == pytest.approx(wanted, abs=1)
    size = xml.find(f"{NAMES['page_xml']}Page")
    assert (int(size.get("imageHeight")), int(size.get("imageWidth"))) == original.shape
    assert int(region.get("orientation")) % 360 == turn


def test_boxes_of_a_page_read_in_halves_are_not_known() -> None:
    xml = etree.fromstring(render("page_xml", [CASES["halves"]]))
    assert xml.find(f".//{NAMES['page_xml']}TextRegion")[0].get("points") == "0,0 1092,0 1092,1540 0,1540"


def test_confidences_stay_with_their_words() -> None:
    text = "# One **two** | three |\n\n![text](1,2,3,4) four"
    one = page(0, text, word_confidences=(0, 11, 22, 0, 33, 0, 0, 44))
    alto = etree.fromstring(render("alto", [one]))
    found = {string.get("CONTENT"): string.get("WC") for string in alto.iter(NAMES["alto"] + "String")}
    assert found == {"One": "0.11", "two": "0.22", "|": "0.00", "three": "0.33", "four": "0.44"}


def test_mets_points_from_each_page_to_its_files() -> None:
    mets = etree.fromstring(render("mets", [page(0, "a"), page(1, "b")]))
    files = {file.get("ID"): file for file in mets.iter("{http://www.loc.gov/METS/}file")}
    assert files.keys() == {"original", "alto_1", "alto_2", "page_xml_1", "page_xml_2", "pdf"}
    parts = [div for div in mets.iter("{http://www.loc.gov/METS/}div") if div.get("TYPE") == "page"]
    pointed = [[pointer.get("FILEID") for pointer in part] for part in parts]
    assert pointed == [["alto_1", "page_xml_1"], ["alto_2", "page_xml_2"]]
    place = files["pdf"][0].get("{http://www.w3.org/1999/xlink}href")
    assert place == "sc%FFan%20%D7%90.pdf"
