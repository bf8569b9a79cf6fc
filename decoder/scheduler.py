"""Which rows the next step holds: one of every decoding sequence, and a chunk of the prompts being read.  No arithmetic."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pagemill.decoder.batch import Request, Rows, Segment, Tokens
from pagemill.decoder.sampler import Sampler

Floats = NDArray[np.float32]
Embed = Callable[[tuple[int, ...]], Floats]


@dataclass(slots=True, eq=False)
class Sequence:
    """A request on its way.  position: rows already in its cache.  history: prompt ids and answer, for penalties."""

    ticket: int
    request: Request
    sampler: Sampler
    slot: int = -1
    position: int = 0
    history: list[int] = field(default_factory=list)
    answered: int = 0

    @property
    def prompt_left(self) -> int:
        """Prompt rows that are not in the cache yet."""
        return max(0, len(self.request.prompt) - self.position)

    @property
    def decoding(self) -> bool:
        """Whether the prompt is in the cache."""
        return not self.prompt_left


class Scheduler:
    """Admits requests into free slots in order of arrival and lays out steps.

    slots: sequences at once.  chunk: prompt rows per step, at most.
    """

    def __init__(self, slots: int, chunk: int) -> None:
        self.chunk = chunk
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self._free = list(range(slots))[::-1]  # the lowest first: a small load touches few caches

    @property
    def free_slots(self) -> int:
        """Slots that no admitted or waiting sequence will take."""
        return max(0, len(self._free) - len(self.waiting))

    def admit(self) -> None:
        """Give waiting sequences the free slots."""
        while self.waiting and self._free:
            sequence = self.waiting.popleft()
            sequence.slot = self._free.pop()
            self.running.append(sequence)

    def retire(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it is; its slot is free for the next step."""
        if sequence in self.running:
            self.running.remove(sequence)
            self._free.append(sequence.slot)
        else:
            self.waiting.remove(sequence)

    def next_step(self, embed: Embed) -> list[tuple[Sequence, Segment]]:
        """The next step's segments, decoded rows first; empty when nothing runs."""
        self.admit()
        step = [(sequence, _decoded_row(sequence, embed)) for sequence in self.running if sequence.decoding]
        budget = self.chunk  # bounds what a long prompt adds to the others' time between tokens
        for sequence in self.running:
            if budget and not sequence.decoding:
                segment = _prompt_rows(sequence, min(budget, sequence.prompt_left), embed)
                budget -= len(segment.rows)
                step.append((sequence, segment))
        return step


def _decoded_row(sequence: Sequence, embed: Embed) -> Segment:
    return Segment(sequence.slot, sequence.position, embed((sequence.history[-1],)), decoding=True, outputs=1)


def _prompt_rows(sequence: Sequence, count: int, embed: Embed) -> Segment:
    """The next ``count`` rows of the prompt; the prompt's last row has logits."""
    start, end, parts, seen = sequence.position, sequence.position + count, [], 0
    for segment in sequence.request.prompt.segments:
        low, high = max(start - seen, 0), min(end - seen, len(segment))
        if low < high:
            parts.append(_embedded(segment, low, high, embed))
        seen += len(segment)
    rows = parts[0] if len(parts) == 1 else np.concatenate(parts)  # a page's rows are mostly one part: no copy
    return Segment(sequence.slot, start, rows, decoding=False, outputs=int(count == sequence.prompt_left))


def _embedded(segment: Tokens | Rows, low: int, high: int, embed: Embed) -> Floats:
    return embed(segment.ids[low:high]) if isinstance(segment, Tokens) else segment.embeddings[low:high]
