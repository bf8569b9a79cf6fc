"""Outputs: one file each, one row in ``SINKS``.

A sink is a pure function of a document's pages, in page order; ``write_document`` puts its bytes on the disk.  Sinks add
nothing that differs between two runs over the same page records, so equal records give equal files: their dates are the
records' own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

from pagemill.pipeline.durable import write_durably
from pagemill.pipeline.page import PageText
from pagemill.pipeline.sinks.alto import AltoSink
from pagemill.pipeline.sinks.document import OutputFile, Scope, SourceDocument
from pagemill.pipeline.sinks.dolma import DolmaSink
from pagemill.pipeline.sinks.hocr import HocrSink
from pagemill.pipeline.sinks.html import HtmlSink
from pagemill.pipeline.sinks.jsonl import JsonlSink
from pagemill.pipeline.sinks.markdown import MarkdownSink
from pagemill.pipeline.sinks.mets import MetsSink
from pagemill.pipeline.sinks.page_xml import PageXmlSink
from pagemill.pipeline.sinks.pdf import PdfSink
from pagemill.pipeline.sinks.text import TextSink

__all__ = ["SINKS", "OutputFile", "Per", "Sink", "SourceDocument", "output_names_of", "write_document"]

Per = Literal["document", "page"]


class Sink(Protocol):
    """One kind of output file.

    scope: what one file can hold: "page" for formats of single pages, "document" for those that are about all of it; the
    others follow the job's ``output.per``.  text_times: how large a file is, about, as a multiple of the page's plain text;
    words with places take a line of markup each.  needs_original: whether it is made of the original itself, which it holds.
    """

    suffix: str
    media_type: str
    scope: Scope
    text_times: float
    needs_original: bool

    def render(self, document: SourceDocument, pages: Sequence[PageText]) -> bytes:
        """The file's content.  pages: every page that it is about, in order, whatever its status."""


SINKS: Mapping[str, Sink] = {
    "text": TextSink(),
    "markdown": MarkdownSink(),
    "html": HtmlSink(),
    "jsonl": JsonlSink(),
    "dolma": DolmaSink(),
    "hocr": HocrSink(),
    "alto": AltoSink(),
    "page_xml": PageXmlSink(),
    "pdf": PdfSink(),
    "mets": MetsSink(),  # refers to the others
}


@dataclass(frozen=True, slots=True)
class _Part:
    """A file to make.  page: 0-based, None for all pages."""

    format: str
    name: str
    page: int | None


def output_names_of(name: str, formats: Iterable[str], per: Per, pages: int) -> list[str]:
    """The files, relative to the output folder, that a document of so many pages gets under ``name``."""
    return [part.name for part in _parts(name, formats, per, pages)]


def write_document(
    folder: Path, document: SourceDocument, pages: Sequence[PageText], formats: Iterable[str], per: Per = "document"
) -> list[OutputFile]:
    """Write the document's files below ``folder``, each whole and durable; those of a page named ``NAME.p0001``.

    document.name: from ``names.output_names``; may contain folders.
    """
    files: list[OutputFile] = []
    for part in _parts(document.name, formats, per, len(pages)):
        sink = SINKS[part.format]
        chosen = pages if part.page is None else [pages[part.page]]
        described = replace(document, files=tuple(files)) if sink.scope == "document" else document
        content = sink.render(described, chosen)
        write_durably(folder / part.name, content)
        digest = hashlib.sha256(content).hexdigest()
        files.append(OutputFile(part.name, digest, len(content), part.format, part.page, sink.media_type))
    return files


def _parts(name: str, formats: Iterable[str], per: Per, pages: int) -> Iterator[_Part]:
    """In the order of SINKS, so that the file that lists the others comes last."""
    wanted = set(formats)
    for one, sink in SINKS.items():
        if one not in wanted:
            continue
        if sink.scope == "page" or (sink.scope == "any" and per == "page"):
            for page in range(pages):
                yield _Part(one, f"{name}.p{page + 1:04d}{sink.suffix}", page)
        else:
            yield _Part(one, name + sink.suffix, None)
