"""The run of a job: pages claimed in order, rendered, read, made durable, finished; outputs written as documents complete.

``Runner`` holds no state that a crash may lose: the ledger knows what is done, and a page is finished there only after its
record is on disk.  Pages that end close together are made durable together, since a disk takes few such commits a second.
Its parts come from outside, so that tests drive it with fakes and a clock of their own.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from pagemill.jobs.errors import DiskFull
from pagemill.jobs.inputs.discover import Document
from pagemill.jobs.ledger.ledger import Claim, Ledger, Outcome, Work
from pagemill.jobs.run.progress import Meter, Snapshot
from pagemill.pipeline import NO_TRACE, PageError, PageFailure, PageImage, PageRef, PageText, Replaced, Trace

WHOLE_DOCUMENT = "document"  # settings hash of the one failed page of a document that did not open
WAIT_FOR_IMAGE_SECONDS = 0.05
LOOK_AGAIN_SECONDS = 1.0
CLAIMED_AT_ONCE = 8
WRITER = "writer"
COMMIT_PAGES = 64
COMMIT_SECONDS = 0.5
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0

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

    def put(self, pages: Sequence[PageText]) -> None:
        """Make pages durable, all or none."""

    def pages(self, document_hash: str) -> set[int]:
        """The pages of a document that have a record."""


class Outputs(Protocol):
    """A document's texts in the output folder."""

    def settle(self, document: Document, work: Work) -> None:
        """Write what is missing or stale; all pages of the document are in the store."""


@dataclass(frozen=True, slots=True)
class Stages:
    """What a page passes through, in order.

    open_source: renders the pages that an iterator yields, taking them as it goes.  is_same: does a page's file still have
    the bytes whose hash the page goes by?
    """

    open_source: Callable[[Iterator[PageRef]], PageSource]
    reader: Reader
    store: Store
    outputs: Outputs
    trace: Trace = NO_TRACE
    is_same: Callable[[PageRef], bool] = lambda _: True


@dataclass(frozen=True, slots=True)
class Pause:
    """The disk is full: since when, and until when the run waits before it tries again.  why: for people."""

    why: str
    since: float
    until: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Rules:
    """How a run goes about its pages.

    retry: statuses of pages of earlier runs that are done again.  full_disk_wait_seconds: how long a full disk may stay
    full.  provenance: what every page record says of software, model and settings.
    """

    model_hash: str
    settings_hash: str
    attempts: int
    lease_seconds: float
    retry: tuple[str, ...]
    full_disk_wait_seconds: float
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
        self._ended: list[tuple[Claim, PageText]] = []  # held, and not yet durable
        self._again: list[tuple[Claim, str]] = []  # held, and to be given back for another attempt
        self._unsettled: dict[str, None] = {}  # documents of which pages were finished, in that order
        self._pause: Pause | None = None
        self._source: PageSource | None = None
        self._now = self._renew_at = self._claim_at = self._commit_at = 0.0
        self._meter = Meter(0, 0, 0.0)

    def start(self, now: float) -> None:
        """Queue what is missing, free what dead processes hold, write outputs that an earlier run could not."""
        works = [
            (work, document.found.source) for documents in self._documents.values() for work, document in self._works(documents)
        ]
        self._ledger.want([work for work, _ in works], [source for _, source in works])
        self._ledger.release_dead(now)
        if self._rules.retry:
            self._ledger.retry(self._rules.retry)
        self._ledger.reopen(list(self._without_record()))
        left = self._ledger.unfinished()
        self._meter = Meter(len(works), len(works) - left, now)
        self._settle_all()

    def step(self, now: float) -> bool:
        """One round: keep leases, take in pages, go on by a token each.  False when the job is done.

        While the disk is full it does nothing but try again; raises DiskFull when that has lasted too long.
        """
        self._now = now
        if self._pause is not None and now < self._pause.until:
            return True
        try:
            if self._pause is not None:
                self._resume()
            self._keep_leases()
            self._take_in()
            for text in self._stages.reader.step():
                self._end(text)
            if self._is_due():
                self._commit()
            if self._held or self._ledger.unfinished():
                return True
            self._settle_all()
        except DiskFull as error:
            self._wait(error)
            return True
        return False

    @property
    def waits_for_others(self) -> bool:
        """True when other processes hold all pages that are left."""
        return not self._held

    @property
    def is_unfinished(self) -> bool:
        """Are there pages of this run that are not done?"""
        return self._ledger.unfinished() > 0

    @property
    def pause(self) -> Pause | None:
        """Why nothing goes on at present; None when all goes on."""
        return self._pause

    def snapshot(self, now: float) -> Snapshot:
        """How far the run is."""
        ended = len(self._ended) + len(self._again)
        rendering = len(self._held) - len(self._reading) - ended
        return replace(self._meter.snapshot(now), rendering=rendering, reading=len(self._reading), writing=ended)

    def release(self, now: float) -> int:
        """Finish what has ended, give back the pages on their way; returns how many.  The same command goes on with them."""
        if self._source is not None:
            self._source.close()
        self._source = None
        with suppress(DiskFull):  # then they are given back too
            self._commit()
        for pages in (self._held, self._reading, self._claimed, self._ended, self._again):
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

    def _without_record(self) -> Iterator[Work]:
        """The work that is done by the ledger, and whose record has gone."""
        records: dict[str, set[int]] = {}
        for work in self._ledger.outcomes():
            if work.document_hash not in records:
                records[work.document_hash] = self._stages.store.pages(work.document_hash)
            if work.page not in records[work.document_hash]:
                yield work

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
            elif not self._stages.is_same(page.ref):
                self._fail(page.ref, Replaced("the file was changed or replaced during the run: run again to read it anew"))
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
            self._again.append((claim, str(error)))
            self._commit_at = self._now
        else:
            self._end(PageText(ref, "", "failed", str(error), provenance=self._rules.provenance))

    def _end(self, text: PageText) -> None:
        key = (text.ref.document_hash, text.ref.page)
        if not self._ended:
            self._commit_at = self._now + COMMIT_SECONDS
        self._ended.append((self._held[key], text))
        self._reading.discard(key)

    def _is_due(self) -> bool:
        """Time to make what has ended durable: enough of it, long enough ago, or nothing else to do."""
        waiting = len(self._ended) + len(self._again)
        return waiting > 0 and (waiting >= COMMIT_PAGES or self._now >= self._commit_at or waiting == len(self._held))

    def _commit(self) -> None:
        """Make ended pages durable, then finish them, then write the outputs of documents that are complete.

        Whatever raises leaves in place what is not done, for the next call.
        """
        if self._again:
            self._ledger.give_back(self._again, self._now)
            for claim, _ in self._again:
                del self._held[claim.work.document_hash, claim.work.page]
            self._again.clear()
            self._claim_at = self._now
        if self._ended:
            with self._stages.trace.span(WRITER, f"{len(self._ended)} pages"):
                self._stages.store.put([text for _, text in self._ended])  # durable before the ledger says so
                kept = self._ledger.finish([(claim, _outcome(claim, text)) for claim, text in self._ended], self._now)
            for (_, text), is_kept in zip(self._ended, kept, strict=True):
                self._count(text, is_kept)
            self._ended.clear()
        while self._unsettled:
            content_hash = next(iter(self._unsettled))
            self._settle(content_hash)
            del self._unsettled[content_hash]

    def _count(self, text: PageText, is_kept: bool) -> None:
        del self._held[text.ref.document_hash, text.ref.page]
        if not is_kept:
            _log.warning("page %d of %s: another process took it over", text.ref.page + 1, text.ref.document)
            return
        name = f"{text.ref.document.name}, page {text.ref.page + 1}: {text.status}"
        self._meter.count(name, failed=text.status == "failed", tokens=text.tokens, now=self._now)
        self._unsettled[text.ref.document_hash] = None

    def _resume(self) -> None:
        self._ledger.renew(self._now, self._rules.lease_seconds)
        self._commit()
        self._pause = None

    def _wait(self, error: DiskFull) -> None:
        """Try again after a while, each time later; give up after too long."""
        before = self._pause
        since = self._now if before is None else before.since
        if self._now - since >= self._rules.full_disk_wait_seconds:
            raise error
        seconds = FIRST_PAUSE_SECONDS if before is None else min(2 * before.seconds, LONGEST_PAUSE_SECONDS)
        self._pause = Pause(str(error), since, self._now + seconds, seconds)

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


def _outcome(claim: Claim, text: PageText) -> Outcome:
    tries = max(len(text.attempts), 1) + claim.retries
    return Outcome(text.status, text.reason, text.tokens, text.mean_log_prob, text.timings, tries, text.measures, text.attempts)
