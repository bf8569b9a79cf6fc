"""ALTO 4: pages, blocks, lines and words with their confidences.

A file holds one page or all of a document, measured in pixels of the page image that the model read.  Status, reason, hashes
and attempts are a processing step of each page; a page without text has an empty print space and says why there.
"""

from __future__ import annotations

from collections.abc import Sequence

from lxml import etree

from pagemill.pipeline.layout import CONTINUED, Block, Word, blocks_of, page_size, placed
from pagemill.pipeline.page import PageText
from pagemill.pipeline.sinks.document import Scope, SourceDocument
from pagemill.pipeline.sinks.facts import SOFTWARE, boxes_note, confidence_of, facts_of, iso_date, xml_bytes, xml_name, xml_text

ALTO = "http://www.loc.gov/standards/alto/ns-v4#"
XSI = "http://www.w3.org/2001/XMLSchema-instance"
SCHEMA = "http://www.loc.gov/standards/alto/v4/alto-4-3.xsd"


class AltoSink:
    """``.alto.xml``"""

    suffix = ".alto.xml"
    media_type = "application/xml"
    scope: Scope = "any"
    text_times = 12.0
    needs_original = False

    def render(self, document: SourceDocument, pages: Sequence[PageText]) -> bytes:
        """One ``Page`` element a page."""
        root = etree.Element(_tag("alto"), nsmap={None: ALTO, "xsi": XSI})
        root.set(f"{{{XSI}}}schemaLocation", f"{ALTO} {SCHEMA}")
        root.set("SCHEMAVERSION", "4.3")
        description = _add(root, "Description")
        _add(description, "MeasurementUnit").text = "pixel"
        source = _add(description, "sourceImageInformation")
        _add(source, "fileName").text = xml_name(document.label)
        _add(source, "documentIdentifier", documentIdentifierLocation="sha256").text = document.content_hash
        for page in pages:
            _add_processing(description, page)
        blocks = [blocks_of(page) for page in pages]
        _add_tags(root, {block.label for some in blocks for block in some})
        layout = _add(root, "Layout")
        for page, some in zip(pages, blocks, strict=True):
            _add_page(layout, page, some)
        if not pages:  # the schema wants a page; number 0 is none
            _add(layout, "Page", ID="page_0", PHYSICAL_IMG_NR="0", QUALITY="Missing")
        return xml_bytes(root)


def _add_processing(description: etree._Element, page: PageText) -> None:
    step = _add(description, "Processing", ID=f"read_{page.ref.number}")
    _add(step, "processingCategory").text = "contentGeneration"
    date = iso_date([page])
    if date:
        _add(step, "processingDateTime").text = date
    facts = facts_of(page)
    _add(step, "processingStepDescription").text = boxes_note(page)
    for name, value in facts:
        _add(step, "processingStepDescription").text = f"{name}: {value}"
    software = _add(step, "processingSoftware")
    _add(software, "softwareName").text = SOFTWARE
    _add(software, "softwareVersion").text = dict(facts).get("software", "").removeprefix("pagemill ")


def _add_tags(root: etree._Element, labels: set[str]) -> None:
    if labels:
        tags = _add(root, "Tags")
        for label in sorted(labels):
            _add(tags, "LayoutTag", ID=_label_id(label), LABEL=label)


def _add_page(layout: etree._Element, page: PageText, blocks: Sequence[Block]) -> None:
    number = page.ref.number
    element = _add(layout, "Page", ID=f"page_{number}", PHYSICAL_IMG_NR=str(number), PROCESSINGREFS=f"read_{number}")
    size = {}
    if page.picture:
        width, height = page_size(page)
        size = {"HEIGHT": str(height), "WIDTH": str(width)}
        for name, value in size.items():
            element.set(name, value)
    element.set("QUALITY_DETAIL", xml_name(f"{page.status}: {page.reason}" if page.reason else page.status))
    confidence = confidence_of(page)
    if confidence is not None and page.text:
        element.set("PC", f"{confidence:.4f}")
    space = _add(element, "PrintSpace", **(size | {"HPOS": "0", "VPOS": "0"} if size else {}))
    for index, block in enumerate(blocks):
        has_next = index + 1 < len(blocks)
        _add_block(space, block, page, f"block_{number}_{index + 1}", f"block_{number}_{index + 2}" if has_next else None)


def _add_block(space: etree._Element, block: Block, page: PageText, name: str, following: str | None) -> None:
    is_picture = block.label in ("image", "chart") and not block.lines
    element = _add(space, "Illustration" if is_picture else "TextBlock", ID=name, TAGREFS=_label_id(block.label))
    if following:
        element.set("IDNEXT", following)
    if block.box and page.picture:
        left, top, right, bottom = placed(block, page)
        places = {"HPOS": left, "VPOS": top, "WIDTH": right - left, "HEIGHT": bottom - top}
        for key, place in places.items():
            element.set(key, f"{place:.1f}")
    for number, line in enumerate(block.lines, 1):
        _add_line(element, line, f"{name.replace('block', 'line')}_{number}")


def _add_line(block: etree._Element, line: Sequence[Word], name: str) -> None:
    element = _add(block, "TextLine", ID=name)
    for index, word in enumerate(line):
        if index:
            _add(element, "SP")
        string = _add(element, "String", CONTENT=xml_text(word.text))
        if word.percent is not None:
            string.set("WC", f"{word.percent / 100:.2f}")


def _label_id(label: str) -> str:
    return "label_" + label.replace("+", "_continued") if label == CONTINUED else f"label_{label.rstrip('+')}"


def _add(parent: etree._Element, tag: str, /, **attributes: str) -> etree._Element:
    return etree.SubElement(parent, _tag(tag), attributes)


def _tag(name: str) -> str:
    return f"{{{ALTO}}}{name}"
