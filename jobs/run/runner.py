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
from pagemill.jobs.ledger.ledger import Claim, Ledger, Outcome
from pagemill.jobs.run.progress import Meter, Snapshot
from pagemill.pipeline import NO_TRACE, PageError, PageFailure, PageRef, PageText, RenderRequest, Trace, WaitingStage

WAIT_FOR_IMAGE_SECONDS = 0.05
LOOK_AGAIN_SECONDS = 1.0
CLAIMED_AT_ONCE = 8  # few: pages of a dead process wait for its lease
WRITER = "writer"
COMMIT_PAGES = 64  # a commit is an fsync: slow disks take a few dozen a second
COMMIT_SECONDS = 0.5  # what a kill may cost
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0

_log = logging.getLogger("pagemill")


class Pages(WaitingStage[RenderRequest, PageText | PageFailure, PageRef], Protocol):
    """``pipeline.Transcriber``, or what stands for it."""

    @property
    def reading(self) -> int:
        """How many pages are past rendering."""

    @property
    def rendering(self) -> int:
        """How many pages are not."""


class Store(Protocol):
    """Durable records of finished pages."""

    def put(self, pages: Sequence[PageText]) -> None:
        """Make pages durable, all or none."""

    def pages(self, document_hash: str) -> set[int]:
        """The pages of a document that have a record."""


class Outputs(Protocol):
    """A document's texts in the output folder."""

    def settle(self, document: Document) -> None:
        """Write what is missing or stale; all pages of the document are in the store."""


@dataclass(frozen=True, slots=True)
class Stages:
    """What a page passes through, in order.

    request: what is asked of ``pages`` for a page of a document, which is fetched where it lies elsewhere; may raise PageError.
    """

    request: Callable[[Document, PageRef], RenderRequest]
    pages: Pages
    store: Store
    outputs: Outputs
    trace: Trace = NO_TRACE


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
        self._held: dict[PageRef, Claim] = {}
        self._claimed: deque[Claim] = deque()  # held, and not yet submitted
        self._ended: list[tuple[Claim, PageText]] = []  # held, and not yet durable
        self._again: list[tuple[Claim, str]] = []  # held, and to be given back for another attempt
        self._unsettled: dict[str, None] = {}  # documents of which pages were finished, in that order
        self._pause: Pause | None = None
        self._now = self._renew_at = self._claim_at = self._commit_at = 0.0
        self._meter = Meter(0, 0, 0.0)

    def start(self, now: float) -> None:
        """Queue what is missing, free what dead processes hold, write outputs that an earlier run could not."""
        firsts = [documents[0] for documents in self._documents.values()]  # the others of each have the same bytes
        refs = [(ref, document.found.source) for document in firsts for ref in document.refs]
        self._ledger.want([ref for ref, _ in refs], [source for _, source in refs])
        self._ledger.release_dead(now)
        if self._rules.retry:
            self._ledger.retry(self._rules.retry)
        self._ledger.reopen(list(self._without_record()))
        left = self._ledger.unfinished()
        self._meter = Meter(len(refs), len(refs) - left, now)
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
            if not self._ended:
                self._stages.pages.wait(WAIT_FOR_IMAGE_SECONDS)
            for ended in self._stages.pages.step():
                self._fail(ended.ref, ended.error) if isinstance(ended, PageFailure) else self._end(ended)
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
        pages, ended = self._stages.pages, len(self._ended) + len(self._again)
        rendering = pages.rendering + len(self._claimed)
        return replace(self._meter.snapshot(now), rendering=rendering, reading=pages.reading, writing=ended)

    def release(self, now: float) -> int:
        """Finish what has ended, give back the pages on their way; returns how many.  The same command goes on with them."""
        for ref in self._held:
            self._stages.pages.cancel(ref)
        with suppress(DiskFull):  # then they are given back too
            self._commit()
        for pages in (self._held, self._claimed, self._ended, self._again):
            pages.clear()
        return self._ledger.release(now)

    def outcomes(self) -> dict[PageRef, Outcome]:
        """How the job's pages ended, in order, those of earlier runs included."""
        return self._ledger.outcomes()

    def _without_record(self) -> Iterator[PageRef]:
        """The pages that are done by the ledger, and whose record has gone."""
        records: dict[str, set[int]] = {}
        for ref in self._ledger.outcomes():
            if ref.document_hash not in records:
                records[ref.document_hash] = self._stages.store.pages(ref.document_hash)
            if ref.page not in records[ref.document_hash]:
                yield ref

    def _keep_leases(self) -> None:
        if self._held and self._now >= self._renew_at:
            self._ledger.renew(self._now, self._rules.lease_seconds)
            self._renew_at = self._now + self._rules.lease_seconds / 3  # two renewals may fail before a lease ends

    def _take_in(self) -> None:
        """Submit claimed pages while there is room; fail those whose document cannot be had."""
        while self._stages.pages.room and (claim := self._next_claim()) is not None:
            document = self._documents[claim.ref.document_hash][0]
            try:
                if document.error is not None:
                    raise document.error
                self._stages.pages.submit(self._stages.request(document, claim.ref))
            except PageError as error:
                self._fail(claim.ref, error)

    def _next_claim(self) -> Claim | None:
        """The next page that is ours; None when none is free at present."""
        if not self._claimed and self._now >= self._claim_at:
            self._claimed.extend(self._ledger.claim(self._now, CLAIMED_AT_ONCE, self._rules.lease_seconds))
            self._held |= {claim.ref: claim for claim in self._claimed}
            if not self._claimed:
                self._claim_at = self._now + LOOK_AGAIN_SECONDS
        return self._claimed.popleft() if self._claimed else None

    def _fail(self, ref: PageRef, error: PageError) -> None:
        claim = self._held[ref]
        if error.retry and claim.retries + 1 < self._rules.attempts:
            self._again.append((claim, str(error)))
            self._commit_at = self._now
        else:
            self._end(PageText(ref, "", "failed", str(error), provenance=self._rules.provenance))

    def _end(self, text: PageText) -> None:
        if not self._ended:
            self._commit_at = self._now + COMMIT_SECONDS
        self._ended.append((self._held[text.ref], text))

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
                del self._held[claim.ref]
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
        del self._held[text.ref]
        if not is_kept:
            _log.warning("%s: another process took it over", text.ref)
            return
        self._meter.count(f"{text.ref}: {text.status}", failed=text.status == "failed", tokens=text.tokens, now=self._now)
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
        if self._ledger.is_complete(content_hash):
            for document in self._documents[content_hash]:
                with self._stages.trace.span(WRITER, f"outputs of {document.found.path.name}"):
                    self._stages.outputs.settle(document)


def _outcome(claim: Claim, text: PageText) -> Outcome:
    tries = max(len(text.attempts), 1) + claim.retries
    return Outcome(text.status, text.reason, text.tokens, text.mean_log_prob, text.timings, tries, text.measures, text.attempts)
