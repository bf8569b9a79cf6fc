"""What enters the engine: prompts, requests, and the segments of one ragged step."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pagemill.decoder.sampler import Sampling


@dataclass(frozen=True, slots=True)
class Tokens:
    """A run of token ids."""

    ids: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """A run of embedding rows that stand where tokens would.  embeddings: (rows, width) float32, taken as they are."""

    embeddings: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.embeddings)


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """What a sequence starts with, in order."""

    segments: tuple[Tokens | Rows, ...]

    def __len__(self) -> int:
        return sum(len(segment) for segment in self.segments)


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One sequence to continue.  stop_ids: tokens that end it (they are not part of the answer).  key: the caller's own."""

    prompt: Prompt
    max_tokens: int
    sampling: Sampling = field(default_factory=Sampling)
    stop_ids: frozenset[int] = frozenset()
    key: Hashable = None


# Why a sequence ended: a stop token, its max_tokens, no position left in the context, or logits that are no numbers.
Finish = Literal["stop", "length", "context", "broken"]


@dataclass(frozen=True, slots=True)
class Event:
    """One new token of one sequence.  log_prob: of it, under the unmodified softmax.  The last event has a finish;
    a ``broken`` one has no token (-1).
    """

    ticket: int
    key: Hashable
    token: int
    log_prob: float
    finish: Finish | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A run of rows of one sequence in one step.

    slot: of the KV cache.  start: position of the first row.  rows: (n, width) float32, already embedded.
    decoding: a single row that continues a finished prompt; prompt rows and decoded rows take different attention kernels,
    so the kind follows from the row's origin and never from how many there are.
    outputs: how many of its last rows need logits.
    """

    slot: int
    start: int
    rows: NDArray[np.float32]
    decoding: bool
    outputs: int
