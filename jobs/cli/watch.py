"""``pagemill watch``: transcribe what arrives in folders, until it is told to stop."""

from __future__ import annotations

import fcntl
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pagemill.jobs.cli.codes import SOME_FAILED
from pagemill.jobs.errors import ConfigError, LedgerError, OutputError
from pagemill.jobs.ledger.output_folder import OutputFolder
from pagemill.jobs.run.job import ReaderOpener
from pagemill.jobs.run.progress import Progress, Snapshot, open_progress
from pagemill.jobs.run.spec import resolve_job
from pagemill.jobs.run.stopping import Stopper
from pagemill.jobs.settings.addresses import is_url
from pagemill.jobs.settings.config import Config
from pagemill.jobs.settings.layers import load_config
from pagemill.jobs.watch.batches import Batches
from pagemill.jobs.watch.journal import Journal
from pagemill.jobs.watch.notices import HEALTH_SECONDS, HealthFile, HealthProgress, Webhook
from pagemill.jobs.watch.overrides import FolderSettings
from pagemill.jobs.watch.shelves import Shelves, root_labels
from pagemill.jobs.watch.watcher import Finished, Pace, Watcher, check_places

LOOK_SECONDS = 0.5  # so soon a signal or an event is seen
RETRY_EVENTS_SECONDS = 30.0

_log = logging.getLogger("pagemill")


@dataclass(frozen=True, slots=True)
class Places:
    """Absolute paths of a watch."""

    roots: tuple[Path, ...]
    output: Path
    done: Path
    failed: Path
    health: Path


def watch_folders(job_file: Path, flags: Mapping[tuple[str, str], object], *, once: bool) -> int:
    """Watches what a job file names.  once: ends when everything that is there has ended."""
    config = load_config(job_file, os.environ, flags)
    places = places_of(config)
    resolve_job(config)  # refuses now what no batch could run with
    progress = open_progress(config.run.progress, sys.stderr, sys.stdout)
    logging.basicConfig(format="pagemill: %(message)s", level=logging.WARNING)
    from pagemill.jobs.run.opening import (
        open_reader,  # loads the engine, which takes longer than to find a fault in the settings
    )

    settings = FolderSettings(job_file, os.environ, flags)
    return run_watch(config, places, settings, open_reader, progress, once=once)


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


def run_watch(
    config: Config, places: Places, settings: FolderSettings, open_reader: ReaderOpener, progress: Progress, *, once: bool
) -> int:
    """The loop around a Watcher: time, signals, events, health, webhook.  Returns the exit code."""
    section = config.watch
    webhook, health = Webhook(section.webhook), HealthFile(places.health)
    with _only_watch(places.output), Stopper() as stopper, _events(places.roots, section.events) as wait:
        shelves = Shelves(places.done, places.failed, section.done == "move", root_labels(places.roots))

        def write_health(run: Snapshot | None = None) -> None:
            longest = HEALTH_SECONDS if run else section.scan_seconds
            health.write(watcher.health(), time.time(), longest_seconds=longest, run=run)

        def hear(finished: Sequence[Finished]) -> None:
            _tell(finished, progress)
            webhook.hear(finished)

        batches = Batches(settings, places.output, open_reader, HealthProgress(progress, write_health))
        pace = Pace(section.scan_seconds, section.settle_seconds, section.empty_seconds, section.batch_files, section.ignore)
        journal = _open_journal(places.output, forget_failures=config.run.retry_failed)
        watcher = Watcher(places.roots, pace, journal, shelves, batches.transcribe, hear)
        try:
            while stopper.signal is None and batches.signal is None:
                took = watcher.step(time.time())
                webhook.step(time.monotonic())
                write_health()
                if once and watcher.is_idle:
                    return SOME_FAILED if watcher.failed or watcher.health().held else 0
                if (not took and wait(LOOK_SECONDS)) or once:
                    watcher.hint()
        finally:
            batches.close()
            webhook.close()
        progress.note("the watch has stopped; the same command goes on from here")
        return 128 + (stopper.signal or batches.signal or 0)


def _open_journal(output: Path, *, forget_failures: bool) -> Journal:
    path = OutputFolder(output).watch_journal
    try:
        journal = Journal(path)
    except OSError as error:
        raise OutputError(f"{path}: cannot be read or written: {error.strerror or error}; mend the folder's rights") from error
    if forget_failures:
        journal.forget_failures()
    return journal


def _tell(finished: Sequence[Finished], progress: Progress) -> None:
    for file in finished:
        verdict = file.verdict
        told = ", ".join(f"{count} {status}" for status, count in sorted(verdict.counts.items()))
        same = f" (the same bytes as {file.duplicate_of})" if file.duplicate_of else ""
        moved = f"; moved to {file.moved_to}" if file.moved_to else ""
        reason = f": {verdict.reason}" if verdict.reason else ""
        progress.note(f"{file.path}: {verdict.kind}, pages: {told or 'none'}{same}{reason}{moved}")


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


@contextmanager
def _events(roots: Sequence[Path], wanted: bool) -> Iterator[Callable[[float], bool]]:
    """Yields a wait: so many seconds, or until something may have changed, which it answers with True."""
    changed, stop = threading.Event(), threading.Event()

    def wait(seconds: float) -> bool:
        came = changed.wait(seconds)
        changed.clear()
        return came

    thread = threading.Thread(target=_listen, args=(roots, changed, stop), name="events", daemon=True)
    if wanted:
        thread.start()
    try:
        yield wait
    finally:
        stop.set()
        if wanted:
            thread.join(timeout=10.0)


def _listen(roots: Sequence[Path], changed: threading.Event, stop: threading.Event) -> None:
    """Sets ``changed`` after events.  Where there are none to be had, scans go on alone and this tries again later."""
    from watchfiles import watch

    told = False
    while not stop.is_set():
        there = [root for root in roots if root.is_dir()]
        try:
            for _ in watch(*there, stop_event=stop, rust_timeout=1000, yield_on_timeout=True) if there else ():
                if _:
                    changed.set()
                if len(there) < sum(root.is_dir() for root in roots) or not all(root.is_dir() for root in there):
                    break  # a folder came back, or went: listen anew
        except Exception as error:  # whatever the system's notifier raises, scans do without it
            if not told:
                _log.warning("no events of the file system (%s); scanning by the clock alone", error)
                told = True
        stop.wait(RETRY_EVENTS_SECONDS if told else 1.0)
