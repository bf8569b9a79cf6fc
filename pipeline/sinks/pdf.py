"""Searchable PDF: the original with an invisible text layer; of an image file, a PDF made of its frames.

A child process with limits makes it (``text_layer``).  Where the original does not open there is no page to put text on: the
file then has empty pages with the reason in letters that show.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import pikepdf
from pikepdf import Dictionary, Name, Stream

from pagemill.pipeline.documents.documents import error_of
from pagemill.pipeline.errors import PageError
from pagemill.pipeline.page import PageText
from pagemill.pipeline.sinks.document import Scope, SourceDocument
from pagemill.vision import Child, ChildFailure

MAKER = "pagemill.pipeline.sinks.text_layer:PdfMaker"
TIMEOUT_SECONDS = 900.0
MEMORY_BYTES = 4 << 30
NOTICE_LETTERS = 90  # a line


class PdfSink:
    """``.searchable.pdf``, so that it is never taken for the original."""

    suffix = ".searchable.pdf"
    media_type = "application/pdf"
    scope: Scope = "document"
    text_times = 0.0
    needs_original = True

    def render(self, document: SourceDocument, pages: Sequence[PageText]) -> bytes:
        """The PDF."""
        from pagemill.pipeline.sinks.text_layer import MakePdf

        child = Child(MAKER, timeout_seconds=TIMEOUT_SECONDS, memory_bytes=MEMORY_BYTES)
        try:
            child.ask(MakePdf(document, tuple(pages)))
            reply = child.wait()
        finally:
            child.close()
        if isinstance(reply, ChildFailure):
            reply = error_of(reply)
        if isinstance(reply, PageError):
            return notice(document, pages, str(reply))
        assert isinstance(reply, bytes)
        return reply


def notice(document: SourceDocument, pages: Sequence[PageText], reason: str) -> bytes:
    """A PDF of as many pages that says why the original's are not there."""
    with pikepdf.new() as pdf:
        font = pdf.make_indirect(
            Dictionary(Type=Name.Font, Subtype=Name.Type1, BaseFont=Name.Helvetica, Encoding=Name.WinAnsiEncoding)
        )
        for page in pages:
            words = f"{document.label}, page {page.ref.number}: the original could not be opened. {reason}"
            pdf.add_blank_page()
            added = pdf.pages[-1]
            added.obj.Resources = Dictionary(Font=Dictionary(F1=font))
            lines = [words[start : start + NOTICE_LETTERS] for start in range(0, len(words), NOTICE_LETTERS)]
            shown = " T* ".join(f"<{line.encode('cp1252', 'replace').hex()}> Tj" for line in lines)
            added.contents_add(Stream(pdf, f"BT /F1 10 Tf 14 TL 40 740 Td {shown} ET\n".encode("ascii")))
        target = io.BytesIO()
        pdf.save(target, deterministic_id=True)
        return target.getvalue()
