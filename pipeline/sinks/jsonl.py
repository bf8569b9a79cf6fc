"""JSON Lines, UTF-8: one object a page, all that is known about it.

Keys: document, page (from 1), text (Markdown), status, reason, tokens, mean_log_prob (null where nothing was decoded),
provenance, timings.  Only ``timings``, last in the line, differs between two runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from pipeline.page import PageText


class JsonlSink:
    """``.jsonl``"""

    suffix = ".jsonl"

    def render(self, document: str, pages: Sequence[PageText]) -> bytes:
        """One line a page."""
        return "".join(_line(document, page) for page in pages).encode("utf-8", "replace")


def _line(document: str, page: PageText) -> str:
    finite = page.mean_log_prob is not None and math.isfinite(page.mean_log_prob)
    record = {
        "document": document,
        "page": page.ref.page + 1,
        "text": page.text,
        "status": page.status,
        "reason": page.reason,
        "tokens": page.tokens,
        "mean_log_prob": page.mean_log_prob if finite else None,
        "provenance": dict(sorted(page.provenance.items())),
        "timings": dict(sorted(page.timings.items())),
    }
    return json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"
