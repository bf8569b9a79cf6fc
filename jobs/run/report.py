"""How a job ended, page by page: ``report.json`` in the output folder, and a table for people.

Every page of every input is in it exactly once, with one final status; pages that are not done are "left".
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pagemill import __version__
from pagemill.jobs.ledger.disk import cannot_write
from pagemill.jobs.run.job import PageEnd, Report
from pagemill.jobs.run.spec import JobSpec
from pagemill.pipeline import write_durably

VERSION = 1
STATUSES = ("ok", "retried", "low_confidence", "blank", "truncated", "looped", "failed", "left")
MOST_ROWS = 20


def write_report(job: JobSpec, report: Report) -> Path:
    """Writes report.json.  Raises OutputError.  Only its "run" differs between two ways to the same end."""
    path = job.folder.report
    try:
        write_durably(path, json.dumps(_as_json(job, report), indent=1, ensure_ascii=True).encode() + b"\n")
    except OSError as error:
        raise cannot_write(job.output, error) from error
    return path


def counts_table(names: Sequence[tuple[str, Mapping[str, int]]], most_rows: int = MOST_ROWS) -> list[str]:
    """A row of counts for each name, and one for all; of many names only those with pages that are not ok."""
    total: Counter[str] = Counter()
    for _, counts in names:
        total.update(counts)
    columns = [status for status in STATUSES if total[status]] + sorted(set(total) - set(STATUSES))
    shown = names if len(names) <= most_rows else [one for one in names if set(one[1]) - {"ok"}][:most_rows]
    rows = [["", "pages", *columns]]
    for name, counts in [*shown, ("all", total)]:
        rows.append([_short(name), str(sum(counts.values())), *(str(counts.get(status, 0) or "") for status in columns)])
    if len(shown) < len(names):
        rows.insert(-1, [f"... {len(names) - len(shown)} more documents", *[""] * (len(columns) + 1)])
    widths = [max(len(row[index]) for row in rows) for index in range(len(columns) + 2)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]


def by_document(report: Report) -> list[tuple[str, Mapping[str, int]]]:
    """Each document's path and how many of its pages have each final status."""
    counts: dict[str, Counter[str]] = {}
    for document, _, outcome in report.pages:
        counts.setdefault(document.found.label, Counter())[outcome.final_status if outcome else "left"] += 1
    return list(counts.items())


def _as_json(job: JobSpec, report: Report) -> dict[str, Any]:
    documents = {document.found.source: document for document, _, _ in report.pages}
    return {
        "version": VERSION,
        "software": f"pagemill {__version__}",
        "model": job.model_hash,
        "settings": job.settings_hash,
        "resolved": asdict(job.resolved) if job.resolved else None,
        "counts": _ordered(report.counts),
        "documents": [
            {"path": source, "sha256": document.content_hash, "pages": document.pages} for source, document in documents.items()
        ],
        "pages": [_page(page) for page in report.pages],
        "run": {
            "ended": "finished" if report.signal is None and not report.counts["left"] else "interrupted",
            "seconds": round(report.seconds, 3),
            "new_pages": report.new_pages,
        },
    }


def _page(page: PageEnd) -> dict[str, Any]:
    document, ref, outcome = page
    row: dict[str, Any] = {"document": document.found.source, "page": ref.number}
    if outcome is None:
        return row | {"status": "left"}
    mean = outcome.mean_log_prob
    confidence = round(math.exp(min(mean, 0.0)), 4) if mean is not None and math.isfinite(mean) else None
    return row | {
        "status": outcome.final_status,
        "reason": outcome.reason,
        "attempts": outcome.tries,
        "tokens": outcome.tokens,
        "confidence": confidence,
        "measures": dict(sorted(outcome.measures.items())),
    }


def _ordered(counts: Mapping[str, int]) -> dict[str, int]:
    order = {status: index for index, status in enumerate(STATUSES)}
    return dict(sorted(counts.items(), key=lambda item: (order.get(item[0], len(order)), item[0])))


def _short(name: str) -> str:
    name = "".join(letter if letter.isprintable() else "?" for letter in name)
    return name if len(name) <= 60 else "..." + name[-57:]
