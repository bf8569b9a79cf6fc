"""Reads many pages at once: encoder, prompt and engine behind one face.

``step`` encodes pages by the rule of ``overlap`` and goes on with all others by one token each.  A page that was not
read well is read again by the ramp of ``recovery``; every page ends with a status that says what happened to it.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pagemill.decoder import Event, ModelError, Prompt, Request, StepRows, Tokenizer
from pagemill.pipeline.page import PageImage, PageRef, PageText
from pagemill.pipeline.reading.attempts import PageAttempts, page_record
from pagemill.pipeline.reading.overlap import Encoded, open_encoding
from pagemill.pipeline.reading.quality import measure_ink, why_blank
from pagemill.pipeline.reading.reading import Decoding
from pagemill.pipeline.reading.settings import ReadSettings
from pagemill.pipeline.stage import Stage
from pagemill.pipeline.trace import NO_TRACE, Trace
from pagemill.vision import BadPixels, BrokenRows, Encoder, page_prompt, prepare, to_patches

ENCODER, ENGINE = "encoder", "engine"  # tracks of a trace
IDLE_WAIT_SECONDS = 0.02

_log = logging.getLogger("pagemill")

Part = tuple[PageAttempts, Decoding]


class TokenEngine(Stage[Request, Event, int], Protocol):
    """What is needed of ``decoder.Engine``.  last_step: what its last step held."""

    last_step: StepRows


class PageReader:
    """A stage from PageImage to PageText: ``submit`` pages while there is ``room``, ``step`` until they come back.

    settings: of pages that bring none of their own.  provenance: what every page's record says of software, model and
    settings; the page image's hash is added.
    """

    def __init__(
        self,
        encoder: Encoder,
        engine: TokenEngine,
        tokenizer: Tokenizer,
        settings: ReadSettings,
        provenance: Mapping[str, str],
        trace: Trace = NO_TRACE,
    ) -> None:
        self._encoder, self._engine, self._tokenizer = encoder, engine, tokenizer
        self._settings, self._provenance, self._trace = settings, provenance, trace
        self._encoding = open_encoding(self._encode, lambda: self._engine.room, shares_cores=encoder.shares_cores)
        self._pages: dict[PageRef, PageAttempts] = {}  # under way
        self._again: deque[tuple[Part, PageImage]] = deque()  # images of further attempts, before new pages
        self._encoded: dict[int, Part] = {}  # on their way through the encoder, by its ticket
        self._decoding: dict[int, Part] = {}  # by the engine's ticket
        self._ended: list[PageText] = []

    @property
    def room(self) -> int:
        """How many more images it takes in before the next step."""
        return max(0, self._encoding.room - len(self._again))

    @property
    def longest_edge_px(self) -> int:
        """The longest side of a page that the model takes, pixels."""
        return self._encoder.spec.longest_edge_px

    @property
    def multiple_px(self) -> int:
        """What the sides of a page are rounded up to, pixels."""
        return self._settings.multiple_px

    def submit(self, image: PageImage, settings: ReadSettings | None = None) -> PageRef:
        """Take in one page, if there is something on it.  settings: its own, None for the reader's.

        Raises ValueError for a page that is being read.
        """
        if image.ref in self._pages:
            raise ValueError(f"{image.ref}: expected a page that is not being read, found it under way")
        settings = settings or self._settings
        measures: Mapping[str, float] = {}
        if settings.skip_blank:
            ink = measure_ink(image.pixels)
            measures = ink.measures
            reason = why_blank(ink, skip_bleed=settings.skip_bleed)
            if reason:
                if image.objects and ink.is_blank:
                    reason = f"suspect blank: the page draws {image.objects} objects, and {reason}"
                record = page_record(image, "blank", self._provenance)
                self._ended.append(replace(record, reason=reason, measures=measures))
                return image.ref
        page = PageAttempts(image, settings, measures, image.pixels, parts=[Decoding(self._tokenizer)])
        self._pages[image.ref] = page
        self._encoded[self._encoding.submit(image)] = page, page.parts[0]
        return image.ref

    def step(self) -> list[PageText]:
        """Encode what there is a place for, and go on by one token a page; returns the pages that ended."""
        while self._again and self._encoding.room:  # before new pages: a page under way holds its pixels
            part, image = self._again.popleft()
            self._encoded[self._encoding.submit(image)] = part
        if self._encoded and not self._decoding:
            self._encoding.wait(IDLE_WAIT_SECONDS)
        for encoded in self._encoding.step():
            self._begin(encoded)
        began = time.perf_counter()
        events = self._engine.step()
        self._trace_step(began)
        for event in events:
            if event.ticket in self._decoding:
                self._take(event)
        ended, self._ended = self._ended, []
        return ended

    def cancel(self, ref: PageRef) -> None:
        """Drop a page, whether it waits, is encoded, is decoded or has just ended."""
        page = self._pages.pop(ref, None)
        self._ended = [text for text in self._ended if text.ref != ref]
        if page is None:
            return
        self._again = deque(one for one in self._again if one[0][0] is not page)
        for stage, parts in ((self._encoding, self._encoded), (self._engine, self._decoding)):
            for ticket in [ticket for ticket, (owner, _) in parts.items() if owner is page]:
                stage.cancel(ticket)
                del parts[ticket]

    def close(self) -> None:
        """Drop all pages and end the encoder's thread; encoder and engine stay their owner's."""
        for ref in list(self._pages):
            self.cancel(ref)
        self._encoding.close()

    def _begin(self, encoded: Encoded) -> None:
        """Queue an encoded image at the engine, or end its part if it has no rows."""
        page, part = self._encoded.pop(encoded.ticket)
        part.encode_seconds = encoded.seconds
        self._trace.add(ENCODER, str(page.image.ref), encoded.began, encoded.began + encoded.seconds)
        try:
            if isinstance(encoded.rows, Exception):
                raise encoded.rows
            prompt = page_prompt(self._tokenizer, encoded.rows, page.settings.prompt_text)
            if page.rung.keeps_image or page.rung.turn:
                page.prompt = prompt
            self._decode(page, part, prompt)
        except BrokenRows as error:
            self._fail(page, part, f"broken: {error}", "broken")
        except (ModelError, BadPixels) as error:
            self._fail(page, part, str(error))
        except Exception as error:  # one page must not end the run; the log has the trace
            _log.exception("%s", page.image.ref)
            self._fail(page, part, f"internal error, please report it: {type(error).__name__}: {error}")

    def _decode(self, page: PageAttempts, part: Decoding, prompt: Prompt) -> None:
        ticket = self._engine.submit(Request(prompt, page.settings.max_tokens, page.sampling, self._tokenizer.eos_ids))
        part.started = time.perf_counter()
        self._decoding[ticket] = page, part

    def _take(self, event: Event) -> None:
        page, part = self._decoding[event.ticket]
        if part.take(event):
            del self._decoding[event.ticket]
            self._engine.cancel(event.ticket)  # a loop was noticed here, the engine would go on
            self._end(page, part)

    def _fail(self, page: PageAttempts, part: Decoding, reason: str, trouble: str = "failed") -> None:
        part.fail(reason, trouble)
        self._end(page, part)

    def _end(self, page: PageAttempts, part: Decoding) -> None:
        """A part has ended; when all of the attempt have, judge it and go on."""
        part.decode_seconds = time.perf_counter() - part.started if part.started else 0.0
        if not all(one.has_ended for one in page.parts):
            return
        if page.judge() or not self._try_again(page):
            del self._pages[page.image.ref]
            self._ended.append(page.text(self._provenance))

    def _try_again(self, page: PageAttempts) -> bool:
        """Start the next attempt; False when there is none left."""
        pixels = page.next_images(self._encoder.spec.longest_edge_px)
        page.parts = [Decoding(self._tokenizer) for _ in pixels]
        if pixels and page.rung.keeps_image and page.prompt is not None:
            self._decode(page, page.parts[0], page.prompt)
        else:
            self._again.extend(
                ((page, part), replace(page.image, pixels=one)) for part, one in zip(page.parts, pixels, strict=True)
            )
        return bool(pixels)

    def _trace_step(self, began: float) -> None:
        rows = self._engine.last_step
        if rows.prompt or rows.decoded:
            name = "prefill and decode" if rows.prompt and rows.decoded else "prefill" if rows.prompt else "decode"
            self._trace.add(ENGINE, name, began, time.perf_counter(), prompt_rows=rows.prompt, decoded_rows=rows.decoded)

    def _encode(self, image: PageImage) -> NDArray[np.float32]:
        page = self._pages.get(image.ref)  # None once it is cancelled
        settings = page.settings if page else self._settings
        pixels = prepare(Image.fromarray(image.pixels), self._encoder.spec, settings.multiple_px)
        return self._encoder.encode(to_patches(pixels, self._encoder.spec))
