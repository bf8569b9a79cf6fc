"""A page's provenance in one wording for every output; and text made safe for XML."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime

from lxml import etree

from pagemill.pipeline.layout import has_boxes
from pagemill.pipeline.page import PageText
from pagemill.pipeline.reading.confidence import page_confidence

SOFTWARE = "Pagemill"
REPLACEMENT = "\ufffd"
NO_BOXES = "The model named no boxes: one block stands for the whole page; where its lines and words stand is not known."
MODEL_BOXES = "Block boxes are the model's; where lines and words stand in them is not known."
LINES_NOTE = "Lines have the outline of their block."
NO_TEXT = "There is no text on this page."

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def xml_text(text: str) -> str:
    """The text with every character that XML 1.0 does not allow replaced by U+FFFD."""
    return _NOT_XML.sub(REPLACEMENT, text)


def xml_name(text: str) -> str:
    """The same on one line, for attributes."""
    return " ".join(xml_text(text).split())


def xml_bytes(root: etree._Element, doctype: str | None = None) -> bytes:
    """UTF-8 with declaration and line breaks between elements."""
    content: bytes = etree.tostring(root, encoding="UTF-8", xml_declaration=True, pretty_print=True, doctype=doctype)
    return content


def date_of(pages: Sequence[PageText]) -> datetime | None:
    """When the last of the pages was done; None where no record says."""
    known = [page.finished_at for page in pages if page.finished_at is not None]
    return datetime.fromtimestamp(max(known), UTC) if known else None


def iso_date(pages: Sequence[PageText]) -> str | None:
    """The same as ``2026-11-29T22:15:00Z``."""
    date = date_of(pages)
    return None if date is None else date.strftime("%Y-%m-%dT%H:%M:%SZ")


def version_of(pages: Sequence[PageText]) -> str:
    """The version of the software that read the pages, "" where no record says."""
    names = {page.provenance.get("software", "") for page in pages}
    return ", ".join(sorted(name.removeprefix("pagemill ") for name in names if name))


def facts_of(page: PageText) -> list[tuple[str, str]]:
    """Name and value of all that is known about a page's text besides the text; without timings, which differ by run."""
    facts = [("status", page.status), ("reason", page.reason), ("tokens", str(page.tokens))]
    confidence = confidence_of(page)
    if confidence is not None:
        facts.append(("confidence", f"{confidence:.4f}"))
    known = dict(page.provenance) | ({"turned": str(page.turn)} if page.turn else {})
    facts += [(f"{name}_hash" if name in ("model", "settings") else name, value) for name, value in sorted(known.items())]
    facts += [(f"attempt_{number}", _attempt(page, number)) for number in range(1, len(page.attempts) + 1)]
    date = iso_date([page])
    if date is not None:
        facts.append(("finished_at", date))
    return [(name, xml_name(value)) for name, value in facts if value]


def confidence_of(page: PageText) -> float | None:
    """From 0 to 1; None where nothing was decoded, or its log-probs are not finite."""
    confidence = page_confidence(page)
    return confidence if confidence is not None and math.isfinite(confidence) else None


def boxes_note(page: PageText) -> str:
    """Whose boxes the page's blocks have."""
    if not page.text.strip():
        return NO_TEXT
    return MODEL_BOXES if has_boxes(page) else NO_BOXES


def _attempt(page: PageText, number: int) -> str:
    attempt = page.attempts[number - 1]
    words = [attempt.changes or "as set", attempt.status, attempt.reason, f"{attempt.tokens} tokens"]
    return ", ".join(word for word in words if word)
