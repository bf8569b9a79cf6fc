"""The run of a job: pages claimed in order, rendered, read, made durable, finished; outputs written as documents complete.

``Runner`` holds no state that a crash may lose: the ledger knows what is done, and a page is finished there only after its
record is on disk.  Its parts come from outside, so that tests drive it with fakes and a clock of their own.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from jobs.discover import Document
from jobs.ledger import Claim, Ledger, Outcome, Work
from pipeline.errors import PageError
from pipeline.page import PageFailure, PageImage, PageRef, PageText
from pipeline.progress import Meter, Snapshot
from pipeline.trace import NO_TRACE, Trace

WHOLE_DOCUMENT = "document"  # settings hash of the one failed page of a document that did not open
WAIT_FOR_IMAGE_SECONDS = 0.05
LOOK_AGAIN_SECONDS = 1.0
CLAIMED_AT_ONCE = 8
WRITER = "writer"

_log = logging.getLogger("pagemill")

PageKey = tuple[str, int]  # document hash, page


class PageSource(Protocol):
    """Page images of the references it was opened with, in their order, some rendered ahead."""

    @property
    def done(self) -> bool:
        """Has every page been handed over?"""

    def poll(self, timeout: float | None = 0.0) -> PageImage | PageFailure | None:
        """The next page; None when it is not ready in time (seconds), or when done."""

    def close(self) -> None:
        """Stop rendering."""


class Reader(Protocol):
    """Reads many page images at once."""

    @property
    def free_slots(self) -> int:
        """How many more images it takes in."""

    def submit(self, image: PageImage) -> None:
        """Take in one image.  Raises PageError."""

    def step(self) -> Sequence[PageText]:
        """Go on by one token a page; returns the pages that ended."""


class Store(Protocol):
    """Durable records of finished pages."""

    def put(self, page: PageText) -> None:
        """Make a page durable."""

    def get(self, ref: PageRef) -> PageText | None:
        """The page, None where no whole record lies."""


class Outputs(Protocol):
    """A document's texts in the output folder."""

    def settle(self, document: Document, work: Work) -> None:
        """Write what is missing or stale; all pages of the document are in the store."""


@dataclass(frozen=True, slots=True)
class Stages:
    """What a page passes through, in order.  open_source: renders the pages that an iterator yields, taking them as it goes."""

    open_source: Callable[[Iterator[PageRef]], PageSource]
    reader: Reader
    store: Store
    outputs: Outputs
    trace: Trace = NO_TRACE


@dataclass(frozen=True, slots=True)
class Rules:
    """How a run goes about its pages.  provenance: what every page record says of software, model and settings."""

    model_hash: str
    settings_hash: str
    attempts: int
    lease_seconds: float
    retry_failed: bool
    provenance: Mapping[str, str]


class Runner:
    """``start``, then ``step`` until it is False; ``release`` at any moment in between leaves the job resumable."""

    def __init__(self, documents: Sequence[Document], ledger: Ledger, stages: Stages, rules: Rules) -> None:
        self._documents: dict[str, list[Document]] = {}
        for document in documents:
            self._documents.setdefault(document.content_hash, []).append(document)
        self._ledger, self._stages, self._rules = ledger, stages, rules
        self._held: dict[PageKey, Claim] = {}
        self._reading: set[PageKey] = set()  # those of the held pages that the reader has
        self._claimed: deque[PageRef] = deque()  # held, and not yet taken by the source
        self._source: PageSource | None = None
        self._now = self._renew_at = self._claim_at = 0.0
        self._meter = Meter(0, 0, 0.0)

    def start(self, now: float) -> None:
        """Queue what is missing, free what dead processes hold, write outputs that an earlier run could not."""
        works = [
            (work, document.found.source) for documents in self._documents.values() for work, document in self._works(documents)
        ]
        self._ledger.want([work for work, _ in works], [source for _, source in works])
        self._ledger.release_dead(now)
        if self._rules.retry_failed:
            self._ledger.retry_failed()
        done = self._ledger.outcomes()
        self._ledger.reopen([work for work in done if self._stages.store.get(self._ref(work)) is None])
        left = self._ledger.unfinished()
        self._meter = Meter(len(works), len(works) - left, now)
        self._settle_all()

    def step(self, now: float) -> bool:
        """One round: keep leases, take in pages, go on by a token each.  False when the job is done."""
        self._now = now
        self._keep_leases()
        self._take_in()
        for text in self._stages.reader.step():
            self._finish(text)
        if self._held or self._ledger.unfinished():
            return True
        self._settle_all()
        return False

    @property
    def waits_for_others(self) -> bool:
        """True when other processes hold all pages that are left."""
        return not self._held

    def snapshot(self, now: float) -> Snapshot:
        """How far the run is."""
        return self._meter.snapshot(now)

    def release(self, now: float) -> int:
        """Give back the pages that are on their way; returns how many.  The same command goes on with them."""
        if self._source is not None:
            self._source.close()
        self._source = None
        for pages in (self._held, self._reading, self._claimed):
            pages.clear()
        return self._ledger.release(now)

    def outcomes(self) -> dict[Work, Outcome]:
        """How the job's pages ended, in order, those of earlier runs included."""
        return self._ledger.outcomes()

    def _works(self, documents: Sequence[Document]) -> list[tuple[Work, Document]]:
        document = documents[0]  # the others have the same bytes
        return [(self._work(document, page), document) for page in range(document.pages)]

    def _work(self, document: Document, page: int) -> Work:
        settings = self._rules.settings_hash if document.error is None else WHOLE_DOCUMENT
        return Work(document.content_hash, page, self._rules.model_hash, settings)

    def _ref(self, work: Work) -> PageRef:
        return PageRef(self._documents[work.document_hash][0].found.path, work.document_hash, work.page)

    def _keep_leases(self) -> None:
        if self._held and self._now >= self._renew_at:
            self._ledger.renew(self._now, self._rules.lease_seconds)
            self._renew_at = self._now + self._rules.lease_seconds / 3

    def _take_in(self) -> None:
        """Give the reader images while it has slots; fail the pages that have none."""
        reader = self._stages.reader
        while reader.free_slots > 0 and (source := self._open_source()) is not None:
            page = source.poll(0.0 if self._reading else WAIT_FOR_IMAGE_SECONDS)
            if page is None:
                return
            if isinstance(page, PageFailure):
                self._fail(page.ref, page.error)
            else:
                self._read(page)

    def _open_source(self) -> PageSource | None:
        """The source while it has pages, another one when more can be claimed after its end, else None."""
        if self._source is not None:
            if not self._source.done:
                return self._source
            self._source.close()
            self._source = None
        self._claim()
        if self._claimed:
            self._source = self._stages.open_source(self._take_claimed())
        return self._source

    def _take_claimed(self) -> Iterator[PageRef]:
        """References for the source, which takes one when it is about to render it."""
        while self._claimed:
            yield self._claimed.popleft()
            if not self._claimed:
                self._claim()

    def _claim(self) -> None:
        """Claim until there is a page to render or none is free at present."""
        while not self._claimed and self._now >= self._claim_at:
            claims = self._ledger.claim(self._now, CLAIMED_AT_ONCE, self._rules.lease_seconds)
            if not claims:
                self._claim_at = self._now + LOOK_AGAIN_SECONDS
            for claim in claims:
                ref = self._ref(claim.work)
                self._held[ref.document_hash, ref.page] = claim
                error = self._documents[ref.document_hash][0].error
                if error is None:
                    self._claimed.append(ref)
                else:
                    self._fail(ref, error)

    def _read(self, image: PageImage) -> None:
        try:
            self._stages.reader.submit(image)
            self._reading.add((image.ref.document_hash, image.ref.page))
        except PageError as error:
            self._fail(image.ref, error)
        except Exception as error:  # one page must not end the run; the log has the trace
            _log.exception("page %d of %s", image.ref.page + 1, image.ref.document)
            self._fail(image.ref, PageError(f"internal error, please report it: {type(error).__name__}: {error}"))

    def _fail(self, ref: PageRef, error: PageError) -> None:
        claim = self._held[ref.document_hash, ref.page]
        if error.retry and claim.retries + 1 < self._rules.attempts:
            self._ledger.retry(claim, str(error), self._now)
            del self._held[ref.document_hash, ref.page]
            self._claim_at = self._now
        else:
            self._finish(PageText(ref, "", "failed", str(error), provenance=self._rules.provenance))

    def _finish(self, text: PageText) -> None:
        key = (text.ref.document_hash, text.ref.page)
        claim = self._held.pop(key)
        self._reading.discard(key)
        name = f"{text.ref.document.name}, page {text.ref.page + 1}"
        with self._stages.trace.span(WRITER, name):
            self._stages.store.put(text)  # durable before the ledger says so
            outcome = Outcome(text.status, text.reason, text.tokens, text.mean_log_prob, text.timings)
            is_mine = self._ledger.finish(claim, outcome, self._now)
        if not is_mine:
            _log.warning("page %d of %s: another process took it over", text.ref.page + 1, text.ref.document)
            return
        self._meter.count(f"{name}: {text.status}", failed=text.status == "failed", tokens=text.tokens, now=self._now)
        self._settle(text.ref.document_hash)

    def _settle_all(self) -> None:
        for content_hash in self._documents:
            self._settle(content_hash)

    def _settle(self, content_hash: str) -> None:
        """Write the outputs of a document, under each of its names, once all its pages are done."""
        documents = self._documents[content_hash]
        work = self._work(documents[0], 0)
        if self._ledger.is_complete(work):
            for document in documents:
                with self._stages.trace.span(WRITER, f"outputs of {document.found.path.name}"):
                    self._stages.outputs.settle(document, work)
