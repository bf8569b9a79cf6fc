"""Where finished pages wait, durably, until their document is complete: one small JSON file a page.

A page may be called finished once ``put`` has returned: its record then survives kill -9 and a power cut.  Outputs are
made from the records when all pages of a document are there, so an interrupted run ends in the same bytes as any other.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from pipeline.durable import write_durably
from pipeline.page import PageRef, PageText, Picture

RECORD_VERSION = 1


class PageStore:
    """Page records under ``folder``: ``<document hash>/<page number>.json``, numbers from 1.

    A record of the same page is replaced.  Whether a record fits today's model and settings is for the caller to judge, by
    its provenance.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, page: PageText) -> None:
        """Write the record; durable on return."""
        record = {
            "version": RECORD_VERSION,
            "text": page.text,
            "status": page.status,
            "reason": page.reason,
            "tokens": page.tokens,
            "mean_log_prob": page.mean_log_prob,
            "timings": dict(page.timings),
            "provenance": dict(page.provenance),
            "picture": None if page.picture is None else asdict(page.picture),
            "finished_at": page.finished_at,
        }
        write_durably(self.path(page.ref), json.dumps(record, indent=1).encode())

    def get(self, ref: PageRef) -> PageText | None:
        """The page as ``put`` wrote it, under the reference asked for; None where no whole record lies: read the page again."""
        try:
            record = json.loads(self.path(ref).read_bytes())
            if record.pop("version") != RECORD_VERSION:
                return None
            picture = record.pop("picture", None)
            return PageText(ref, **record, picture=None if picture is None else Picture(**picture))
        except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def path(self, ref: PageRef) -> Path:
        """Where the record of a page lies."""
        return self._folder / ref.document_hash / f"{ref.page + 1:06d}.json"
