"""Reads many pages at once: encoder, prompt and engine behind one face.

``step`` encodes pages by the rule of ``overlap`` and goes on with all others by one token each.  A page that was not
read well is read again by the ramp of ``recovery``; every page ends with a status that says what happened to it.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pagemill.decoder import Event, ModelError, Prompt, Request, Sampling, StepRows, Tokenizer
from pagemill.pipeline.page import Attempt, PageImage, PageStatus, PageText, Picture
from pagemill.pipeline.reading.overlap import Encoded, open_encoding
from pagemill.pipeline.reading.quality import measure_ink, why_blank
from pagemill.pipeline.reading.reading import Reading, Run, together
from pagemill.pipeline.reading.recovery import BEST_FIRST, FIRST, TURNS, Recovery, Rung, images, ramp
from pagemill.pipeline.trace import NO_TRACE, Trace
from pagemill.vision import MULTIPLE_PX, BadPixels, BrokenRows, Encoder, page_prompt, prepare, to_patches

Clock = Callable[[], float]
ENCODER, ENGINE = "encoder", "engine"
"""Tracks of a trace."""

_log = logging.getLogger("pagemill")


class TokenEngine(Protocol):
    """What is needed of ``decoder.engine.Engine``.  last_step: what its last step held."""

    last_step: StepRows

    @property
    def free_slots(self) -> int:
        """How many more requests start at the next step."""

    def add(self, request: Request) -> int:
        """Queue a request; its ticket."""

    def step(self) -> list[Event]:
        """One step; the new tokens."""

    def cancel(self, ticket: int) -> None:
        """Drop a request."""


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """How pages are read.

    max_tokens: of one page's answer.  prompt_text: what follows the page in the prompt; most models want none.
    multiple_px: what image sides are rounded up to.  skip_blank: whether a page without ink is not shown to the model.
    skip_bleed: whether that is so of a page with nothing but what shines through from its other side.
    """

    max_tokens: int = 4096
    sampling: Sampling = field(default_factory=Sampling)
    prompt_text: str = ""
    multiple_px: int = MULTIPLE_PX
    skip_blank: bool = True
    skip_bleed: bool = True
    recovery: Recovery = field(default_factory=Recovery)


@dataclass(slots=True, eq=False)
class _Page:
    """A page on its way: what was read of it so far, what is being read, and what can still be tried.

    upright: its pixels, turned to where they read best.  prompt: of the upright image, to read it again as it is.
    """

    image: PageImage
    measures: Mapping[str, float]
    upright: NDArray[np.uint8]
    turn: int = 0
    rung: Rung = FIRST
    running: list[Run] = field(default_factory=list)
    readings: list[tuple[Rung, Reading]] = field(default_factory=list)
    rungs: Iterator[Rung] = field(default_factory=lambda: iter(()))
    prompt: Prompt | None = None

    @property
    def name(self) -> str:
        return f"{self.image.ref.document.name}, page {self.image.ref.page + 1}"

    @property
    def best(self) -> tuple[Rung, Reading]:
        """By status, then by confidence for those that may be right, then the earlier one."""
        return min(self.readings, key=lambda one: (BEST_FIRST.index(one[1].status), -one[1].sureness))


class PageReader:
    """``submit`` pages while there are ``free_slots``; ``step`` until they come back.

    provenance: what every page's record says of software, model and settings; the page image's hash is added.
    """

    def __init__(
        self,
        encoder: Encoder,
        engine: TokenEngine,
        tokenizer: Tokenizer,
        settings: ReadSettings,
        provenance: Mapping[str, str],
        clock: Clock = time.perf_counter,
        trace: Trace = NO_TRACE,
    ) -> None:
        self._encoder, self._engine, self._tokenizer = encoder, engine, tokenizer
        self._settings, self._provenance, self._clock, self._trace = settings, provenance, clock, trace
        self._encoding = open_encoding(self._encode, clock, shares_cores=encoder.shares_cores)
        self._again: deque[PageImage] = deque()  # images of further attempts, before new pages
        self._encoded: dict[PageImage, tuple[_Page, Run]] = {}  # those on their way through the encoder
        self._runs: dict[int, tuple[_Page, Run]] = {}  # by ticket
        self._ended: list[PageText] = []

    @property
    def free_slots(self) -> int:
        """How many more images it takes in before the next step."""
        return max(0, self._encoding.room(self._engine.free_slots) - len(self._again))

    @property
    def longest_edge_px(self) -> int:
        """The longest side of a page that the model takes, pixels."""
        return self._encoder.spec.longest_edge_px

    @property
    def multiple_px(self) -> int:
        """What the sides of a page are rounded up to, pixels."""
        return self._settings.multiple_px

    def submit(self, image: PageImage) -> None:
        """Take in one page, if there is something on it."""
        settings = self._settings
        measures: Mapping[str, float] = {}
        if settings.skip_blank:
            ink = measure_ink(image.pixels)
            measures = ink.measures
            reason = why_blank(ink, skip_bleed=settings.skip_bleed)
            if reason:
                if image.objects and ink.is_blank:
                    reason = f"suspect blank: the page draws {image.objects} objects, and {reason}"
                self._ended.append(self._text(image, "blank", reason, measures))
                return
        page = _Page(image, measures, image.pixels)
        run = Run(self._tokenizer)
        page.running.append(run)
        self._encoded[image] = (page, run)
        self._encoding.offer(image)

    def step(self) -> Sequence[PageText]:
        """Encode what there is a place for, and go on by one token a page; returns the pages that ended."""
        while self._again and self._encoding.room(self._engine.free_slots) > 0:
            self._encoding.offer(self._again.popleft())
        for encoded in self._encoding.take(self._engine.free_slots, idle=not self._runs):
            self._begin(encoded)
        began = self._clock()
        events = self._engine.step()
        self._trace_step(began)
        for event in events:
            if event.ticket in self._runs:
                self._take(*self._runs[event.ticket], event)
        ended, self._ended = self._ended, []
        return ended

    def close(self) -> None:
        """Drop the pages that are on their way to the engine."""
        self._encoding.close()
        self._again.clear()

    def _begin(self, encoded: Encoded) -> None:
        """Queue an encoded image at the engine, or end its run if it has no rows."""
        page, run = self._encoded.pop(encoded.image)
        run.encode_seconds = encoded.seconds
        self._trace.add(ENCODER, page.name, encoded.began, encoded.began + encoded.seconds)
        try:
            if isinstance(encoded.rows, Exception):
                raise encoded.rows
            prompt = page_prompt(self._tokenizer, encoded.rows, self._settings.prompt_text)
            if page.rung.keeps_image or page.rung.turn:
                page.prompt = prompt
            self._add(page, run, prompt)
        except BrokenRows as error:
            self._fail(page, run, f"broken: {error}", "broken")
        except (ModelError, BadPixels) as error:
            self._fail(page, run, str(error))
        except Exception as error:  # one page must not end the run; the log has the trace
            _log.exception("%s", page.name)
            self._fail(page, run, f"internal error, please report it: {type(error).__name__}: {error}")

    def _add(self, page: _Page, run: Run, prompt: Prompt) -> None:
        sampling, again = self._settings.sampling, len(page.readings)
        if page.rung.temperature is not None:
            sampling = replace(sampling, temperature=page.rung.temperature)
        if again:
            sampling = replace(sampling, seed=sampling.seed + again)
        ticket = self._engine.add(Request(prompt, self._settings.max_tokens, sampling, self._tokenizer.eos_ids))
        run.started = self._clock()
        self._runs[ticket] = (page, run)

    def _take(self, page: _Page, run: Run, event: Event) -> None:
        if not run.take(event):
            return
        del self._runs[event.ticket]
        self._engine.cancel(event.ticket)
        self._end(page, run)

    def _fail(self, page: _Page, run: Run, reason: str, trouble: str = "failed") -> None:
        run.fail(reason, trouble)
        self._end(page, run)

    def _end(self, page: _Page, run: Run) -> None:
        """A run has ended; when all of the attempt have, judge it and go on."""
        run.decode_seconds = self._clock() - run.started if run.started else 0.0
        if not all(one.has_ended for one in page.running):
            return
        recovery = self._settings.recovery
        reading = together(page.running, recovery.low_confidence)
        page.readings.append((page.rung, reading))
        page.running = []
        if len(page.readings) == 1 and reading.trouble in recovery.retry_on:
            page.rungs = chain(TURNS if recovery.turns else (), ramp(recovery))
        turning = page.rung in TURNS[:-1]  # a page may be read upside down, too, and sound sure: all turns are compared
        is_good = page.best[1].status == "ok" and not turning
        if is_good or not self._try_again(page):
            self._finish(page)

    def _try_again(self, page: _Page) -> bool:
        """Start the next attempt that the page allows; False when there is none left."""
        for rung in page.rungs:
            if not rung.turn and page.rung.turn:
                self._settle_turn(page)
            page.rung = rung
            pixels = page.image.pixels if rung.turn else page.upright
            parts = images(pixels, rung, self._encoder.spec.longest_edge_px)
            if not parts:
                continue
            page.running = [Run(self._tokenizer) for _ in parts]
            if rung.keeps_image and page.prompt is not None:
                self._add(page, page.running[0], page.prompt)
                return True
            for run, part in zip(page.running, parts, strict=True):
                image = replace(page.image, pixels=part)
                self._encoded[image] = (page, run)
                self._again.append(image)
            return True
        return False

    def _settle_turn(self, page: _Page) -> None:
        """After the turns: go on with the one that read best."""
        best, _ = page.best
        page.turn = best.turn
        page.upright = images(page.image.pixels, best, self._encoder.spec.longest_edge_px)[0]
        page.prompt = None

    def _finish(self, page: _Page) -> None:
        rung, reading = page.best
        turn = rung.turn or page.turn
        count = len(page.readings)
        reason = f"{reading.reason} ({count} attempts)" if reading.reason and count > 1 else reading.reason
        timings = {"encode": 0.0, "decode": 0.0}
        for number, (_, one) in enumerate(page.readings, 1):
            timings["encode"] += one.encode_seconds
            timings["decode"] += one.decode_seconds
            if count > 1:
                timings[f"attempt_{number}"] = one.encode_seconds + one.decode_seconds
        text = self._text(page.image, reading.status, reason, page.measures, timings, turn)
        attempts = tuple(
            Attempt(rung.how, one.status, one.reason, one.tokens, one.mean_log_prob) for rung, one in page.readings
        )
        self._ended.append(
            replace(
                text,
                text=reading.text,
                tokens=reading.tokens,
                mean_log_prob=reading.mean_log_prob,
                attempts=attempts,
                word_confidences=reading.word_confidences,
            )
        )

    def _trace_step(self, began: float) -> None:
        rows = self._engine.last_step
        if rows.prompt or rows.decoded:
            name = "prefill and decode" if rows.prompt and rows.decoded else "prefill" if rows.prompt else "decode"
            self._trace.add(ENGINE, name, began, self._clock(), prompt_rows=rows.prompt, decoded_rows=rows.decoded)

    def _encode(self, image: PageImage) -> NDArray[np.float32]:
        pixels = prepare(Image.fromarray(image.pixels), self._encoder.spec, self._settings.multiple_px)
        return self._encoder.encode(to_patches(pixels, self._encoder.spec))

    def _text(
        self,
        image: PageImage,
        status: PageStatus,
        reason: str,
        measures: Mapping[str, float],
        timings: Mapping[str, float] = MappingProxyType({}),
        turn: int = 0,
    ) -> PageText:
        """A page's record without what was read."""
        provenance = {**self._provenance, "image_hash": image.image_hash}
        if image.mended:
            provenance["original"] = image.mended
        if turn:
            provenance["turned"] = str(turn)
        height, width = image.pixels.shape[:2] if turn % 180 == 0 else image.pixels.shape[1::-1]
        picture = Picture(width, height, image.source_dpi)
        times = {"render": image.seconds, **timings}
        return PageText(image.ref, "", status, reason, timings=times, provenance=provenance, measures=measures, picture=picture)
