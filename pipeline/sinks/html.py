"""HTML: one page to read or print, a section for each page of the document, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from pagemill.pipeline.layout import without_boxes
from pagemill.pipeline.page import PageText
from pagemill.pipeline.sinks.document import Scope, SourceDocument
from pagemill.pipeline.sinks.facts import SOFTWARE, facts_of, iso_date, version_of, xml_name
from pagemill.pipeline.sinks.markup import to_html

STYLE = """
body { font: 1rem/1.5 serif; max-width: 48rem; margin: 2rem auto; padding: 0 1rem; }
section + section { border-top: 1px solid #999; margin-top: 2rem; }
.page-note, details { color: #555; font: .8rem/1.4 sans-serif; }
table { border-collapse: collapse; } td, th { border: 1px solid #999; padding: .1rem .4rem; }
"""


class HtmlSink:
    """``.html``"""

    suffix = ".html"
    media_type = "text/html"
    scope: Scope = "any"
    text_times = 1.3
    needs_original = False

    def render(self, document: SourceDocument, pages: Sequence[PageText]) -> bytes:
        """One ``section`` a page, with its status, and its facts folded away."""
        title = escape(xml_name(document.label))
        metas = [("generator", f"{SOFTWARE} {version_of(pages)}".strip()), ("dcterms.created", iso_date(pages) or "")]
        head = "".join(f'<meta name="{name}" content="{escape(content)}">\n' for name, content in metas if content)
        sections = "".join(_section(page) for page in pages)
        text = (
            f'<!DOCTYPE html>\n<html>\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n{head}'
            f"<style>{STYLE}</style>\n</head>\n<body>\n{sections}</body>\n</html>\n"
        )
        return text.encode("utf-8", "replace")


def _section(page: PageText) -> str:
    number = page.ref.number
    heading = f"page {number}: {page.status}" if page.status != "ok" else f"page {number}"
    note = escape(xml_name(f"{heading}: {page.reason}" if page.reason else heading))
    facts = "".join(f"<div>{escape(name)}: {escape(value)}</div>" for name, value in facts_of(page))
    return (
        f'<section id="page-{number}" data-status="{page.status}" dir="auto">\n<p class="page-note">{note}</p>\n'
        f"{to_html(without_boxes(page.text))}<details><summary>how it was read</summary>{facts}</details>\n</section>\n"
    )
