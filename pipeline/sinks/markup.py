"""A page's Markdown as HTML that is safe to show: no scripts, no pictures from elsewhere, tables kept."""

from __future__ import annotations

import re
from html import escape
from html.parser import HTMLParser

from markdown_it import MarkdownIt

from pagemill.pipeline.sinks.facts import xml_text

_TABLE = re.compile(r"<table\b.*?(?:</table\s*>|\Z)", re.DOTALL | re.IGNORECASE)
_TABLE_TAGS = frozenset(
    {"table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td", "b", "i", "u", "s", "em", "strong", "sub", "sup", "br"}
)
_SPANS = ("colspan", "rowspan")
_MARKDOWN = (
    MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"]).disable(["image", "autolink"])
)


def to_html(markdown: str) -> str:
    """HTML of one page.  Other HTML in the text than tables is shown as it is written."""
    text = xml_text(markdown)
    parts, end = [], 0
    for found in _TABLE.finditer(text):
        parts += [_MARKDOWN.render(text[end : found.start()]), _clean_table(found[0])]
        end = found.end()
    return "".join([*parts, _MARKDOWN.render(text[end:])])


def _clean_table(table: str) -> str:
    parser = _Cleaner()
    parser.feed(table)
    parser.close()
    return "".join([*parser.parts, *(f"</{tag}>" for tag in reversed(parser.open))]) + "\n"


class _Cleaner(HTMLParser):
    """Keeps a table's tags and spans; drops other tags and all attributes that could do anything."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _TABLE_TAGS:
            return
        spans = "".join(f' {name}="{value}"' for name, value in attrs if name in _SPANS and (value or "").isdecimal())
        self.parts.append(f"<{tag}{spans}>")
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            while (last := self.open.pop()) != tag:
                self.parts.append(f"</{last}>")
            self.parts.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        self.parts.append(escape(data))
