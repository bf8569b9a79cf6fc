"""hOCR 1.2 as XHTML: ``ocr_page``, ``ocr_carea``, ``ocr_par``, ``ocr_line`` and ``ocrx_word``.

Boxes are in pixels of the page image that the model read.  A line has the box of its block where nothing closer is known, and
the file says so; words have none, and ``x_wconf`` where it is known.
"""

from __future__ import annotations

from collections.abc import Sequence

from lxml import etree

from pagemill.pipeline.layout import Block, blocks_of, page_size, placed
from pagemill.pipeline.page import PageText
from pagemill.pipeline.sinks.document import Scope, SourceDocument
from pagemill.pipeline.sinks.facts import LINES_NOTE, boxes_note, facts_of, iso_date, version_of, xml_bytes, xml_name, xml_text

XHTML = "http://www.w3.org/1999/xhtml"
DOCTYPE = (
    '<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN" "http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd">'
)


IN_TITLE = {ord(mark): f"%{ord(mark):02X}" for mark in '%;"\\'}  # what would end a property of a title


class HocrSink:
    """``.hocr``"""

    suffix = ".hocr"
    media_type = "text/vnd.hocr+html"
    scope: Scope = "any"
    text_times = 8.0
    needs_original = False

    def render(self, document: SourceDocument, pages: Sequence[PageText]) -> bytes:
        """One ``ocr_page`` a page."""
        root = etree.Element(_tag("html"), nsmap={None: XHTML})
        head = _add(root, "head")
        _add(head, "title").text = xml_name(document.label)
        _add(head, "meta", **{"http-equiv": "Content-Type", "content": "text/html; charset=utf-8"})
        metas = [
            ("ocr-system", f"pagemill {version_of(pages)}".strip()),
            ("ocr-capabilities", "ocr_page ocr_carea ocr_par ocr_line ocrx_word ocrp_wconf ocrp_dir"),
            ("ocr-number-of-pages", str(len(pages))),
            ("pagemill-document-sha256", document.content_hash),
            ("dcterms.created", iso_date(pages) or ""),
        ]
        for name, content in metas:
            if content:
                _add(head, "meta", name=name, content=content)
        body = _add(root, "body")
        for page in pages:
            _add_page(body, document, page)
        if not pages:
            _add(body, "p").text = "no pages"
        return xml_bytes(root, DOCTYPE)


def _add_page(body: etree._Element, document: SourceDocument, page: PageText) -> None:
    number = page.ref.number
    image = xml_name(document.label).translate(IN_TITLE)
    title = [f'image "{image}"', f"ppageno {page.ref.number - 1}"]
    if page.picture:
        title.insert(1, "bbox 0 0 {} {}".format(*page_size(page)))
        if page.picture.dpi:
            title.append(f"scan_res {page.picture.dpi:.0f} {page.picture.dpi:.0f}")
    element = _add(body, "div", **{"class": "ocr_page", "id": f"page_{number}", "title": "; ".join(title)})
    comment = " | ".join(f"{name}: {value}" for name, value in [("boxes", f"{boxes_note(page)} {LINES_NOTE}"), *facts_of(page)])
    while "--" in comment:
        comment = comment.replace("--", "- -")
    element.append(etree.Comment(f" {comment} "))
    for index, block in enumerate(blocks_of(page), 1):
        _add_block(element, block, page, f"{number}_{index}")


def _add_block(page: etree._Element, block: Block, text: PageText, name: str) -> None:
    box = _bbox(block, text)
    area = _add(page, "div", **{"class": "ocr_carea", "id": f"block_{name}", "title": box})
    paragraph = _add(area, "p", **{"class": "ocr_par", "id": f"par_{name}", "dir": "auto"})
    for number, line in enumerate(block.lines, 1):
        element = _add(paragraph, "span", **{"class": "ocr_line", "id": f"line_{name}_{number}", "title": box})
        for index, word in enumerate(line):
            span = _add(element, "span", **{"class": "ocrx_word"})
            span.text = xml_text(word.text)
            span.tail = " " if index + 1 < len(line) else None
            if word.percent is not None:
                span.set("title", f"x_wconf {word.percent}")
        element.tail = "\n"


def _bbox(block: Block, page: PageText) -> str:
    """The box of a block, of the whole page where it has none; and by how much its text is turned."""
    box = "bbox {:.0f} {:.0f} {:.0f} {:.0f}".format(*placed(block, page))
    return f"{box}; textangle {page.turn}" if page.turn else box


def _add(parent: etree._Element, tag: str, /, **attributes: str) -> etree._Element:
    return etree.SubElement(parent, _tag(tag), attributes)


def _tag(name: str) -> str:
    return f"{{{XHTML}}}{name}"
