"""The loop around a Watcher: time, signals, events of the file system, health, webhook.  One a output folder."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pagemill.jobs.errors import ConfigError, LedgerError, OutputError
from pagemill.jobs.ledger.output_folder import OutputFolder
from pagemill.jobs.run.job import ReaderOpener
from pagemill.jobs.run.progress import Progress, Snapshot
from pagemill.jobs.run.stopping import Stopper
from pagemill.jobs.settings.addresses import is_url
from pagemill.jobs.settings.config import Config
from pagemill.jobs.watch.batches import Batches
from pagemill.jobs.watch.events import file_events
from pagemill.jobs.watch.journal import Journal
from pagemill.jobs.watch.notices import HEALTH_SECONDS, HealthFile, HealthProgress, Webhook
from pagemill.jobs.watch.overrides import FolderSettings
from pagemill.jobs.watch.shelves import Shelves, root_labels
from pagemill.jobs.watch.watcher import Finished, Pace, Watcher, check_places

LOOK_SECONDS = 0.5  # so soon a signal or an event is seen


@dataclass(frozen=True, slots=True)
class Places:
    """Absolute paths of a watch."""

    roots: tuple[Path, ...]
    output: Path
    done: Path
    failed: Path
    health: Path


def places_of(config: Config) -> Places:
    """Where a watch reads and writes.  Raises ConfigError where it would read what it writes."""
    elsewhere = [path for path in config.input.paths if is_url(path)]
    if elsewhere:
        raise ConfigError([f"input.paths: expected folders of this machine to watch, found {', '.join(elsewhere)}"])
    if config.input.list:
        raise ConfigError(["input.list: expected folders in input.paths to watch, found a list of files; leave it out"])
    if is_url(config.output.folder):
        raise ConfigError([f"output.folder: expected a folder of this machine for a watch, found {config.output.folder}"])
    watch, output = config.watch, Path(config.output.folder).absolute()
    places = Places(
        tuple(Path(path).absolute() for path in config.input.paths),
        output,
        Path(watch.done_folder or output / "done").absolute(),
        Path(watch.failed_folder or output / "failed").absolute(),
        Path(watch.health_file or OutputFolder(output).health).absolute(),
    )
    outputs = {"output.folder": output, "watch.done_folder": places.done, "watch.failed_folder": places.failed}
    check_places(places.roots, {**outputs, "watch.health_file": places.health})
    return places


@dataclass(frozen=True, slots=True)
class WatchEnd:
    """How a watch ended.  signal: what stopped it, None where all there was has ended."""

    signal: int | None
    some_failed: bool = False


def run_watch(
    config: Config, places: Places, settings: FolderSettings, open_reader: ReaderOpener, progress: Progress, *, once: bool
) -> WatchEnd:
    """Watches until a signal; ``once``: until everything that is there has ended."""
    section = config.watch
    webhook, health = Webhook(section.webhook), HealthFile(places.health)
    with _only_watch(places.output), Stopper() as stopper, file_events(places.roots, section.events) as wait:

        def write_health(run: Snapshot | None = None) -> None:
            longest = HEALTH_SECONDS if run else section.scan_seconds
            health.write(watcher.health(), time.time(), longest_seconds=longest, run=run)

        def hear(finished: Sequence[Finished]) -> None:
            _report(finished, progress)
            webhook.hear(finished)

        batches = Batches(settings, places.output, open_reader, HealthProgress(progress, write_health))
        pace = Pace(section.scan_seconds, section.settle_seconds, section.empty_seconds, section.batch_files, section.ignore)
        journal = _open_journal(places.output, forget_failures=config.run.retry_failed)
        shelves = Shelves(places.done, places.failed, section.done == "move", root_labels(places.roots))
        watcher = Watcher(places.roots, pace, journal, shelves, batches.transcribe, hear)
        try:
            while stopper.signal is None and batches.signal is None:
                took = watcher.step(time.time())
                webhook.step(time.monotonic())
                write_health()
                if once and watcher.is_idle:
                    return WatchEnd(None, bool(watcher.failed or watcher.health().held))
                if (not took and wait(LOOK_SECONDS)) or once:
                    watcher.hint()
        finally:
            batches.close()
            webhook.close()
        progress.note("the watch has stopped; the same command goes on from here")
        return WatchEnd(stopper.signal or batches.signal)


def _open_journal(output: Path, *, forget_failures: bool) -> Journal:
    path = OutputFolder(output).watch_journal
    try:
        journal = Journal(path)
    except OSError as error:
        raise OutputError(f"{path}: cannot be read or written: {error.strerror or error}; mend the folder's rights") from error
    if forget_failures:
        journal.forget_failures()
    return journal


def _report(finished: Sequence[Finished], progress: Progress) -> None:
    for file in finished:
        verdict = file.verdict
        counts = ", ".join(f"{count} {status}" for status, count in sorted(verdict.counts.items()))
        same = f" (the same bytes as {file.duplicate_of})" if file.duplicate_of else ""
        moved = f"; moved to {file.moved_to}" if file.moved_to else ""
        reason = f": {verdict.reason}" if verdict.reason else ""
        progress.note(f"{file.path}: {verdict.kind}, pages: {counts or 'none'}{same}{reason}{moved}")


@contextmanager
def _only_watch(output: Path) -> Iterator[None]:
    """One watch an output folder.  Raises LedgerError when another one runs."""
    path = OutputFolder(output).watch_lock
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror or error}; mend the folder's rights") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise LedgerError(f"{output}: expected no other watch on this folder, found one running; stop it first") from error
        yield
