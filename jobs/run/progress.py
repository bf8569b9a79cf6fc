"""How far a run is: rich on a terminal, tqdm elsewhere, JSON lines for machines, or nothing.

The runner counts with a ``Meter`` and hands its ``Snapshot`` to a ``Progress`` a few times a second; only a Progress draws.
"""

from __future__ import annotations

import json
import os
import sys
from collections import deque
from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING, Literal, Never, Protocol

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table
    from tqdm import tqdm

Kind = Literal["auto", "rich", "tqdm", "json", "none"]

WINDOW_SECONDS = 60.0
WINDOW_PAGES = 1000
LIFE_SIGN_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run at one moment.  done: pages ended well or not, failed among them; skipped: done by an earlier run.

    eta_seconds: None until a page is done.  rendering, reading, writing: pages in each stage, what waits for it included.
    memory_bytes: of this process, None where the system does not say.
    """

    pages: int
    done: int
    failed: int
    skipped: int
    pages_per_minute: float
    tokens_per_second: float
    elapsed_seconds: float
    eta_seconds: float | None
    page: str = ""
    rendering: int = 0
    reading: int = 0
    writing: int = 0
    memory_bytes: int | None = None

    @property
    def left(self) -> int:
        """Pages that are still to do."""
        return self.pages - self.skipped - self.done


def resident_bytes() -> int | None:
    """Memory that this process has in use, where the system says so without more libraries."""
    if sys.platform != "linux":
        return None
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Meter:
    """Counts pages and tokens; rates are those of the last minute, so that they follow what the machine does now."""

    def __init__(self, pages: int, skipped: int, now: float) -> None:
        self._pages, self._skipped, self._started = pages, skipped, now
        self._done = self._failed = 0
        self._page = ""
        self._recent: deque[tuple[float, int]] = deque(maxlen=WINDOW_PAGES)  # (moment, tokens) of finished pages

    def count(self, page: str, *, failed: bool, tokens: int, now: float) -> None:
        """One page has ended."""
        self._done += 1
        self._failed += failed
        self._page = page
        self._recent.append((now, tokens))

    def snapshot(self, now: float) -> Snapshot:
        """The run as it stands."""
        while self._recent and self._recent[0][0] < now - WINDOW_SECONDS:
            self._recent.popleft()
        since = self._recent[0][0] if len(self._recent) == WINDOW_PAGES else max(self._started, now - WINDOW_SECONDS)
        seconds = max(now - since, 1e-9)
        elapsed = now - self._started
        left = self._pages - self._skipped - self._done
        return Snapshot(
            pages=self._pages,
            done=self._done,
            failed=self._failed,
            skipped=self._skipped,
            pages_per_minute=60 * len(self._recent) / seconds,
            tokens_per_second=sum(tokens for _, tokens in self._recent) / seconds,
            elapsed_seconds=elapsed,
            eta_seconds=left * elapsed / self._done if self._done else None,
            page=self._page,
            memory_bytes=resident_bytes(),
        )


class Progress(Protocol):
    """Shows snapshots; ``note`` is for a sentence that must not tear the display."""

    def show(self, snapshot: Snapshot) -> None:
        """Draw the run as it stands."""

    def note(self, text: str) -> None:
        """Say a sentence."""

    def close(self) -> None:
        """Leave the last state standing and give the terminal back."""


def open_progress(kind: Kind, errors: IO[str], output: IO[str]) -> Progress:
    """The display of a kind.  errors: where people look; output: where JSON lines go."""
    if kind == "auto":
        kind = "rich" if errors.isatty() and "CI" not in os.environ else "tqdm"
    if kind == "rich":
        return RichProgress(errors)
    if kind == "tqdm":
        return TqdmProgress(errors)
    return JsonProgress(output) if kind == "json" else NoProgress(errors)


class NoProgress:
    """Sentences only."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def show(self, snapshot: Snapshot) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """A line."""
        print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Nothing."""


class JsonProgress:
    """One JSON object a line: {"event": "note", "text": ...}; {"event": "progress", ...} whenever a count changes, and every
    ten seconds, so that a machine can tell a long page from a dead run."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._last: tuple[int, int] | None = None
        self._due = 0.0

    def show(self, snapshot: Snapshot) -> None:
        """A line, if a page ended since the last, or it is ten seconds ago."""
        state = (snapshot.done, snapshot.pages)
        if state != self._last or snapshot.elapsed_seconds >= self._due:
            self._last, self._due = state, snapshot.elapsed_seconds + LIFE_SIGN_SECONDS
            self._write({"event": "progress", **asdict(snapshot), "left": snapshot.left})

    def note(self, text: str) -> None:
        """A line."""
        self._write({"event": "note", "text": text})

    def close(self) -> None:
        """Nothing."""

    def _write(self, fields: dict[str, object]) -> None:
        rounded = {name: round(value, 3) if isinstance(value, float) else value for name, value in fields.items()}
        print(json.dumps(rounded), file=self._stream, flush=True)


class TqdmProgress:
    """A plain bar: a log file gets a line every ten seconds, no control codes."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._bar: tqdm[Never] | None = None

    def show(self, snapshot: Snapshot) -> None:
        """Move the bar."""
        from tqdm import tqdm

        if self._bar is None:
            interval = 0.2 if self._stream.isatty() else 10.0
            self._bar = tqdm(
                total=snapshot.pages, unit="page", ascii=True, file=self._stream, mininterval=interval, maxinterval=interval
            )
        self._bar.set_postfix_str(_rates(snapshot), refresh=False)
        self._bar.update(snapshot.skipped + snapshot.done - self._bar.n)

    def note(self, text: str) -> None:
        """A line above the bar."""
        from tqdm import tqdm

        tqdm.write(text, file=self._stream)

    def close(self) -> None:
        """End the bar's line."""
        if self._bar is not None:
            self._bar.refresh()
            self._bar.close()


class RichProgress:
    """A small live table."""

    def __init__(self, stream: IO[str]) -> None:
        from rich.console import Console
        from rich.live import Live

        self._live: Live = Live(console=Console(file=stream), refresh_per_second=4, transient=False)
        self._started = False

    def show(self, snapshot: Snapshot) -> None:
        """Draw the table anew."""
        if not self._started:
            self._live.start()
            self._started = True
        self._live.update(_table(snapshot))

    def note(self, text: str) -> None:
        """A line above the table."""
        self._live.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        """Leave the last table standing."""
        if self._started:
            self._live.stop()


def _table(snapshot: Snapshot) -> Table:
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    ended = snapshot.skipped + snapshot.done
    table.add_row("pages", ProgressBar(total=max(snapshot.pages, 1), completed=ended, width=40), f"{ended}/{snapshot.pages}")
    done = f"{snapshot.done - snapshot.failed} done, {snapshot.failed} failed, {snapshot.left} left"
    table.add_row("", Text(done + (f", {snapshot.skipped} done before" if snapshot.skipped else "")), _clock(snapshot))
    table.add_row("speed", Text(_rates(snapshot)), "")
    table.add_row("stages", Text(_stages(snapshot)), _memory(snapshot))
    table.add_row("last", Text(snapshot.page, overflow="ellipsis", no_wrap=True), "")
    return table


def _rates(snapshot: Snapshot) -> str:
    failed = f"{snapshot.failed} failed, " if snapshot.failed else ""
    return f"{failed}{snapshot.pages_per_minute:.1f} pages/min, {snapshot.tokens_per_second:.0f} tokens/s"


def _stages(snapshot: Snapshot) -> str:
    return f"{snapshot.rendering} rendering, {snapshot.reading} reading, {snapshot.writing} writing"


def _memory(snapshot: Snapshot) -> str:
    return "" if snapshot.memory_bytes is None else f"{snapshot.memory_bytes / 2**20:.0f} MiB"


def _clock(snapshot: Snapshot) -> str:
    elapsed = as_clock(snapshot.elapsed_seconds)
    return elapsed if snapshot.eta_seconds is None else f"{elapsed}, about {as_clock(snapshot.eta_seconds)} left"


def as_clock(seconds: float) -> str:
    """Hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
