"""METS 1.12 for a document: its original, its outputs with size and checksum, and which of them belong to which page.

Lists whatever other outputs the job makes; with ``page_xml``, or ``alto`` and ``per: page``, each page points to its own.
"""

from __future__ import annotations

import mimetypes
from collections import defaultdict
from collections.abc import Sequence
from urllib.parse import quote

from lxml import etree

from pagemill.pipeline.page import PageText
from pagemill.pipeline.sinks.document import OutputFile, Scope, SourceDocument
from pagemill.pipeline.sinks.facts import SOFTWARE, facts_of, iso_date, version_of, xml_bytes, xml_name

METS = "http://www.loc.gov/METS/"
XLINK = "http://www.w3.org/1999/xlink"
XSI = "http://www.w3.org/2001/XMLSchema-instance"
FACTS = "https://pagemill.invalid/ns/page"  # a name, not an address


class MetsSink:
    """``.mets.xml``"""

    suffix = ".mets.xml"
    media_type = "application/xml"
    scope: Scope = "document"
    text_times = 0.0
    needs_original = False

    def render(self, document: SourceDocument, pages: Sequence[PageText]) -> bytes:
        """The document's METS; ``document.files`` are the outputs that it lists."""
        root = etree.Element(_tag("mets"), nsmap={None: METS, "xlink": XLINK, "xsi": XSI})
        root.set(f"{{{XSI}}}schemaLocation", f"{METS} http://www.loc.gov/standards/mets/mets.xsd")
        root.set("OBJID", f"sha256:{document.content_hash}")
        root.set("LABEL", xml_name(document.label))
        root.set("TYPE", "Transcription")
        header = _add(root, "metsHdr")
        date = iso_date(pages)
        if date:
            header.set("CREATEDATE", date)
        agent = _add(header, "agent", ROLE="CREATOR", TYPE="OTHER", OTHERTYPE="SOFTWARE")
        _add(agent, "name").text = f"{SOFTWARE} {version_of(pages)}".strip()
        if pages:
            section = _add(root, "amdSec")
            for page in pages:
                _add_facts(section, page)
        _add_files(_add(root, "fileSec"), document)
        _add_structure(root, document, pages)
        return xml_bytes(root)


def _add_facts(section: etree._Element, page: PageText) -> None:
    """What is known of a page's text."""
    record = _add(section, "digiprovMD", ID=f"read_{page.ref.number}")
    wrapped = _add(record, "mdWrap", MDTYPE="OTHER", OTHERMDTYPE="PAGEMILL")
    data = etree.SubElement(_add(wrapped, "xmlData"), f"{{{FACTS}}}page", nsmap={"pagemill": FACTS})
    for name, value in facts_of(page):
        etree.SubElement(data, f"{{{FACTS}}}fact", name=name).text = value


def _add_files(section: etree._Element, document: SourceDocument) -> None:
    group = _add(section, "fileGrp", USE="ORIGINAL")
    original = _add(group, "file", ID="original", CHECKSUM=document.content_hash, CHECKSUMTYPE="SHA-256")
    kind, _ = mimetypes.guess_type(document.label)
    if kind:
        original.set("MIMETYPE", kind)
    _add_place(original, document.label, {"LOCTYPE": "OTHER", "OTHERLOCTYPE": "INPUT"})
    for name in dict.fromkeys(file.format for file in document.files):
        group = _add(section, "fileGrp", USE=name.upper())
        for file in document.files:
            if file.format == name:
                attributes = {"ID": _id(file), "MIMETYPE": file.media_type, "SIZE": str(file.size_bytes)}
                entry = _add(group, "file", **attributes, CHECKSUM=file.sha256, CHECKSUMTYPE="SHA-256")
                _add_place(entry, file.name.rsplit("/", 1)[-1], {"LOCTYPE": "URL"})  # they lie beside this file


def _add_place(file: etree._Element, name: str, kind: dict[str, str]) -> None:
    place = _add(file, "FLocat", **kind)
    place.set(f"{{{XLINK}}}type", "simple")
    place.set(f"{{{XLINK}}}href", quote(name, errors="surrogateescape"))


def _add_structure(root: etree._Element, document: SourceDocument, pages: Sequence[PageText]) -> None:
    whole = _add(_add(root, "structMap", TYPE="PHYSICAL"), "div", TYPE="document", ID="document")
    for file_id in ["original", *(_id(file) for file in document.files if file.page is None)]:
        _add(whole, "fptr", FILEID=file_id)
    by_page: defaultdict[int | None, list[OutputFile]] = defaultdict(list)
    for file in document.files:
        by_page[file.page].append(file)
    for page in pages:
        number = page.ref.number
        part = _add(whole, "div", TYPE="page", ID=f"page_{number}", ORDER=str(number), ORDERLABEL=str(number))
        part.set("ADMID", f"read_{number}")
        for file in by_page[number - 1]:
            _add(part, "fptr", FILEID=_id(file))


def _id(file: OutputFile) -> str:
    return file.format if file.page is None else f"{file.format}_{file.page + 1}"


def _add(parent: etree._Element, tag: str, /, **attributes: str) -> etree._Element:
    return etree.SubElement(parent, _tag(tag), attributes)


def _tag(name: str) -> str:
    return f"{{{METS}}}{name}"
