"""Plain text, UTF-8.  Pages are separated by a form feed; a blank or failed page is an empty one, so pages can be counted."""

from __future__ import annotations

from collections.abc import Sequence

from pagemill.pipeline.layout import without_boxes
from pagemill.pipeline.page import PageText
from pagemill.pipeline.reading.postprocess import to_plain_text
from pagemill.pipeline.sinks.document import Scope, SourceDocument

PAGE_SEPARATOR = "\f"


class TextSink:
    """``.txt``: n pages, n - 1 form feeds; every page that has text ends with a newline."""

    suffix = ".txt"
    media_type = "text/plain"
    scope: Scope = "any"
    text_times = 1.0
    needs_original = False

    def render(self, document: SourceDocument, pages: Sequence[PageText]) -> bytes:
        """The pages' text without Markdown."""
        return PAGE_SEPARATOR.join(_ended(to_plain_text(without_boxes(page.text))) for page in pages).encode("utf-8", "replace")


def _ended(text: str) -> str:
    """The text with its last newline, without any page separator of its own."""
    text = text.replace(PAGE_SEPARATOR, "")
    return text + "\n" if text else ""
