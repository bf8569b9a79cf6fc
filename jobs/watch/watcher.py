"""The watch folder: files taken once they are whole, read in batches, and never lost, repeated or eaten half-written.

``Watcher.step(now)`` scans when it is time or when a hint came, and takes at most one batch.  Scans alone decide; events of
the file system only bring a scan forward.  What stands in the way of one file (rights, settings of its folder) holds that
file and is tried again; what stands in the way of all (a full disk) is waited out, longer each time.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Literal

from pagemill.jobs.errors import ConfigError, JobError
from pagemill.jobs.watch.arrivals import Arrival, Scan, Settling, Stamp, relative_to, scan, stamp_of
from pagemill.jobs.watch.journal import Entry, Journal
from pagemill.jobs.watch.shelves import Shelves
from pagemill.pipeline import hash_content

HINT_SECONDS = 1.0  # a burst of events brings one scan a second
LONGEST_WAIT_SECONDS = 600.0
MOST_FOREIGN = 100

_log = logging.getLogger("pagemill")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a file.  held: it could not be tried; left: the run was interrupted before its end.

    pages: those that are not ok: number from 1, status, reason.  counts: pages by status.
    """

    kind: Literal["done", "failed", "held", "left"]
    reason: str = ""
    content_hash: str = ""
    pages: tuple[tuple[int, str, str], ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finished:
    """A file that has ended, as listeners hear of it.  duplicate_of: the file that had the same bytes first."""

    path: Path
    verdict: Verdict
    moved_to: str = ""
    duplicate_of: Path | None = None


@dataclass(frozen=True, slots=True)
class Pace:
    """How often to look, when a file counts as whole, how many files one batch takes."""

    scan_seconds: float
    settle_seconds: float
    empty_seconds: float
    batch_files: int
    ignore: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Health:
    """How a watcher is.  settling: files that are waited for; held: files that cannot be tried, and why.

    foreign: files that are no documents, the first MOST_FOREIGN of them.
    """

    state: Literal["waiting", "trouble"]
    settling: int
    done: int
    failed: int
    held: Mapping[str, str]
    foreign: tuple[str, ...]
    problems: tuple[str, ...]


# Reads a batch; a verdict each. Raises JobError for what concerns all files: the disk, the ledger.
Transcribe = Callable[[Sequence[Arrival]], Mapping[Path, Verdict]]


class Watcher:
    """Watches ``roots``.  hear: called with each batch's finished files, after everything is durable."""

    def __init__(
        self,
        roots: Sequence[Path],
        pace: Pace,
        journal: Journal,
        shelves: Shelves,
        transcribe: Transcribe,
        hear: Callable[[Sequence[Finished]], None],
    ) -> None:
        self._roots, self._pace, self._journal, self._shelves = tuple(roots), pace, journal, shelves
        self._transcribe, self._hear = transcribe, hear
        self._settling = Settling(pace.settle_seconds, pace.empty_seconds)
        self._hinted = False
        self._scanned_at = self._scan_at = float("-inf")
        self._held: dict[Path, tuple[str, float]] = {}  # why, and when to try again
        self._suspects: set[Path] = set()  # of a batch that ended in an unexpected error: next time each goes alone
        self._troubles = 0
        self._problems: tuple[str, ...] = ()
        self._foreign: frozenset[Path] = frozenset()
        self._open = self._waiting = self._done = self._failed = 0

    def hint(self) -> None:
        """Something may have changed: scan soon.  May be called by another thread."""
        self._hinted = True

    def step(self, now: float) -> bool:
        """A scan if it is time, then a batch if files are ready.  True when files were taken."""
        if not self._is_time(now):
            return False
        self._hinted = False
        self._scanned_at = now
        seen = scan(self._roots, self._pace.ignore)
        self._tell_problems(seen.problems)
        self._tell_foreign(seen.foreign)
        self._settling.note(seen.stamps, now)
        self._held = {path: why for path, why in self._held.items() if path in seen.stamps}
        self._suspects &= seen.stamps.keys()
        open_ = [path for path, stamp in sorted(seen.stamps.items()) if not self._is_ended(path, stamp)]
        ready = [path for path in open_ if self._settling.has_settled(path, now) and self._may_try(path, now)]
        self._open = sum(path not in self._held for path in open_)
        self._waiting = sum(not self._settling.has_settled(path, now) for path in open_)
        batch = self._next_batch(ready)
        self._plan_scan(now, more=len(ready) > len(batch))
        return bool(batch) and self._take(batch, seen, now)

    @property
    def failed(self) -> int:
        """Files that failed since the start."""
        return self._failed

    @property
    def is_idle(self) -> bool:
        """True when the last scan found every file ended or held."""
        return self._open == 0 and self._scanned_at > float("-inf") and not self._troubles

    def health(self) -> Health:
        """How it stands."""
        held = {str(path): why for path, (why, _) in self._held.items()}
        state: Literal["waiting", "trouble"] = "trouble" if self._troubles else "waiting"
        foreign = tuple(sorted(map(str, self._foreign))[:MOST_FOREIGN])
        return Health(state, self._waiting, self._done, self._failed, held, foreign, self._problems)

    def _is_time(self, now: float) -> bool:
        if now < self._scanned_at:  # the clock was set back
            return True
        return now >= self._scan_at or (self._hinted and not self._troubles and now >= self._scanned_at + HINT_SECONDS)

    def _plan_scan(self, now: float, *, more: bool) -> None:
        pace = self._pace
        wait = min(pace.settle_seconds, pace.scan_seconds) if self._waiting else pace.scan_seconds
        self._scan_at = now if more else now + wait

    def _is_ended(self, path: Path, stamp: Stamp) -> bool:
        entry = self._journal.get(path)
        return entry is not None and not entry.moved_to and entry.stamp == stamp

    def _may_try(self, path: Path, now: float) -> bool:
        return path not in self._held or now >= self._held[path][1]

    def _next_batch(self, ready: Sequence[Path]) -> Sequence[Path]:
        alone = [path for path in ready if path in self._suspects]
        return alone[:1] or ready[: self._pace.batch_files]

    def _take(self, batch: Sequence[Path], seen: Scan, now: float) -> bool:
        arrivals = [
            arrival for path in batch if (arrival := self._arrival(path, seen.roots[path], seen.stamps[path], now)) is not None
        ]
        if not arrivals:
            return False
        try:
            verdicts = self._transcribe(arrivals)
        except JobError as error:
            self._wait_out(str(error), now)
            return False
        except Exception as error:  # the watch must outlive what one file raises; the log has the trace
            _log.exception("a batch of %d files", len(arrivals))
            if len(arrivals) > 1:
                self._suspects.update(arrival.path for arrival in arrivals)
                self._scan_at = now
                return False
            reason = f"internal error, please report it: {type(error).__name__}: {error}"
            verdicts = {arrivals[0].path: Verdict("failed", reason)}
        self._troubles = 0
        self._end(arrivals, verdicts, now)
        return True

    def _arrival(self, path: Path, root: Path, stamp: Stamp, now: float) -> Arrival | None:
        """The file ready to be read; None when it is not: held, gone, changed, or known by its content."""
        try:
            with path.open("rb") as file:
                file.read(1)
            known = self._journal.get(path)
            is_known = known is not None and not known.moved_to
            content_hash = hash_content(path) if is_known or self._shelves.moves else ""
            if known is not None and is_known and known.content_hash == content_hash:
                if stamp_of(path) == stamp:  # touched, or shown with another inode after a mount: the same bytes
                    self._journal.put(path, Entry(stamp, known.content_hash, known.verdict))
                return None
        except FileNotFoundError:
            return None
        except OSError as error:
            self._hold(path, f"cannot be read ({error.strerror or error}); check its rights", now)
            return None
        if stamp_of(path) != stamp:
            return None
        relative = relative_to(path, root)
        identity = self._identity(root, relative, content_hash) if self._shelves.moves else None
        return Arrival(path, relative, root=root, stamp=stamp, identity=identity)

    def _identity(self, root: Path, relative: PurePath, content_hash: str) -> Path:
        """The document that a file to be moved is: the same for the same name and bytes, another for others."""

        def is_others(place: Path) -> bool:
            entry = self._journal.get(place)
            return entry is not None and entry.content_hash != content_hash

        return self._shelves.reserve(root, relative, content_hash, is_others)

    def _end(self, arrivals: Sequence[Arrival], verdicts: Mapping[Path, Verdict], now: float) -> None:
        finished: list[Finished] = []
        for arrival in arrivals:
            verdict = verdicts.get(arrival.path, Verdict("left"))
            self._held.pop(arrival.path, None)
            self._suspects.discard(arrival.path)
            if verdict.kind == "held":
                self._hold(arrival.path, verdict.reason, now)
            elif verdict.kind != "left":
                self._shelve(arrival, verdict, finished, now)
        if finished:
            self._hear(finished)

    def _shelve(self, arrival: Arrival, verdict: Verdict, finished: list[Finished], now: float) -> None:
        """Journal, move, reason.  A file that changed or went while it was read is no failure: it is looked at anew."""
        stamp = stamp_of(arrival.path)
        if stamp != arrival.stamp and (stamp is not None or verdict.kind == "failed"):
            _log.warning("%s: it changed while it was read; it is taken again when it has settled", arrival.path)
            return
        assert verdict.kind in ("done", "failed")
        first = self._journal.first_with(verdict.content_hash) if verdict.content_hash else None
        moved = ""
        try:
            if verdict.kind == "failed":
                moved = self._shelves.put_failed(arrival, _reason(verdict, now))
            elif stamp is not None:
                moved = self._shelves.put_done(arrival)
            self._journal.put(arrival.path, Entry(arrival.stamp, verdict.content_hash, verdict.kind, moved))
            if arrival.identity is not None:  # remembered though people may take the file out of the done folder
                self._journal.put(arrival.identity, Entry(arrival.stamp, verdict.content_hash, verdict.kind))
        except OSError as error:
            self._hold(arrival.path, f"it is {verdict.kind}, but cannot be put away: {error.strerror or error}", now)
            return
        self._done += verdict.kind == "done"
        self._failed += verdict.kind == "failed"
        other = first if first is not None and first != arrival.path else None
        finished.append(Finished(arrival.path, verdict, moved, other))

    def _hold(self, path: Path, why: str, now: float) -> None:
        if self._held.get(path, ("", 0.0))[0] != why:
            _log.warning("%s: %s", path, why)
        self._held[path] = (why, now + self._pace.scan_seconds)

    def _wait_out(self, why: str, now: float) -> None:
        self._troubles += 1
        wait = min(self._pace.scan_seconds * 2 ** min(self._troubles - 1, 20), LONGEST_WAIT_SECONDS)
        _log.warning("%s\nthe watch waits %.0f s and goes on", why, wait)
        self._problems = (*self._problems, why)
        self._scan_at = now + wait

    def _tell_problems(self, problems: tuple[str, ...]) -> None:
        for problem in problems:
            if problem not in self._problems:
                _log.warning("%s", problem)
        self._problems = problems

    def _tell_foreign(self, foreign: Sequence[Path]) -> None:
        """Each once: a file that nobody will read must not look as if it waited."""
        for path in foreign:
            if path not in self._foreign:
                _log.warning("%s: no document by its name; it is left alone", path)
        self._foreign = frozenset(foreign)


def check_places(roots: Sequence[Path], outputs: Mapping[str, Path]) -> None:
    """Raises ConfigError where the watch would read what it writes.  outputs: setting -> folder."""
    problems = []
    if not roots:
        problems.append("input.paths: expected at least one folder to watch, found none")
    problems += [f"input.paths: expected folders to watch, found the file {root}" for root in roots if root.is_file()]
    for index, root in enumerate(roots):
        problems += [
            f"input.paths: expected folders apart from each other, found {root} inside {other}"
            for other in (*roots[:index], *roots[index + 1 :])
            if _is_inside(root, other)
        ]
        for name, folder in outputs.items():
            if _is_inside(folder, root):
                problems.append(f"{name}: expected a folder outside the watched {root}, found {folder} inside it")
            elif _is_inside(root, folder):
                problems.append(f"{name}: expected a folder that does not hold the watched {root}, found {folder}")
    if problems:
        raise ConfigError(problems)


def _is_inside(inner: Path, outer: Path) -> bool:
    """True for the same folder too, by whatever link or mount it is reached."""
    places = [Path(os.path.realpath(inner))]
    places += places[0].parents
    return Path(os.path.realpath(outer)) in places or any(_is_same(place, outer) for place in places)


def _is_same(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def _reason(verdict: Verdict, now: float) -> dict[str, object]:
    return {
        "failed_at": datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds"),
        "reason": verdict.reason,
        "sha256": verdict.content_hash,
        "pages": [{"page": page, "status": status, "reason": reason} for page, status, reason in verdict.pages],
    }
