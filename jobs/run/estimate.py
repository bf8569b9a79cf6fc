"""What a job would take: a few of its pages read in earnest, nothing written."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from pagemill.jobs.inputs.discover import Document
from pagemill.jobs.ledger.store import record_bytes
from pagemill.jobs.run.job import Inputs, OpenReader, open_transcriber, page_requests
from pagemill.jobs.run.spec import JobSpec
from pagemill.pipeline import SINKS, PageError, PageFailure, PageRef, PageText, RenderRequest, Transcriber

WAIT_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Estimate:
    """A few pages, read together.  failed: those that could not be rendered."""

    pages: int
    failed: int
    seconds: float
    record_bytes: int
    text_bytes: int

    def page_bytes(self, formats: Sequence[str]) -> float:
        """What a page takes on the disk: its record, and its share of the outputs.  Copies of originals not included."""
        if not self.pages:
            return 0.0
        return (self.record_bytes + self.text_bytes * sum(SINKS[name].text_times for name in formats)) / self.pages


def spread(documents: Sequence[Document], count: int) -> list[tuple[Document, PageRef]]:
    """So many pages, evenly from all that can be read."""
    pages = [(document, ref) for document in documents if document.error is None for ref in document.refs]
    chosen = sorted({len(pages) * (2 * index + 1) // (2 * count) for index in range(min(count, len(pages)))})
    return [pages[i] for i in chosen]


def measure(job: JobSpec, opened: OpenReader, inputs: Inputs, pages: Sequence[tuple[Document, PageRef]]) -> Estimate:
    """Read the pages.  The first one comes before, since it warms up what is slow once."""
    request = page_requests(job, opened, inputs)
    with ExitStack() as stack:
        stage = open_transcriber(stack, job, opened, inputs)
        if len(pages) > 1:
            _read(stage, request, pages[:1])
            pages = pages[1:]
        started = time.perf_counter()
        ended = _read(stage, request, pages)
    texts = [text for text in ended if isinstance(text, PageText)]
    return Estimate(
        len(pages),
        len(pages) - len(texts),
        time.perf_counter() - started,
        sum(map(record_bytes, texts)),
        sum(len(text.text.encode("utf-8", "replace")) for text in texts),
    )


def _read(
    stage: Transcriber, request: Callable[[Document, PageRef], RenderRequest], pages: Sequence[tuple[Document, PageRef]]
) -> list[PageText | PageFailure]:
    """The pages, and those that could not be rendered; one whose document cannot be fetched is left out."""
    waiting, ended, under_way = deque(pages), [], 0
    while waiting or under_way:
        while waiting and stage.room:
            with suppress(PageError):
                stage.submit(request(*waiting.popleft()))
                under_way += 1
        stage.wait(WAIT_SECONDS)
        out = stage.step()
        under_way -= len(out)
        ended += out
    return ended
