"""Keeps what the encoder saw of large pages for a few steps, so that the decoder reads each page more than once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random

from samples.model.train.batches import Batch
from samples.model.train.crew import Report

AGAIN_AFTER = (6, 13)  # steps; soon enough that the encoder has not changed much
NEW_SEED = 0x5DEECE66D


class Shelf:
    """Batches by the step that they come up again in; empty after a resume."""

    def __init__(self) -> None:
        self._due: dict[int, list[Batch]] = {}

    def put(self, step: int, batches: Iterable[Batch], reports: Iterable[Report]) -> None:
        """Keep the frozen batches that a step has just seen for the first time."""
        seen = {report.seed: report.seen for report in reports if report.seen is not None}
        for batch in batches:
            for wait in AGAIN_AFTER if batch.seed in seen else ():
                seed = Random(batch.seed ^ (NEW_SEED * wait)).getrandbits(62)
                self._due.setdefault(step + wait, []).append(replace(batch, seen=seen[batch.seed], seed=seed))

    def take(self, step: int) -> list[Batch]:
        """What comes up again in a step."""
        return self._due.pop(step, [])
