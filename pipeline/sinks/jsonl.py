"""JSON Lines, UTF-8: one object a page, all that is known about it.

Keys: document, page (from 1), text (Markdown), status, reason, tokens, mean_log_prob (null where nothing was decoded),
blocks (label, box in thousandths of the page's sides, text; empty where the model named none), attempts, measures, picture
(size in pixels, dpi), provenance, timings.  Only ``timings``, last in the line, differs between two runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict

from pagemill.pipeline.layout import Block, blocks_of, has_boxes, without_boxes
from pagemill.pipeline.page import Attempt, PageText
from pagemill.pipeline.sinks.document import Scope, SourceDocument


class JsonlSink:
    """``.jsonl``"""

    suffix = ".jsonl"
    media_type = "application/jsonl"
    scope: Scope = "any"
    text_times = 3.0
    needs_original = False

    def render(self, document: SourceDocument, pages: Sequence[PageText]) -> bytes:
        """One line a page."""
        return "".join(_line(document.label, page) for page in pages).encode("utf-8", "replace")


def _line(document: str, page: PageText) -> str:
    finite = page.mean_log_prob is not None and math.isfinite(page.mean_log_prob)
    record = {
        "document": document,
        "page": page.ref.number,
        "text": without_boxes(page.text),
        "status": page.status,
        "reason": page.reason,
        "tokens": page.tokens,
        "mean_log_prob": page.mean_log_prob if finite else None,
        "blocks": [{"label": block.label, "box": block.box, "text": block.markdown} for block in _named_blocks(page)],
        "attempts": [_attempt(attempt) for attempt in page.attempts],
        "measures": dict(sorted(page.measures.items())),
        "picture": None if page.picture is None else asdict(page.picture),
        "provenance": dict(sorted(page.provenance.items())),
        "timings": {
            **dict(sorted(page.timings.items())),
            "attempts": [attempt.seconds for attempt in page.attempts],
            "finished_at": page.finished_at,
        },
    }
    return json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"


def _attempt(attempt: Attempt) -> dict[str, object]:
    record = {"how": attempt.changes, **asdict(attempt)}
    del record["seconds"]
    return record


def _named_blocks(page: PageText) -> list[Block]:
    return blocks_of(page) if has_boxes(page) else []
