"""Ctrl-C and SIGTERM: the first one lets the step in hand end and gives pages back, a second one ends at once."""

from __future__ import annotations

import os
import signal
from types import FrameType, TracebackType
from typing import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopper:
    """While it is entered, ``signal`` says which signal asked to stop, None as long as none did."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, signal._HANDLER] = {}

    def __enter__(self) -> Self:
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._stop)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            os._exit(128 + number)  # leases are freed by the next run, which sees that this process is dead
        self.signal = number
