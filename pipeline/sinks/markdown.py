"""Markdown, UTF-8.  Each page of several begins with a comment, ``<!-- page 3 -->``; so does a page that is not ok, with why.

The comment is invisible when rendered, keeps the count of pages, and never hides a failure:
``<!-- page 4: failed: PDF has no pages -->``.
"""

from __future__ import annotations

from collections.abc import Sequence

from pagemill.pipeline.layout import without_boxes
from pagemill.pipeline.page import PageText
from pagemill.pipeline.sinks.document import Scope, SourceDocument


class MarkdownSink:
    """``.md``"""

    suffix = ".md"
    media_type = "text/markdown"
    scope: Scope = "any"
    text_times = 1.0
    needs_original = False

    def render(self, document: SourceDocument, pages: Sequence[PageText]) -> bytes:
        """The pages' Markdown behind their page comments."""
        parts = []
        for page in pages:
            if document.pages > 1 or page.status != "ok":
                parts.append(_comment(page))
            if page.text:
                parts.append(without_boxes(page.text))
        return ("\n\n".join(parts) + "\n").encode("utf-8", "replace")


def _comment(page: PageText) -> str:
    """Page number, and status and reason unless ok; two hyphens would end the comment."""
    words = [f"page {page.ref.number}"]
    if page.status != "ok":
        words += [word for word in (page.status, page.reason) if word]
    inside = ": ".join(words).replace("\n", " ").replace("--", "- -").replace(">", "&gt;")
    return f"<!-- {inside} -->"
