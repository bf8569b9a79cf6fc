"""How a watch reports to other programs: a health file that monitors read, and a POST when files have ended."""

from __future__ import annotations

import json
import logging
import os
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from pagemill.jobs.errors import ConfigError
from pagemill.jobs.run.progress import Progress, Snapshot
from pagemill.jobs.watch.watcher import Finished, Health
from pagemill.pipeline import write_durably

WEBHOOK_SECONDS = 10.0
WEBHOOK_TRIES = 5
RETRY_SECONDS = 2.0  # before the second try; four times as long before each further one
MOST_WAITING = 10_000
HEALTH_SECONDS = 5.0

_log = logging.getLogger("pagemill")


class HealthFile:
    """A JSON file, replaced as a whole: state, updated_at, pid, settling, done, failed, held, foreign, problems, run.

    A monitor that finds ``updated_at`` older than a few scans knows that the watch has died or hangs.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: Health | None = None
        self._written = float("-inf")
        self._is_told = False

    def write(self, health: Health, now: float, *, longest_seconds: float, run: Snapshot | None = None) -> None:
        """Write if something changed, or the file is older than ``longest_seconds``."""
        if health == self._last and self._written <= now < self._written + longest_seconds:
            return
        self._last, self._written = health, now
        record = {
            **asdict(health),
            "state": "reading" if run else health.state,
            "updated_at": datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds"),
            "pid": os.getpid(),
            "run": None if run is None else {"pages": run.pages, "done": run.skipped + run.done, "page": run.page},
        }
        try:
            write_durably(self._path, json.dumps(record, indent=1).encode("ascii") + b"\n")
            self._is_told = False
        except OSError as error:
            if not self._is_told:
                _log.warning("%s: the health file cannot be written (%s)", self._path, error.strerror or error)
            self._is_told = True


class HealthProgress:
    """A progress display that keeps the health file fresh through a long batch."""

    def __init__(self, shown: Progress, write: Callable[[Snapshot], None]) -> None:
        self._shown, self._write = shown, write

    def show(self, snapshot: Snapshot) -> None:
        """Draw and write."""
        self._shown.show(snapshot)
        self._write(snapshot)

    def note(self, text: str) -> None:
        """Say a sentence."""
        self._shown.note(text)

    def close(self) -> None:
        """The end of a batch: the last state stays."""
        self._shown.close()


class Webhook:
    """POSTs ``{"event": "files", "files": [...]}`` to an address; a failed one is tried again, later each time.

    After WEBHOOK_TRIES, some three minutes, it is given up and logged; the watch goes on meanwhile.
    """

    def __init__(self, address: str | None) -> None:
        if address is not None and urlsplit(address).scheme not in ("http", "https"):
            raise ConfigError([f"watch.webhook: expected an http:// or https:// address, found {address!r}"])
        self._address = address
        self._waiting: deque[tuple[bytes, int]] = deque(maxlen=MOST_WAITING)
        self._not_before = float("-inf")

    def hear(self, files: Sequence[Finished]) -> None:
        """Queue a message about a batch."""
        if self._address is not None:
            message = {"event": "files", "files": [_told(file) for file in files]}
            self._waiting.append((json.dumps(message).encode("ascii"), 0))

    def step(self, now: float) -> None:
        """Send what waits, in order, until one fails."""
        while self._waiting and now >= self._not_before:
            body, tries = self._waiting.popleft()
            try:
                self._post(body)
            except (OSError, ValueError) as error:  # URLError and timeouts among them
                if tries + 1 < WEBHOOK_TRIES:
                    self._waiting.appendleft((body, tries + 1))
                    self._not_before = now + RETRY_SECONDS * 4**tries
                else:
                    _log.warning("%s: gave up a message after %d tries (%s)", self._address, WEBHOOK_TRIES, error)
                return

    def close(self) -> None:
        """The last try of what waits."""
        self._not_before = float("-inf")
        self.step(0.0)
        if self._waiting:
            _log.warning("%s: %d messages could not be delivered", self._address, len(self._waiting))
            self._waiting.clear()

    def _post(self, body: bytes) -> None:
        assert self._address is not None
        headers = {"Content-Type": "application/json", "User-Agent": "pagemill"}
        request = urllib.request.Request(self._address, body, headers, method="POST")
        with urllib.request.urlopen(request, timeout=WEBHOOK_SECONDS):
            pass


def _told(file: Finished) -> dict[str, object]:
    verdict = file.verdict
    return {
        "file": str(file.path),
        "result": verdict.kind,
        "reason": verdict.reason,
        "sha256": verdict.content_hash,
        "pages": dict(verdict.counts),
        "moved_to": file.moved_to or None,
        "duplicate_of": None if file.duplicate_of is None else str(file.duplicate_of),
    }
