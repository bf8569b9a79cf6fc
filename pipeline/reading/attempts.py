"""One page's way through its attempts: what was read of it, what is being read, and what can still be tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from pagemill.decoder import Prompt, Sampling
from pagemill.pipeline.page import PageImage, PageStatus, PageText, Picture
from pagemill.pipeline.reading.reading import Decoding, Reading, joined
from pagemill.pipeline.reading.recovery import FIRST, TURNS, Rung, images, ramp
from pagemill.pipeline.reading.settings import ReadSettings


@dataclass(slots=True, eq=False)
class PageAttempts:
    """A page that is being read.

    upright: its pixels, turned by ``turn`` degrees to where they read best.  prompt: of the upright image, to read it again
    as it is.  parts: what is being decoded at present.
    """

    image: PageImage
    settings: ReadSettings
    measures: Mapping[str, float]
    upright: NDArray[np.uint8]
    turn: int = 0
    rung: Rung = FIRST
    parts: list[Decoding] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    prompt: Prompt | None = None
    _rungs: Iterator[Rung] = field(default_factory=lambda: iter(()))

    @property
    def best(self) -> int:
        """Which of the readings is kept: by rank, then the earlier one."""
        return min(range(len(self.readings)), key=lambda index: self.readings[index].rank)

    @property
    def sampling(self) -> Sampling:
        """As this attempt samples: a further one draws anew."""
        sampling, again = self.settings.sampling, len(self.readings)
        if self.rung.temperature is not None:
            sampling = replace(sampling, temperature=self.rung.temperature)
        return replace(sampling, seed=sampling.seed + again) if again else sampling  # the same page, the same draws

    def judge(self) -> bool:
        """Take note of the attempt whose parts have all ended.  True when the page needs no other."""
        recovery = self.settings.recovery
        self.readings.append(joined(self.parts, self.rung, self.rung.turn or self.turn, recovery.low_confidence))
        self.parts = []
        if len(self.readings) == 1 and self.readings[0].trouble in recovery.retry_on:
            self._rungs = chain(TURNS if recovery.turns else (), ramp(recovery))
        turning = self.rung in TURNS[:-1]  # a page may be read upside down, too, and sound sure: all turns are compared
        return self.readings[self.best].attempt.status == "ok" and not turning

    def next_images(self, longest_edge_px: int) -> list[NDArray[np.uint8]]:
        """What the next attempt that the page allows reads, in reading order; empty when none is left."""
        for rung in self._rungs:
            if not rung.turn and self.rung.turn:
                self._settle_turn(longest_edge_px)
            self.rung = rung
            parts = images(self.image.pixels if rung.turn else self.upright, rung, longest_edge_px)
            if parts:
                return parts
        return []

    def text(self, provenance: Mapping[str, str]) -> PageText:
        """The page's record, by its best reading."""
        chosen, count = self.best, len(self.readings)
        reading = self.readings[chosen]
        attempt = reading.attempt
        timings = {
            "encode": sum(one.encode_seconds for one in self.readings),
            "decode": sum(one.decode_seconds for one in self.readings),
        }
        record = page_record(self.image, attempt.status, provenance, attempt.turn)
        return replace(
            record,
            text=reading.text,
            reason=f"{attempt.reason} ({count} attempts)" if attempt.reason and count > 1 else attempt.reason,
            tokens=attempt.tokens,
            mean_log_prob=attempt.mean_log_prob,
            timings={**record.timings, **timings},
            attempts=tuple(one.attempt for one in self.readings),
            chosen=chosen,
            word_confidences=reading.word_confidences,
            measures=self.measures,
        )

    def _settle_turn(self, longest_edge_px: int) -> None:
        """After the turns: go on with the one that read best."""
        self.turn = self.readings[self.best].attempt.turn
        self.upright = images(self.image.pixels, Rung(turn=self.turn), longest_edge_px)[0]
        self.prompt = None


def page_record(image: PageImage, status: PageStatus, provenance: Mapping[str, str], turn: int = 0) -> PageText:
    """A page's record without what was read.  turn: degrees that the page was turned by."""
    known = {**provenance, "image_hash": image.image_hash} | ({"original": image.mended} if image.mended else {})
    height, width = image.pixels.shape[:2] if turn % 180 == 0 else image.pixels.shape[1::-1]
    picture = Picture(width, height, image.source_dpi)
    return PageText(image.ref, "", status, timings={"render": image.seconds}, provenance=known, picture=picture)
