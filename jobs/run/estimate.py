"""What a job would take: a few of its pages read in earnest, nothing written."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pagemill.jobs.inputs.discover import Document
from pagemill.jobs.ledger.store import record_bytes
from pagemill.jobs.run.job import Inputs, OpenReader, source_opener
from pagemill.jobs.run.spec import JobSpec
from pagemill.pipeline import PageError, PageFailure, PageRef, PageText

WAIT_SECONDS = 0.05
#: How much a format takes beside the page's plain text, about: words with places take a line of markup each.
TEXT_TIMES = {
    "text": 1.0,
    "markdown": 1.0,
    "html": 1.3,
    "jsonl": 3.0,
    "dolma": 1.3,
    "hocr": 8.0,
    "alto": 12.0,
    "page_xml": 15.0,
}


@dataclass(frozen=True, slots=True)
class Measured:
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
        return (self.record_bytes + self.text_bytes * sum(TEXT_TIMES.get(name, 0.0) for name in formats)) / self.pages


def spread(documents: Sequence[Document], count: int) -> list[PageRef]:
    """So many pages, evenly from all that can be read."""
    pages = [(document, page) for document in documents if document.error is None for page in range(document.pages)]
    chosen = sorted({len(pages) * (2 * index + 1) // (2 * count) for index in range(min(count, len(pages)))})
    return [PageRef(pages[i][0].found.path, pages[i][0].content_hash, pages[i][1]) for i in chosen]


def measure(job: JobSpec, opened: OpenReader, inputs: Inputs, refs: Sequence[PageRef]) -> Measured:
    """Read the pages.  The first one comes before, since it warms up what is slow once."""
    if len(refs) > 1:
        list(_read(job, opened, inputs, refs[:1]))
        refs = refs[1:]
    started = time.perf_counter()
    ended = list(_read(job, opened, inputs, refs))
    texts = [text for text in ended if text is not None]
    return Measured(
        len(refs),
        len(ended) - len(texts),
        time.perf_counter() - started,
        sum(map(record_bytes, texts)),
        sum(len(text.text.encode("utf-8", "replace")) for text in texts),
    )


def _read(job: JobSpec, opened: OpenReader, inputs: Inputs, refs: Sequence[PageRef]) -> Iterator[PageText | None]:
    """The pages as they end, None for one without an image."""
    source = source_opener(job, opened, inputs)(iter(refs))
    reader, reading, left = opened.reader, 0, len(refs)
    try:
        while left:
            while reader.free_slots > 0 and not source.done:
                page = source.poll(0.0 if reading else WAIT_SECONDS)
                if page is None:
                    break
                try:
                    if isinstance(page, PageFailure):
                        raise page.error
                    reader.submit(page)
                    reading += 1
                except PageError:
                    left -= 1
                    yield None
            for text in reader.step():
                reading, left = reading - 1, left - 1
                yield text
    finally:
        source.close()
