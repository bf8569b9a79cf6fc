"""A watch's batches as runs of its job: grouped by settings, through one reader that stays open from batch to batch."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from pagemill.decoder import ModelError
from pagemill.jobs.errors import ConfigError
from pagemill.jobs.run.job import OpenReader, ReaderOpener, Report, run_job
from pagemill.jobs.run.progress import Progress
from pagemill.jobs.run.spec import JobSpec, resolve_job
from pagemill.jobs.settings.config import Config
from pagemill.jobs.watch.arrivals import Arrival
from pagemill.jobs.watch.overrides import FolderSettings
from pagemill.jobs.watch.watcher import Verdict


class Batches:
    """``transcribe`` is what a Watcher reads with.  signal: what interrupted a run, None as long as nothing did."""

    def __init__(self, settings: FolderSettings, output: Path, open_reader: ReaderOpener, progress: Progress) -> None:
        self._settings, self._output, self._opener, self._progress = settings, output, open_reader, progress
        self._jobs: dict[Config, JobSpec] = {}  # models are hashed once
        self._kept = ExitStack()
        self._kept_for: tuple[str, str, object] | None = None
        self._kept_reader: OpenReader | None = None
        self.signal: int | None = None

    def transcribe(self, arrivals: Sequence[Arrival]) -> dict[Path, Verdict]:
        """A verdict for each file that was reached.  Raises OutputError, LedgerError."""
        verdicts: dict[Path, Verdict] = {}
        for config, group in self._grouped(arrivals, verdicts).items():
            if self.signal is None:
                verdicts |= self._run(config, group)
        return verdicts

    def close(self) -> None:
        """Let the model go."""
        self._kept.close()
        self._kept_for = self._kept_reader = None

    def _grouped(self, arrivals: Sequence[Arrival], verdicts: dict[Path, Verdict]) -> dict[Config, list[Arrival]]:
        groups: dict[Config, list[Arrival]] = {}
        for arrival in arrivals:
            try:
                groups.setdefault(self._settings.of(arrival.root, arrival.path), []).append(arrival)
            except ConfigError as error:
                verdicts[arrival.path] = Verdict("held", str(error))
        return groups

    def _run(self, config: Config, group: Sequence[Arrival]) -> dict[Path, Verdict]:
        try:
            job = dataclasses.replace(self._job(config), inputs=tuple(arrival.path for arrival in group), output=self._output)
            job = dataclasses.replace(job, config=_trying_again(job.config))
        except (ConfigError, ModelError) as error:
            return {arrival.path: Verdict("held", str(error)) for arrival in group}
        try:
            report = run_job(job, self._open, self._progress, files=group)
        except BaseException:
            self.close()  # it may hold pages of this run
            raise
        self.signal = report.signal
        return _verdicts(report)

    def _job(self, config: Config) -> JobSpec:
        if config not in self._jobs:
            self._jobs[config] = resolve_job(config)
        return self._jobs[config]

    def _open(self, job: JobSpec, provenance: Mapping[str, str]) -> AbstractContextManager[OpenReader]:
        wanted = (job.model_hash, job.settings_hash, job.config.engine)
        if self._kept_reader is None or self._kept_for != wanted:
            self.close()
            self._kept_reader = self._kept.enter_context(self._opener(job, provenance))
            self._kept_for = wanted
        return _lent(self._kept_reader)


def _trying_again(config: Config) -> Config:
    """Settings that try failed pages of earlier runs again.

    A file is in a batch because it is new or has changed; what the ledger holds against the same bytes may be that a share
    went away while they were read.
    """
    return config.model_copy(update={"run": config.run.model_copy(update={"retry_failed": True})})


@contextmanager
def _lent(reader: OpenReader) -> Iterator[OpenReader]:
    """A reader that the run does not close."""
    yield reader


def _verdicts(report: Report) -> dict[Path, Verdict]:
    pages: dict[Path, list[tuple[int, str, str]]] = {}
    hashes: dict[Path, str] = {}
    for document, ref, outcome in report.pages:
        status, reason = ("left", "") if outcome is None else (outcome.final_status, outcome.reason)
        pages.setdefault(document.found.path, []).append((ref.number, status, reason))
        hashes[document.found.path] = document.content_hash
    return {path: _verdict(hashes[path], found) for path, found in pages.items()}


def _verdict(content_hash: str, pages: Sequence[tuple[int, str, str]]) -> Verdict:
    counts = Counter(status for _, status, _ in pages)
    troubled = tuple(page for page in pages if page[1] not in ("ok", "retried"))
    if counts["left"]:
        return Verdict("left")
    if not counts["failed"]:
        return Verdict("done", "", content_hash, troubled, counts)
    first = next(reason for _, status, reason in pages if status == "failed")
    reason = first if len(pages) == 1 else f"{counts['failed']} of {len(pages)} pages failed; the first: {first}"
    return Verdict("failed", reason, content_hash, troubled, counts)
