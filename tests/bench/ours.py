"""Our engine as a worker of the bench: ``python -m tests.bench.ours``."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pagemill.decoder.batch import Prompt, Request, Rows, Segment, Tokens
from pagemill.decoder.engine import Engine
from pagemill.decoder.kernels.isa import detect
from pagemill.decoder.kernels.team import Team
from pagemill.decoder.model import Model, open_model
from pagemill.decoder.network.kv_cache import KvCache
from pagemill.decoder.network.kv_codec import codec_named
from pagemill.decoder.network.transformer import Forward
from pagemill.vision.encoder import load_encoder, open_encoder
from pagemill.vision.patches import Patches, to_patches
from pagemill.vision.protocol import Encoder
from pagemill.vision.weights import plan_encoder
from tests.bench.peaks import peaks
from tests.bench.serve import Answer, Pages, Sequences, median, once, serve, timed
from tests.bench.shares import shares

CHUNK = 256
STEP_ROOM = 64
"""Positions behind the context, so that a step has somewhere to write."""


class Ours:
    """Opened parts stay until another is asked for, so that rounds of a measurement do not set up again."""

    def __init__(self) -> None:
        self._parts: dict[str, tuple[object, Any]] = {}

    def load(self, text: str) -> Answer:
        """Open the text model."""
        seconds = once(lambda: self._model(text))
        return {"seconds": seconds}

    def load_vision(self, mmproj: str, precision: str, threads: int) -> Answer:
        """Open the encoder."""
        seconds = once(lambda: self._encoder(mmproj, precision, threads))
        return {"seconds": seconds}

    def prefill(self, text: str, tokens: int, threads: int) -> Answer:
        """Read a prompt as the engine does, chunk by chunk."""
        engine: Engine = self._part(
            "engine",
            (text, tokens, threads),
            lambda: Engine(self._model(text), slots=1, context=tokens + STEP_ROOM, threads=threads, chunk=CHUNK),
        )
        request = Request(Prompt((Tokens(tuple(300 + i % 1000 for i in range(tokens))),)), 1)
        return {"seconds": once(lambda: engine.generate(request))}

    def decode(self, text: str, sequences: Sequences, threads: int, steps: int) -> Answer:
        """Median step of the sequences; the cache holds zeros."""
        forward, segments = self._part(
            "forward", (text, sequences, threads), lambda: self._forward(self._model(text), sequences, threads)
        )
        return {"seconds": median(timed(lambda: forward.run(segments), steps))}

    def vision(self, mmproj: str, precision: str, width: int, height: int, threads: int) -> Answer:
        """One page of noise through the encoder."""
        encoder = self._encoder(mmproj, precision, threads)
        page = noise(encoder, width, height)
        return {"seconds": once(lambda: encoder.encode(page)), "tokens": page.grid.patches // encoder.spec.merge**2}

    def job(self, text: str, mmproj: str, precision: str, pages: Pages, threads: int) -> Answer:
        """Pages of noise from pixels to their last token, as the page reader goes about it: seconds in all and by stage."""
        model = self._model(text)
        team = Team(threads)
        encoder = load_encoder(plan_encoder(mmproj), team, precision=precision)
        page = noise(encoder, pages.side, pages.side)
        context = page.grid.patches // encoder.spec.merge**2 + pages.answer + STEP_ROOM
        slots = min(pages.slots, pages.count)
        engine = Engine(model, slots=slots, context=context, kv_cache=pages.kv_cache, chunk=CHUNK, team=team)
        started, encode, left, ended = time.perf_counter(), 0.0, pages.count, []
        while left or not engine.idle:
            if left and engine.room:
                before = time.perf_counter()
                engine.submit(Request(Prompt((Tokens((300, 301)), Rows(encoder.encode(page)), Tokens((302,)))), pages.answer))
                encode, left = encode + time.perf_counter() - before, left - 1
            ended += [time.perf_counter() - started for event in engine.step() if event.finish]
        seconds = time.perf_counter() - started
        for part in (engine, encoder, team):
            part.close()
        return {"seconds": seconds, "encode_seconds": encode, "page_ends": ended}

    def peaks(self, threads: int) -> Answer:
        """What the machine can do."""
        return {"peaks": peaks(detect(), threads)}

    def shares(self, threads: int, peaks: dict[str, float]) -> Answer:
        """What the kernels make of it."""
        return {"shares": shares(detect(), threads, peaks)}

    def _forward(self, model: Model, sequences: Sequences, threads: int) -> tuple[Forward, list[Segment]]:
        batch, context = sequences.batch, sequences.context
        cache = KvCache(model.spec, codec_named(sequences.kv_cache), batch, context + STEP_ROOM)
        for slot in range(batch):
            cache.clear(slot)
        team = self._part("team", threads, lambda: Team(threads))
        forward = Forward(model, cache, team, rows=batch, outputs=batch, exact=False)
        row = model.embed((300,))
        return forward, [Segment(slot, context, row, decoding=True, outputs=1) for slot in range(batch)]

    def _model(self, text: str) -> Model:
        model: Model = self._part("model", text, lambda: open_model(text))
        return model

    def _encoder(self, mmproj: str, precision: str, threads: int) -> Encoder:
        opened: Encoder = self._part(
            "encoder", (mmproj, precision, threads), lambda: open_encoder(Path(mmproj), precision=precision, threads=threads)
        )
        return opened

    def _part(self, name: str, key: object, make: Callable[[], Any]) -> Any:
        held = self._parts.get(name)
        if held is None or held[0] != key:
            old = self._parts.pop(name, None)
            if old is not None and hasattr(old[1], "close"):
                old[1].close()
            del held, old  # its memory goes before the next is made
            self._parts[name] = (key, make())
        return self._parts[name][1]


def noise(encoder: Encoder, width: int, height: int) -> Patches:
    """A page of that size in pixels."""
    return to_patches(np.random.default_rng(0).standard_normal((3, height, width), np.float32), encoder.spec)


def main() -> None:
    """Serve."""
    ours = Ours()
    names = ("load", "load_vision", "prefill", "decode", "vision", "job", "peaks", "shares")
    serve({name: getattr(ours, name) for name in names})


if __name__ == "__main__":
    main()
