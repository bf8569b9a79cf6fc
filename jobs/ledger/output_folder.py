"""The paths below an output folder: what people see, and Pagemill's own state in ``.pagemill``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pagemill.pipeline import OWN_FOLDER


@dataclass(frozen=True, slots=True)
class OutputFolder:
    """The paths of one output folder; outputs of documents are named by ``pipeline.output_names``."""

    root: Path

    @property
    def state(self) -> Path:
        """What is not an output: the ledger, the records of finished pages, a watch's journal."""
        return self.root / OWN_FOLDER

    @property
    def ledger(self) -> Path:
        """The ledger's SQLite file."""
        return self.state / "ledger.sqlite3"

    def pages(self, model_hash: str, settings_hash: str) -> Path:
        """The folder of the finished pages of a model and settings."""
        return self.state / "pages" / f"{model_hash[:16]}-{settings_hash[:16]}"

    @property
    def inputs(self) -> Path:
        """The folder of documents that were fetched, while a job runs."""
        return self.state / "inputs"

    @property
    def copied(self) -> Path:
        """What was copied to ``output.copy_to``."""
        return self.state / "copied.json"

    @property
    def watch_journal(self) -> Path:
        """What became of a watched folder's files."""
        return self.state / "watch.jsonl"

    @property
    def watch_lock(self) -> Path:
        """Locked while a watch works on this folder."""
        return self.state / "watch.lock"

    @property
    def health(self) -> Path:
        """How a watch is, where ``watch.health_file`` names no other place."""
        return self.state / "health.json"

    @property
    def report(self) -> Path:
        """How the last job ended."""
        return self.root / "report.json"

    @property
    def review(self) -> Path:
        """The review page, where no other is named."""
        return self.root / "review.html"
