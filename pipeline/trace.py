"""Where each worker's time goes, in the Chrome trace format: https://ui.perfetto.dev and chrome://tracing show it.

A track is a worker: a rendering child, the encoder, the engine, the writer.  The file is a JSON array whose last bracket is
written at the end; viewers also read one that a kill left without.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO, Protocol

NOTHING = nullcontext()


class Trace(Protocol):
    """Takes note of what a worker did, and when; times are ``time.perf_counter``'s."""

    def span(self, track: str, name: str) -> AbstractContextManager[None]:
        """What is done within it took the track's worker so long."""

    def add(self, track: str, name: str, began: float, ended: float, **facts: int | str) -> None:
        """A span that is over."""

    def close(self) -> None:
        """Finish the file."""


class NoTrace:
    """Takes no note."""

    def span(self, track: str, name: str) -> AbstractContextManager[None]:
        """Nothing."""
        return NOTHING

    def add(self, track: str, name: str, began: float, ended: float, **facts: int | str) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


NO_TRACE = NoTrace()


class ChromeTrace:
    """Writes a trace file.  Raises OSError where it cannot be written."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[str] = path.open("w", encoding="utf-8")
        self._tracks: dict[str, int] = {}
        self._start = time.perf_counter()
        self._file.write("[\n")
        self._write({"ph": "M", "name": "process_name", "pid": os.getpid(), "args": {"name": "pagemill"}}, first=True)

    @contextmanager
    def span(self, track: str, name: str) -> Iterator[None]:
        """A span from now to the end of the block."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.add(track, name, began, time.perf_counter())

    def add(self, track: str, name: str, began: float, ended: float, **facts: int | str) -> None:
        """Write the span."""
        microseconds = [round(1e6 * moment) for moment in (began - self._start, ended - began)]
        event = {"ph": "X", "name": name, "pid": os.getpid(), "tid": self._track(track)}
        self._write({**event, "ts": microseconds[0], "dur": microseconds[1], "args": facts})

    def close(self) -> None:
        """Write the last bracket."""
        if not self._file.closed:
            self._file.write("\n]\n")
            self._file.close()

    def _track(self, name: str) -> int:
        if name not in self._tracks:
            number = self._tracks[name] = len(self._tracks) + 1
            event = {"ph": "M", "name": "thread_name", "pid": os.getpid(), "tid": number, "args": {"name": name}}
            self._write(event)
        return self._tracks[name]

    def _write(self, event: dict[str, object], *, first: bool = False) -> None:
        self._file.write(("" if first else ",\n") + json.dumps(event))


def open_trace(path: Path | None) -> Trace:
    """A trace file, or no trace."""
    return NO_TRACE if path is None else ChromeTrace(path)
