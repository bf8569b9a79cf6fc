"""``pagemill check``: what a job would read, what of it is bad, and what it would take; a dry run."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from pagemill.jobs.cli.codes import SOME_FAILED
from pagemill.jobs.cli.options import InputNames, Password, Threads
from pagemill.jobs.cli.run import split_inputs
from pagemill.jobs.inputs.discover import Document
from pagemill.jobs.ledger.ledger_view import open_view
from pagemill.jobs.run.estimate import Estimate, measure, spread
from pagemill.jobs.run.job import Inputs, ReaderOpener, find_inputs, inspect_inputs, provenance_of
from pagemill.jobs.run.progress import as_clock
from pagemill.jobs.run.spec import JobSpec, resolve_job
from pagemill.jobs.settings.layers import load_config
from pagemill.pipeline import SINKS, PageRef

MOST_DOCUMENTS = 100


def command(
    inputs: InputNames,
    sample: Annotated[int, typer.Option(min=0, help="Pages to read for the estimate; 0: none.")] = 5,
    threads: Threads = None,
    password: Password = None,
) -> int:
    """``pagemill check``."""
    flags = {("engine", "threads"): threads, ("input", "password"): password}
    job_file, paths = split_inputs(inputs)
    config = load_config(job_file, os.environ, {**flags, ("input", "paths"): paths or None})
    job = resolve_job(config)
    from pagemill.jobs.run.opening import (
        open_reader,  # loads the engine, which takes longer than to find a fault in the settings
    )

    return survey(job, open_reader, sample)


def survey(job: JobSpec, open_reader: ReaderOpener, sample: int) -> int:
    """The dry run of a job with a given reader."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pagemill-check-")))
        elsewhere = dataclasses.replace(job, output=scratch)  # fetched inputs go there, not into the output folder
        files = find_inputs(stack, elsewhere)
        documents = inspect_inputs(job, files)
        _print_documents(documents)
        done = _done(job)
        left = sum(ref not in done for document in documents if document.error is None for ref in document.refs)
        bad = sum(document.error is not None for document in documents)
        count = sum(document.pages for document in documents)
        _print("documents", f"{len(documents)}, {bad} of them cannot be read")
        _print("pages", f"{count}, {count - bad - left} of them are done already, {left} are left to read")
        pages = spread(documents, sample)
        if pages and left:
            _print_estimate(job, documents, left, _measured(stack, elsewhere, open_reader, files, pages))
    return SOME_FAILED if bad else 0


def _measured(
    stack: ExitStack, job: JobSpec, open_reader: ReaderOpener, inputs: Inputs, pages: Sequence[tuple[Document, PageRef]]
) -> Estimate:
    started = time.perf_counter()
    opened = stack.enter_context(open_reader(job, provenance_of(job)))
    _print("model", f"opened in {time.perf_counter() - started:.1f} s")
    return measure(job, opened, inputs, pages)


def _print_documents(documents: Sequence[Document]) -> None:
    bad_first = sorted(documents, key=lambda document: document.error is None)
    for document in bad_first[:MOST_DOCUMENTS]:
        label = "".join(letter if letter.isprintable() else "?" for letter in document.found.label)
        print(f"{label}: {document.error}" if document.error else f"{label}: {document.pages} pages")
    if len(documents) > MOST_DOCUMENTS:
        print(f"... and {len(documents) - MOST_DOCUMENTS} more documents")


def _print_estimate(job: JobSpec, documents: Sequence[Document], left: int, measured: Estimate) -> None:
    each = measured.seconds / measured.pages
    line = f"{measured.pages} pages in {measured.seconds:.1f} s, {each:.2f} s a page"
    _print("measured", line + (f"; {measured.failed} of them could not be rendered" if measured.failed else ""))
    _print("time", f"about {as_clock(left * each)}; less, where more pages are read at once than were measured")
    formats = job.config.output.formats
    size = measured.page_bytes(formats) * left
    if any(SINKS[name].needs_original for name in formats):
        size += sum(_size(document.found.path) for document in documents)
    free = shutil.disk_usage(_existing(job.output)).free
    _print("disk", f"about {size / 2**20:.2g} MiB for records and {', '.join(formats)}; {free / 2**20:.0f} MiB are free")
    if size > free:
        print("the disk has too little room: free some, or choose another output folder")


def _done(job: JobSpec) -> set[PageRef]:
    """What earlier runs have done."""
    if not job.folder.ledger.is_file():
        return set()
    with open_view(job.output, oldest=1) as view:
        return view.done(job.model_hash, job.settings_hash)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _existing(folder: Path) -> Path:
    folder = folder.absolute()
    return folder if folder.exists() else _existing(folder.parent)


def _print(name: str, value: str) -> None:
    print(f"{name:10} {value}")
