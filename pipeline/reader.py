"""Reads many pages at once: encoder, prompt and engine behind one face.

``step`` encodes pages by the rule of ``overlap`` and goes on with all others by one token each.  Every page ends with a status
that says what happened to it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from decoder.batch import Event, Request
from decoder.engine import StepRows
from decoder.errors import ModelError
from decoder.sampler import Sampling
from decoder.tokenizer import Tokenizer
from pipeline.overlap import Encoded, open_encoding
from pipeline.page import PageImage, PageStatus, PageText, Picture
from pipeline.postprocess import to_markdown
from pipeline.quality import LoopDetector, measure_ink
from pipeline.trace import NO_TRACE, Trace
from vision.encoder import Encoder
from vision.errors import BadPixels
from vision.patches import MULTIPLE_PX, prepare, to_patches
from vision.segments import page_prompt

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
    """

    max_tokens: int = 4096
    sampling: Sampling = field(default_factory=Sampling)
    prompt_text: str = ""
    multiple_px: int = MULTIPLE_PX
    skip_blank: bool = True


@dataclass(slots=True, eq=False)
class _Page:
    """A page that is being decoded."""

    image: PageImage
    encode_seconds: float
    started: float
    loop: LoopDetector = field(default_factory=LoopDetector)
    tokens: list[int] = field(default_factory=list)
    log_prob: float = 0.0


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
        self._pages: dict[int, _Page] = {}
        self._ended: list[PageText] = []

    @property
    def free_slots(self) -> int:
        """How many more images it takes in before the next step."""
        return self._encoding.room(self._engine.free_slots)

    def submit(self, image: PageImage) -> None:
        """Take in one page, if there is ink on it."""
        if self._settings.skip_blank:
            ink = measure_ink(image.pixels)
            if ink.is_blank:
                reason = f"no ink on the page ({ink.mark_px} marked pixels)"
                if image.objects:
                    reason = f"suspect blank: the page draws {image.objects} objects, and {reason}"
                self._ended.append(self._text(image, "", "blank", reason, {"render": image.seconds}))
                return
        self._encoding.offer(image)

    def step(self) -> Sequence[PageText]:
        """Encode what there is a place for, and go on by one token a page; returns the pages that ended."""
        for encoded in self._encoding.take(self._engine.free_slots, idle=not self._pages):
            self._begin(encoded)
        began = self._clock()
        events = self._engine.step()
        self._trace_step(began)
        for event in events:
            page = self._pages.get(event.ticket)
            if page is not None:
                self._take(page, event)
        ended, self._ended = self._ended, []
        return ended

    def close(self) -> None:
        """Drop the pages that are on their way to the engine."""
        self._encoding.close()

    def _begin(self, encoded: Encoded) -> None:
        """Queue an encoded page at the engine, or end one that has no rows."""
        image, timings = encoded.image, {"render": encoded.image.seconds, "encode": encoded.seconds}
        name = f"{image.ref.document.name}, page {image.ref.page + 1}"
        self._trace.add(ENCODER, name, encoded.began, encoded.began + encoded.seconds)
        try:
            if isinstance(encoded.rows, Exception):
                raise encoded.rows
            prompt = page_prompt(self._tokenizer, encoded.rows, self._settings.prompt_text)
            stops = self._tokenizer.eos_ids
            ticket = self._engine.add(Request(prompt, self._settings.max_tokens, self._settings.sampling, stops))
        except (ModelError, BadPixels) as error:
            self._ended.append(self._text(image, "", "failed", str(error), timings))
        except Exception as error:  # one page must not end the run; the log has the trace
            _log.exception("%s", name)
            reason = f"internal error, please report it: {type(error).__name__}: {error}"
            self._ended.append(self._text(image, "", "failed", reason, timings))
        else:
            self._pages[ticket] = _Page(image, encoded.seconds, self._clock())

    def _trace_step(self, began: float) -> None:
        rows = self._engine.last_step
        if rows.prompt or rows.decoded:
            name = "prefill and decode" if rows.prompt and rows.decoded else "prefill" if rows.prompt else "decode"
            self._trace.add(ENGINE, name, began, self._clock(), prompt_rows=rows.prompt, decoded_rows=rows.decoded)

    def _encode(self, image: PageImage) -> NDArray[np.float32]:
        pixels = prepare(Image.fromarray(image.pixels), self._encoder.spec, self._settings.multiple_px)
        return self._encoder.encode(to_patches(pixels, self._encoder.spec))

    def _take(self, page: _Page, event: Event) -> None:
        if event.finish == "broken":
            self._end(event.ticket, "failed", "the model's logits are not numbers: the weights may be damaged")
            return
        page.log_prob += event.log_prob
        if event.finish != "stop":
            page.tokens.append(event.token)
        if page.loop.push(event.token):
            self._engine.cancel(event.ticket)
            self._end(event.ticket, "looped", f"the last {page.loop.period_tokens} tokens repeat")
        elif event.finish == "stop":
            self._end(event.ticket, "ok", "")
        elif event.finish is not None:
            limit = "max_tokens" if event.finish == "length" else "the context"
            loops = ", and its end repeats" if page.loop.ends_in_loop else ""
            self._end(event.ticket, "truncated", f"{limit} was reached after {len(page.tokens)} tokens{loops}")

    def _end(self, ticket: int, status: PageStatus, reason: str) -> None:
        page = self._pages.pop(ticket)
        text = "" if status == "failed" else to_markdown(self._tokenizer.decode(page.tokens))
        if status == "ok" and not text.strip():
            status, reason = "blank", "the model found no text"
        timings = {
            "render": page.image.seconds,
            "encode": page.encode_seconds,
            "decode": self._clock() - page.started,
        }
        tokens = len(page.tokens) + (status in ("ok", "blank"))  # the end token was decoded too
        mean = page.log_prob / tokens if tokens else None
        self._ended.append(self._text(page.image, text, status, reason, timings, tokens, mean))

    def _text(
        self,
        image: PageImage,
        text: str,
        status: PageStatus,
        reason: str,
        timings: Mapping[str, float],
        tokens: int = 0,
        mean_log_prob: float | None = None,
    ) -> PageText:
        provenance = {**self._provenance, "image_hash": image.image_hash}
        if image.mended:
            provenance["original"] = image.mended
        height, width = image.pixels.shape[:2]
        picture = Picture(width, height, image.source_dpi)
        return PageText(image.ref, text, status, reason, tokens, mean_log_prob, timings, provenance, picture=picture)
