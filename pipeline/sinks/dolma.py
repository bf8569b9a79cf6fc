"""Dolma: JSON Lines with one object a document, as corpus tools read it.

Keys: id (sha256 of the original), text (all pages' Markdown), source, added, created, metadata, attributes.
``attributes.pdf_page_numbers`` has a span ``[start, end, page from 1]`` for every page, in code points of ``text``; a page
without text has an empty span.  Dates are the day on which the last page was done; the document's own date is not known.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from pagemill.pipeline.layout import without_boxes
from pagemill.pipeline.page import PageText
from pagemill.pipeline.sinks.document import Scope, SourceDocument
from pagemill.pipeline.sinks.facts import facts_of, iso_date


class DolmaSink:
    """``.dolma.jsonl``"""

    suffix = ".dolma.jsonl"
    media_type = "application/jsonl"
    scope: Scope = "document"
    text_times = 1.3
    needs_original = False

    def render(self, document: SourceDocument, pages: Sequence[PageText]) -> bytes:
        """One line."""
        texts: list[str] = []
        spans: list[tuple[int, int, int]] = []
        length = 0
        for page in pages:
            markdown = without_boxes(page.text)
            text = markdown + "\n" if markdown else ""
            spans.append((length, length + len(text), page.ref.number))
            texts.append(text)
            length += len(text)
        date = iso_date(pages)
        record = {
            "id": document.content_hash,
            "text": "".join(texts),
            "source": "pagemill",
            "added": date,
            "created": date,
            "metadata": {
                "source_file": document.label,
                "total_pages": document.pages,
                "total_tokens": sum(page.tokens for page in pages),
                "pages": [dict([("page", str(page.ref.number)), *facts_of(page)]) for page in pages],
            },
            "attributes": {"pdf_page_numbers": spans},
        }
        return (json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8", "replace")
