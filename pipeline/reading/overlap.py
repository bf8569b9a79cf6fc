"""When pages are encoded: in turn with the engine where both compute on the same cores, side by side where they do not.

On shared cores the rule is one page, then one step: a page is encoded as soon as the engine has a place for it, so that its
batch stays full (a step costs little more for many sequences than for one), and nothing lies encoded that cannot run yet.
With an encoder on a device of its own, a thread keeps it busy a few pages ahead.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray

from pagemill.pipeline.page import PageImage
from pagemill.pipeline.stage import WaitingStage

Encode = Callable[[PageImage], NDArray[np.float32]]

PAGES_AHEAD = 2  # encoded pages that may wait for the engine where encoding costs it nothing


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """An image that went through the encoder.  ticket: what ``submit`` returned for it.

    rows: (rows, width) float32, or the error that it ended with.  began, seconds: when and how long, by perf_counter.
    """

    ticket: int
    rows: NDArray[np.float32] | Exception
    began: float
    seconds: float


# Images on their way through the encoder, in order. None comes out while the engine has no room for it.
Encoding = WaitingStage[PageImage, Encoded, int]


class InTurn:
    """Encodes one image in each step for which the engine has room.  engine_room: asks it."""

    def __init__(self, encode: Encode, engine_room: Callable[[], int]) -> None:
        self._encode, self._engine_room = encode, engine_room
        self._tickets = count()
        self._waiting: tuple[int, PageImage] | None = None

    @property
    def room(self) -> int:
        """One at a time."""
        return int(self._waiting is None and self._engine_room() > 0)

    def submit(self, image: PageImage) -> int:
        """Keep it for the next step."""
        ticket = next(self._tickets)
        self._waiting = ticket, image
        return ticket

    def step(self) -> list[Encoded]:
        """The image that was taken in, encoded now."""
        if self._waiting is None or not self._engine_room():
            return []
        (ticket, image), self._waiting = self._waiting, None
        return [_encoded(ticket, image, self._encode)]

    def wait(self, seconds: float) -> None:
        """Nothing to wait for: the step itself encodes."""

    def cancel(self, ticket: int) -> None:
        """Drop an image."""
        if self._waiting is not None and self._waiting[0] == ticket:
            self._waiting = None

    def close(self) -> None:
        """Drop the image."""
        self._waiting = None


class SideBySide:
    """Encodes in a thread; ``ahead`` images may be under way or wait beyond the engine's room."""

    def __init__(self, encode: Encode, engine_room: Callable[[], int], ahead: int = PAGES_AHEAD) -> None:
        self._encode, self._engine_room, self._ahead = encode, engine_room, ahead
        self._tickets = count()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="pagemill-encode")
        self._images: dict[int, Future[Encoded]] = {}  # by ticket, in order

    @property
    def room(self) -> int:
        """The engine's room, and some ahead."""
        return max(0, self._engine_room() + self._ahead - len(self._images))

    def submit(self, image: PageImage) -> int:
        """Hand it to the thread."""
        ticket = next(self._tickets)
        self._images[ticket] = self._pool.submit(_encoded, ticket, image, self._encode)
        return ticket

    def step(self) -> list[Encoded]:
        """The images that are ready, in order, as many as the engine takes."""
        ready: list[Encoded] = []
        room = self._engine_room()  # once: it falls only as the caller submits what it gets here
        while self._images and len(ready) < room and (first := next(iter(self._images.values()))).done():
            ready.append(first.result())
            del self._images[ready[-1].ticket]
        return ready

    def wait(self, seconds: float) -> None:
        """Wait for the first image, at most so many seconds."""
        wait(list(self._images.values())[:1], seconds)

    def cancel(self, ticket: int) -> None:
        """Drop an image; the thread finishes the one that it is at, whose rows are dropped."""
        image = self._images.pop(ticket, None)
        if image is not None:
            image.cancel()

    def close(self) -> None:
        """End the thread after the image that it is at."""
        self._images.clear()
        self._pool.shutdown(cancel_futures=True)


def open_encoding(encode: Encode, engine_room: Callable[[], int], *, shares_cores: bool) -> Encoding:
    """The rule that suits the encoder.  shares_cores: whether it computes on the engine's cores."""
    return InTurn(encode, engine_room) if shares_cores else SideBySide(encode, engine_room)


def _encoded(ticket: int, image: PageImage, encode: Encode) -> Encoded:
    began = time.perf_counter()
    try:
        rows: NDArray[np.float32] | Exception = encode(image)
    except Exception as error:  # one page must not end the run; who takes it says what happened
        rows = error
    return Encoded(ticket, rows, began, time.perf_counter() - began)
