"""When pages are encoded: in turn with the engine where both compute on the same cores, side by side where they do not.

On shared cores the rule is one page, then one step: a page is encoded as soon as the engine has a place for it, so that its
batch stays full (a step costs little more for many sequences than for one), and nothing lies encoded that cannot run yet.
With an encoder on a device of its own, a thread keeps it busy a few pages ahead.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pagemill.pipeline.page import PageImage

Encode = Callable[[PageImage], NDArray[np.float32]]
Clock = Callable[[], float]

PAGES_AHEAD = 2
"""Encoded pages that may wait for the engine where encoding costs it nothing."""
IDLE_WAIT_SECONDS = 0.02


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """A page that went through the encoder.  rows: (rows, width) float32, or the error that it ended with.

    began, seconds: when and how long, by the clock.
    """

    image: PageImage
    rows: NDArray[np.float32] | Exception
    began: float
    seconds: float


class Encoding(Protocol):
    """Pages on their way through the encoder, in order."""

    def room(self, free_slots: int) -> int:
        """How many more pages may be offered while the engine has that many free slots."""

    def offer(self, image: PageImage) -> None:
        """Take in a page."""

    def take(self, free_slots: int, *, idle: bool) -> list[Encoded]:
        """Encoded pages, at most one a free slot.  idle: nothing else is to be done, so it may wait a little."""

    def close(self) -> None:
        """Drop what is on its way."""


class InTurn:
    """Encodes one page in each ``take`` for which there is a slot."""

    def __init__(self, encode: Encode, clock: Clock = time.perf_counter) -> None:
        self._encode, self._clock = encode, clock
        self._image: PageImage | None = None

    def room(self, free_slots: int) -> int:
        """One at a time."""
        return int(free_slots > 0 and self._image is None)

    def offer(self, image: PageImage) -> None:
        """Keep it for the next ``take``."""
        self._image = image

    def take(self, free_slots: int, *, idle: bool) -> list[Encoded]:
        """The offered page, encoded now."""
        if self._image is None or not free_slots:
            return []
        image, self._image = self._image, None
        return [_encoded(image, self._encode, self._clock)]

    def close(self) -> None:
        """Drop the page."""
        self._image = None


class SideBySide:
    """Encodes in a thread; ``ahead`` pages may be under way or wait beyond the engine's free slots."""

    def __init__(self, encode: Encode, clock: Clock = time.perf_counter, ahead: int = PAGES_AHEAD) -> None:
        self._encode, self._clock, self._ahead = encode, clock, ahead
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="pagemill-encode")
        self._pages: deque[Future[Encoded]] = deque()

    def room(self, free_slots: int) -> int:
        """The free slots' worth, and some ahead."""
        return max(0, free_slots + self._ahead - len(self._pages))

    def offer(self, image: PageImage) -> None:
        """Hand it to the thread."""
        self._pages.append(self._pool.submit(_encoded, image, self._encode, self._clock))

    def take(self, free_slots: int, *, idle: bool) -> list[Encoded]:
        """The pages that are ready, in order."""
        ready: list[Encoded] = []
        if idle and self._pages and not self._pages[0].done():
            time.sleep(IDLE_WAIT_SECONDS)
        while self._pages and len(ready) < free_slots and self._pages[0].done():
            ready.append(self._pages.popleft().result())
        return ready

    def close(self) -> None:
        """End the thread after the page it is at."""
        self._pages.clear()
        self._pool.shutdown(cancel_futures=True)


def open_encoding(encode: Encode, clock: Clock = time.perf_counter, *, shares_cores: bool) -> Encoding:
    """The rule that suits the encoder.  shares_cores: whether it computes on the engine's cores."""
    return InTurn(encode, clock) if shares_cores else SideBySide(encode, clock)


def _encoded(image: PageImage, encode: Encode, clock: Clock) -> Encoded:
    began = clock()
    try:
        rows: NDArray[np.float32] | Exception = encode(image)
    except Exception as error:  # one page must not end the run; who takes it says what happened
        rows = error
    return Encoded(image, rows, began, clock() - began)
