"""One job from its settings to its end: its parts opened, driven, and reported on.

``run_job`` is what ``pagemill run`` does; tests give it another reader.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from pagemill import __version__
from pagemill.jobs.errors import DiskFull
from pagemill.jobs.inputs.discover import Document, Found, find_files, open_documents
from pagemill.jobs.inputs.input_cache import InputCache
from pagemill.jobs.inputs.originals import Originals
from pagemill.jobs.inputs.passwords import Passwords, password_for
from pagemill.jobs.ledger.ledger import Ledger, Outcome
from pagemill.jobs.ledger.owner import this_process
from pagemill.jobs.ledger.records import StoredPages
from pagemill.jobs.run.copies import OutputCopies, copies_of
from pagemill.jobs.run.outputs import DocumentOutputs
from pagemill.jobs.run.progress import Progress
from pagemill.jobs.run.runner import Pause, Rules, Runner, Stages
from pagemill.jobs.run.spec import JobSpec
from pagemill.jobs.run.stopping import Stopper
from pagemill.pipeline import (
    NO_TRACE,
    Inspector,
    PageError,
    PageRef,
    Producer,
    ReadingStage,
    RenderRequest,
    RenderSettings,
    Trace,
    Transcriber,
)

SHOW_SECONDS = 0.25
PAUSE_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class OpenReader:
    """A reader, the largest page that its model takes, and what takes note of the time."""

    reader: ReadingStage
    longest_edge_px: int
    trace: Trace = NO_TRACE


# A page of an input: its document, the page, how it ended; None when it is not done.
PageEnd = tuple[Document, PageRef, Outcome | None]

ReaderOpener = Callable[[JobSpec, Mapping[str, str]], AbstractContextManager[OpenReader]]


@dataclass(frozen=True, slots=True)
class Report:
    """How a job ended.  pages: every page of every input, in order.

    signal: what interrupted it, None when it went to its end.
    """

    pages: tuple[PageEnd, ...]
    new_pages: int
    seconds: float
    signal: int | None

    @property
    def counts(self) -> Counter[str]:
        """How many pages have each final status; "left" for those not done."""
        return Counter(outcome.final_status if outcome else "left" for _, _, outcome in self.pages)

    @property
    def troubled(self) -> list[tuple[Document, PageRef, Outcome]]:
        """Pages that ended other than ok."""
        return [(document, page, outcome) for document, page, outcome in self.pages if outcome and outcome.status != "ok"]


def run_job(job: JobSpec, open_reader: ReaderOpener, progress: Progress, *, files: Sequence[Found] | None = None) -> Report:
    """Does what is missing.  Raises JobError, ModelError; what is done by then stays done.

    files: what to read where the caller has found it already; None looks into the job's inputs.
    """
    started = time.monotonic()
    with ExitStack() as stack:
        stack.callback(progress.close)
        stopper = stack.enter_context(Stopper())
        copies = copies_of(job)
        inputs = find_inputs(stack, job, files)
        ledger = Ledger(job.folder.ledger, this_process())
        stack.callback(ledger.close)
        ledger.begin(job.model_hash, job.settings_hash, job.settings_text, time.time())
        documents = inspect_inputs(job, inputs)
        runner = _build(stack, job, documents, ledger, open_reader, inputs)
        runner.start(time.time())
        try:
            _drive(runner, progress, stopper, copies)
        finally:
            _let_go(runner, ledger, stopper)
        if copies is not None and stopper.signal is None:
            copies.copy()
        outcomes = runner.outcomes()
        return Report(
            tuple(_pages(documents, outcomes)), runner.snapshot(time.time()).done, time.monotonic() - started, stopper.signal
        )


def provenance_of(job: JobSpec) -> dict[str, str]:
    """The provenance of every page's text: software, model, settings, numeric classes."""
    known = {"software": f"pagemill {__version__}", "model": job.model_hash, "settings": job.settings_hash}
    return known | ({"encoder": job.resolved.encoder, "decoder": job.resolved.decoder} if job.resolved else {})


@dataclass(frozen=True, slots=True)
class Inputs:
    """A job's files, and what is needed to open them."""

    files: Sequence[Found]
    cache: InputCache
    passwords: Passwords
    originals: Originals

    def open_original(self, path: Path) -> str | None:
        """Brings a document's file here if it lies elsewhere; returns its password.  Raises PageError."""
        self.cache.ensure(path)
        return self.passwords(path)

    def check(self, request: RenderRequest) -> None:
        """Raises PageError where a page's file is no longer what it was."""
        if isinstance(request.content, Path):
            self.originals.check(request.content, request.ref.document_hash)


def find_inputs(stack: ExitStack, job: JobSpec, files: Sequence[Found] | None = None) -> Inputs:
    """The files that a job names.  stack: ends what is opened.  files: where they are known.  Raises InputError."""
    section = job.config.input
    cache = stack.enter_context(InputCache(job.folder.inputs, section.cache_bytes, kept=job.config.render.ahead + 1))
    if files is None:
        files = find_files(job.inputs, cache, lambda label, place: password_for(section, label, place))
    originals = Originals(file.path for file in files if file.origin is None)
    return Inputs(files, cache, Passwords(section, files), originals)


def inspect_inputs(job: JobSpec, inputs: Inputs) -> list[Document]:
    """Each file hashed and its pages counted."""
    render = job.config.render
    with Inspector(timeout_seconds=render.timeout_seconds, memory_bytes=render.memory_bytes) as inspector:
        count_pages = _page_counter(inspector, job, inputs.passwords)
        return list(open_documents(inputs.files, count_pages, job.config.input.max_pages, inputs.cache.ensure))


def _build(
    stack: ExitStack, job: JobSpec, documents: list[Document], ledger: Ledger, open_reader: ReaderOpener, inputs: Inputs
) -> Runner:
    provenance = provenance_of(job)
    opened = stack.enter_context(open_reader(job, provenance))
    store = StoredPages(job.folder.pages(job.model_hash, job.settings_hash))
    stack.callback(store.close)
    outputs = DocumentOutputs(job.output, job.config.output.formats, ledger, store, job.config.output.per, inputs.open_original)
    outputs.name_documents(documents)
    run = job.config.run
    rules = Rules(
        job.model_hash,
        job.settings_hash,
        attempts=run.attempts,
        lease_seconds=run.lease_seconds,
        retry=run.retry_statuses if run.retry_failed else (),
        full_disk_wait_seconds=run.full_disk_wait_seconds,
        provenance=provenance,
    )
    pages = open_transcriber(stack, job, opened, inputs)
    stages = Stages(page_requests(job, opened, inputs), pages, store, outputs, opened.trace)
    return Runner(documents, ledger, stages, rules)


def open_transcriber(stack: ExitStack, job: JobSpec, opened: OpenReader, inputs: Inputs) -> Transcriber:
    """How a job renders pages for its reader.  stack: ends the rendering children."""
    render = job.config.render
    producer = Producer(
        workers=render.workers,
        ahead=render.ahead,
        timeout_seconds=render.timeout_seconds,
        memory_bytes=render.memory_bytes,
        trace=opened.trace,
    )
    stack.callback(producer.close)
    return Transcriber(producer, opened.reader, inputs.check)


def page_requests(job: JobSpec, opened: OpenReader, inputs: Inputs) -> Callable[[Document, PageRef], RenderRequest]:
    """What a page of a document is asked for with; fetches the document where it lies elsewhere, which may raise PageError."""
    render = job.config.render
    settings = RenderSettings(
        longest_edge_px=opened.longest_edge_px,
        multiple_px=job.config.vision.multiple_px,
        max_dpi=render.max_dpi,
        max_pixels=render.max_pixels,
    )

    def request(document: Document, ref: PageRef) -> RenderRequest:
        path = document.found.path
        return RenderRequest(ref, path, settings, inputs.open_original(path))

    return request


def _page_counter(inspector: Inspector, job: JobSpec, passwords: Passwords) -> Callable[[Path], int]:
    """Counts a document's pages; a child that crashes over it is given the same attempts as over a page."""
    max_pages, attempts = job.config.input.max_pages, job.config.run.attempts

    def count_pages(path: Path) -> int:
        for left in range(attempts - 1, -1, -1):
            try:
                return inspector.inspect(path, password=passwords(path), max_pages=max_pages).pages
            except PageError as error:
                if not error.retry or not left:
                    raise
        raise AssertionError("attempts are at least one")

    return count_pages


def _drive(runner: Runner, progress: Progress, stopper: Stopper, copies: OutputCopies | None) -> None:
    shown = float("-inf")
    pause: Pause | None = None
    while stopper.signal is None and runner.step(time.time()):
        now = time.monotonic()
        if now >= shown + SHOW_SECONDS:
            progress.show(runner.snapshot(time.time()))
            shown = now
        if copies is not None:
            copies.copy_sometimes()
        if (pause is None) != (runner.pause is None):
            progress.note(
                f"paused: {runner.pause.why}; the run goes on by itself" if runner.pause else "there is room: going on"
            )
        pause = runner.pause
        if runner.waits_for_others or pause is not None:
            time.sleep(PAUSE_SECONDS)
    progress.show(runner.snapshot(time.time()))


def _let_go(runner: Runner, ledger: Ledger, stopper: Stopper) -> None:
    """Give back what is in flight and note how the run ended; on a full disk the next run sees that this process is dead."""
    with suppress(DiskFull):
        runner.release(time.time())
        ended = "finished" if stopper.signal is None and not runner.is_unfinished else "interrupted"
        ledger.end(ended, time.time())


def _pages(documents: list[Document], outcomes: Mapping[PageRef, Outcome]) -> Iterator[PageEnd]:
    for document in documents:
        for ref in document.refs:
            yield document, ref, outcomes.get(ref)
