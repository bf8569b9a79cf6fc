"""PAGE XML 2019-07-15: one page a file, as the schema has it.

Measured in pixels of the page image that the model read.  A line has the outline of its block where nothing closer is known,
and the file says so.  A page of which no image was made is 0 by 0 and has no regions.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import geometric_mean

from lxml import etree

from pagemill.pipeline.layout import CONTINUED, Block, Word, blocks_of, line_text, page_size, placed
from pagemill.pipeline.page import PageText
from pagemill.pipeline.reading.confidence import LOWEST
from pagemill.pipeline.sinks.document import Scope, SourceDocument
from pagemill.pipeline.sinks.facts import (
    LINES_NOTE,
    SOFTWARE,
    boxes_note,
    confidence_of,
    facts_of,
    iso_date,
    version_of,
    xml_bytes,
    xml_name,
    xml_text,
)

PAGE = "http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15"
XSI = "http://www.w3.org/2001/XMLSchema-instance"
UNDATED = "1970-01-01T00:00:00Z"

_REGIONS = {"image": "ImageRegion", "chart": "ChartRegion", "table": "TextRegion", "formula": "TextRegion"}
_TYPES = {
    "text": "paragraph", CONTINUED: "paragraph", "title": "heading", "section": "heading", "caption": "caption",
    "footnote": "footnote", "aside_text": "marginalia", "header": "header", "footer": "footer", "page_number": "page-number",
}  # fmt: skip


class PageXmlSink:
    """``.page.xml``"""

    suffix = ".page.xml"
    media_type = "application/xml"
    scope: Scope = "page"
    text_times = 15.0
    needs_original = False

    def render(self, document: SourceDocument, pages: Sequence[PageText]) -> bytes:
        """The file of the only page in ``pages``."""
        (page,) = pages
        root = etree.Element(_tag("PcGts"), nsmap={None: PAGE, "xsi": XSI})
        root.set(f"{{{XSI}}}schemaLocation", f"{PAGE} {PAGE}/pagecontent.xsd")
        metadata = _add(root, "Metadata")
        _add(metadata, "Creator").text = f"{SOFTWARE} {version_of(pages)}".strip()
        date = iso_date(pages) or UNDATED
        _add(metadata, "Created").text = date
        _add(metadata, "LastChange").text = date
        _add(metadata, "Comments").text = f"{boxes_note(page)} {LINES_NOTE if page.text.strip() else ''}".strip()
        facts = [("document", xml_name(document.label)), ("document_sha256", document.content_hash), *facts_of(page)]
        for name, value in facts:
            _add(metadata, "MetadataItem", type="processingStep", name=name, value=value)
        _add_page(root, document, page)
        return xml_bytes(root)


def _add_page(root: etree._Element, document: SourceDocument, page: PageText) -> None:
    picture = page.picture
    width, height = page_size(page)
    element = _add(root, "Page", imageFilename=xml_name(document.label), imageWidth=str(width), imageHeight=str(height))
    if picture and picture.dpi:
        element.set("imageXResolution", f"{picture.dpi:.2f}")
        element.set("imageYResolution", f"{picture.dpi:.2f}")
        element.set("imageResolutionUnit", "PPI")
    element.set("custom", f"page:{page.ref.number}")
    confidence = confidence_of(page)
    if confidence is not None and page.text:
        element.set("conf", f"{confidence:.4f}")
    blocks = blocks_of(page)
    if blocks:
        group = _add(_add(element, "ReadingOrder"), "OrderedGroup", id="order")
        for index in range(len(blocks)):
            _add(group, "RegionRefIndexed", index=str(index), regionRef=f"r{index + 1}")
    for number, block in enumerate(blocks, 1):
        _add_region(element, block, f"r{number}", _outline(block, page), page.turn)


def _add_region(page: etree._Element, block: Block, name: str, outline: str, turn: int) -> None:
    kind = _REGIONS.get(block.label, "TextRegion")
    kind = "TextRegion" if block.lines else kind
    region = _add(page, kind, id=name, custom=f"label:{block.label}")
    if kind == "TextRegion":
        region.set("type", _TYPES.get(block.label, "other"))
        if turn:
            region.set("orientation", str(turn if turn <= 180 else turn - 360))
    _add(region, "Coords", points=outline)
    if kind != "TextRegion":
        return
    for number, line in enumerate(block.lines, 1):
        element = _add(region, "TextLine", id=f"{name}l{number}")
        _add(element, "Coords", points=outline)
        _add_text(element, line_text(line), _confidence(line))
    _add_text(region, "\n".join(line_text(line) for line in block.lines), None)


def _add_text(parent: etree._Element, text: str, confidence: float | None) -> None:
    equivalent = _add(parent, "TextEquiv")
    if confidence is not None:
        equivalent.set("conf", f"{confidence:.2f}")
    _add(equivalent, "Unicode").text = xml_text(text)


def _confidence(line: Sequence[Word]) -> float | None:
    """The geometric mean of a line's words, as in ``pipeline.reading.confidence``."""
    known = [max(word.percent, LOWEST) / 100 for word in line if word.percent is not None]
    return geometric_mean(known) if known else None


def _outline(block: Block, page: PageText) -> str:
    """The box's corners, of the whole page where the block has none."""
    left, top, right, bottom = (round(side) for side in placed(block, page))
    return f"{left},{top} {right},{top} {right},{bottom} {left},{bottom}"


def _add(parent: etree._Element, tag: str, /, **attributes: str) -> etree._Element:
    return etree.SubElement(parent, _tag(tag), attributes)


def _tag(name: str) -> str:
    return f"{{{PAGE}}}{name}"
