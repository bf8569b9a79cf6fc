"""``pagemill status``: how far an output folder is."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from typing import Annotated

import typer

from pagemill.jobs.cli.options import Folder
from pagemill.jobs.ledger.ledger_view import LedgerView, RunRecord, open_view
from pagemill.jobs.run.report import counts_table

MOST_REASONS = 50


def command(
    folder: Folder, as_json: Annotated[bool, typer.Option("--json", help="One JSON object for machines.")] = False
) -> int:
    """``pagemill status``."""
    with open_view(folder) as view:
        run = view.last_run()
        if run is None:
            print(json.dumps({"pages": 0}) if as_json else "no run yet")
            return 0
        if as_json:
            print(json.dumps(_facts(view, run)))
        else:
            _print_tables(view, run)
    return 0


def _facts(view: LedgerView, run: RunRecord) -> dict[str, object]:
    pages = list(view.pages())
    troubled = [page for page in pages if page.reason and page.status not in ("left", "in work")]
    return {
        "pages": len(pages),
        "counts": dict(Counter(page.status for page in pages)),
        "started_at": run.started_at,
        "ended": run.ended,
        "model": run.model_hash,
        "settings": run.settings_hash,
        "workers": [{"worker": worker, "pages": held, "dead": dead} for worker, held, dead in view.workers()],
        "troubled": [
            {"document": page.source, "page": page.ref.number, "status": page.status, "reason": page.reason}
            for page in troubled
        ],
    }


def _print_tables(view: LedgerView, run: RunRecord) -> None:
    counts: dict[str, Counter[str]] = {}
    reasons = []
    for page in view.pages():
        counts.setdefault(page.source, Counter())[page.status] += 1
        if page.reason and page.status not in ("left", "in work"):
            reasons.append(f"{page.source}, page {page.ref.number}: {page.status}: {page.reason}")
    rows: list[tuple[str, Mapping[str, int]]] = list(counts.items())
    print("\n".join(counts_table(rows)))
    print("\n".join(reasons[:MOST_REASONS]), end="\n" if reasons else "")
    if len(reasons) > MOST_REASONS:
        print(f"... and {len(reasons) - MOST_REASONS} more")
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.started_at))
    print(f"last run: {started}, {run.ended or 'has not ended'}")
    for worker, held, dead in view.workers():
        print(f"{held} pages are held by {worker}{', which is dead: the next run does them' if dead else ''}")
