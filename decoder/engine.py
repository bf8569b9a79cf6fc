"""Continuous batching: many sequences, one step at a time.

``Engine`` owns the caches, the compute team and the recorded forward pass.  A step mixes a row of every decoding sequence with
a chunk of the prompts being read; a finished sequence's slot is taken over at the next step.  A sequence's tokens do not
depend on what else runs.  Not safe for use from two threads at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from collections.abc import Sequence as Sequenced
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pagemill.decoder.batch import Event, Finish, Request, Segment
from pagemill.decoder.errors import ContextFull, ModelError
from pagemill.decoder.kernels.team import Team
from pagemill.decoder.model import Model
from pagemill.decoder.network.arithmetic import has_exact_attention
from pagemill.decoder.network.kv_cache import KvCache
from pagemill.decoder.network.kv_codec import codec_named
from pagemill.decoder.network.transformer import Forward
from pagemill.decoder.sampler import Sampler
from pagemill.decoder.scheduler import Scheduler, Sequence

LOGITS_ROWS = 64  # rows per step when every row's logits are wanted: bounds the buffer of logits


@dataclass(frozen=True, slots=True)
class StepRows:
    """What a step held: rows of prompts, and rows of sequences that decode."""

    prompt: int
    decoded: int


class Engine:
    """Runs requests against one model.

    slots: sequences at once, each with a cache of ``context`` positions (memory is taken as positions are used).
    threads: None for one a physical core.  kv_cache: f32, f16 or q8_0.  chunk: prompt rows per step.
    team: a compute team to share instead of one of its own; who made it closes it.
    """

    def __init__(
        self,
        model: Model,
        *,
        slots: int = 16,
        context: int = 4096,
        threads: int | None = None,
        kv_cache: str = "f16",
        chunk: int = 256,
        team: Team | None = None,
    ) -> None:
        for name, value in (("slots", slots), ("context", context), ("chunk", chunk)):
            if value < 1:
                raise ModelError(f"{name} should be 1 or more, found {value}")
        self.model, self.context = model, context
        self._team, self._owns_team = team or Team(threads), team is None
        self._cache = KvCache(model.spec, codec_named(kv_cache), slots, context)
        self._forward = _forward(model, self._cache, self._team, rows=slots + chunk, outputs=slots)
        self._scheduler = Scheduler(slots, chunk)
        self._sequences: dict[int, Sequence] = {}
        self._next_ticket = 0
        self.last_step = StepRows(0, 0)

    @property
    def room(self) -> int:
        """Free KV-cache slots: how many more requests start at the next step."""
        return self._scheduler.free_slots

    @property
    def idle(self) -> bool:
        """Whether nothing runs or waits."""
        return not self._sequences

    def submit(self, request: Request) -> int:
        """Queue a request; returns its ticket.  Raises ContextFull if its prompt leaves no position for an answer."""
        length = len(request.prompt)
        if not length:
            raise ModelError("the prompt is empty: give at least one token or row")
        if length >= self.context:
            raise ContextFull(f"the prompt has {length} positions, the context {self.context}: raise engine.context")
        if request.max_tokens < 1:
            raise ModelError(f"max_tokens should be 1 or more, found {request.max_tokens}")
        ticket = self._next_ticket
        self._next_ticket += 1
        # rows of images have no ids: a repetition penalty sees the words of the prompt and the answer
        history = [i for segment in request.prompt.segments for i in getattr(segment, "ids", ())]
        sequence = Sequence(ticket, request, Sampler(request.sampling), history=history)
        self._sequences[ticket] = sequence
        self._scheduler.waiting.append(sequence)
        return ticket

    def cancel(self, ticket: int) -> None:
        """Drop a request; its slot is free for the next step.  One that has ended is no error."""
        sequence = self._sequences.pop(ticket, None)
        if sequence is not None:
            self._scheduler.retire(sequence)

    def step(self) -> list[Event]:
        """One step of everything that runs; the new tokens, one per sequence that got one."""
        step = self._scheduler.next_step(self.model.embed)
        if not step:
            self.last_step = StepRows(0, 0)
            return []
        decoded = sum(segment.decoding for _, segment in step)
        self.last_step = StepRows(sum(len(segment.rows) for _, segment in step) - decoded, decoded)
        logits = self._forward.run([segment for _, segment in step])
        events: list[Event] = []
        for sequence, segment in step:
            sequence.position += len(segment.rows)
            if segment.outputs:
                events.append(self._answer(sequence, logits[len(events)]))
        return events

    def generate(self, request: Request) -> list[Event]:
        """Run one request to its end, beside whatever else runs; its events."""
        return list(self.stream(request))

    def stream(self, request: Request) -> Iterator[Event]:
        """As ``generate``, each event when it comes.  Events of other requests are dropped."""
        ticket = self.submit(request)
        while ticket in self._sequences:
            yield from (event for event in self.step() if event.ticket == ticket)

    def close(self) -> None:
        """Drop all requests and end a compute team of its own; the engine cannot be used after."""
        for ticket in list(self._sequences):
            self.cancel(ticket)
        if self._owns_team:
            self._team.close()

    def _answer(self, sequence: Sequence, logits: NDArray[np.float32]) -> Event:
        try:
            token, log_prob = sequence.sampler.sample(logits, sequence.history)
        except ModelError:  # broken logits end this sequence and no other
            self.cancel(sequence.ticket)
            return Event(sequence.ticket, sequence.request.key, -1, math.nan, "broken")
        sequence.history.append(token)
        sequence.answered += 1
        finish = self._finish(sequence, token)
        if finish is not None:
            self.cancel(sequence.ticket)
        return Event(sequence.ticket, sequence.request.key, token, log_prob, finish)

    def _finish(self, sequence: Sequence, token: int) -> Finish | None:
        if token in sequence.request.stop_ids:
            return "stop"
        if sequence.answered >= sequence.request.max_tokens:
            return "length"
        return "context" if sequence.position >= self.context else None


def _forward(model: Model, cache: KvCache, team: Team, *, rows: int, outputs: int) -> Forward:
    exact = has_exact_attention(model.plan) or cache.codec.name == "f32"
    return Forward(model, cache, team, rows=rows, outputs=outputs, exact=exact)


def logits(
    model: Model, tokens: Sequenced[int], *, kv_cache: str = "f16", threads: int | None = None, decode_from: int | None = None
) -> NDArray[np.float32]:
    """Logits after every token of a sequence: (tokens, vocab) float32.

    decode_from: positions from here on are fed one at a time, as decoding does; None reads all as a prompt.
    """
    team = Team(threads)
    cache = KvCache(model.spec, codec_named(kv_cache), 1, len(tokens))
    forward = _forward(model, cache, team, rows=LOGITS_ROWS, outputs=LOGITS_ROWS)
    split = len(tokens) if decode_from is None else decode_from
    out = np.empty((len(tokens), model.spec.vocab), np.float32)
    start = 0
    while start < len(tokens):
        count = min(LOGITS_ROWS, split - start) if start < split else 1
        rows = model.embed(tuple(int(token) for token in tokens[start : start + count]))
        out[start : start + count] = forward.run([Segment(0, start, rows, decoding=start >= split, outputs=count)])
        start += count
    team.close()
    return out
