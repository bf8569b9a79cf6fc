"""What every stage of the pipeline is: things go in while there is room, and come out when they are done.

Rendering, encoding, reading and the engine (``decoder.Engine``) are stages, and a stage on another device, in another
process or on another machine is one more implementation.  Whoever drives a stage calls it from one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)
Key = TypeVar("Key")


class Stage(Protocol[In, Out, Key]):
    """Takes ``In``, gives ``Out``.  What was taken in and neither came out nor was cancelled is under way."""

    @property
    def room(self) -> int:
        """How many more it takes in before the next step."""

    def submit(self, item: In, /) -> Key:
        """Take in one; returns what it is cancelled by.  Raises an error of the item's, which is then not under way."""

    def step(self) -> Sequence[Out]:
        """Go on; what has come out since the last step, in no more than a moment."""

    def cancel(self, key: Key, /) -> None:
        """Drop one, wherever it is; it does not come out.  One that is not under way is no error."""

    def close(self) -> None:
        """Drop all that is under way and let go of threads and processes."""


class WaitingStage(Stage[In, Out, Key], Protocol):
    """A stage whose work is done elsewhere, so that its driver has something to wait for."""

    def wait(self, seconds: float) -> None:
        """Return when ``step`` may have something, at most so many seconds later."""
