"""The bench's side of its workers: a process each, asked in turn, so that only one computes at a time."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.bench.serve import plain

ROOT = Path(__file__).resolve().parents[2]
OURS = (sys.executable, "-m", "tests.bench.ours")
REQUEST_SECONDS = 1800.0


class WorkerFailed(RuntimeError):
    """A worker died, answered an error or did not answer in time."""


class Worker:
    """One process.  name: what the tables call it.  log: where its standard error goes."""

    def __init__(self, name: str, command: tuple[str, ...], log: Path) -> None:
        self.name = name
        self.peak_bytes = 0
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, bufsize=1
            )

    def ask(self, what: str, **arguments: Any) -> dict[str, Any]:
        """An operation's answer.  Raises WorkerFailed; the worker is gone then, but for an error that it told."""
        assert self._process.stdin is not None, "opened with a pipe"
        assert self._process.stdout is not None, "opened with a pipe"
        try:
            self._process.stdin.write(json.dumps({"do": what, **arguments}, default=plain) + "\n")
            ready, _, _ = select.select([self._process.stdout], [], [], REQUEST_SECONDS)
            line = self._process.stdout.readline() if ready else ""
        except OSError:
            line = ""
        if not line:
            self._process.kill()
            raise WorkerFailed(f"{self.name}: {what} gave no answer, see {self._log}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerFailed(f"{self.name}: {what}: {answer['error']}")
        self.peak_bytes = max(self.peak_bytes, answer["peak_bytes"])
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


class Clock:
    """The time a section may still take."""

    def __init__(self, limit_seconds: float) -> None:
        self._end = time.monotonic() + limit_seconds

    def has(self, seconds: float) -> bool:
        """Whether that much is left."""
        return time.monotonic() + seconds < self._end
