"""``pagemill run``: transcribe documents."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from pagemill.jobs.cli.codes import SOME_FAILED
from pagemill.jobs.cli.options import Cpu, InputNames, Password, ProgressOption, Threads, path_text, split_names
from pagemill.jobs.errors import ConfigError
from pagemill.jobs.models.files import REAL_MODEL_ADVICE
from pagemill.jobs.run.copies import copies_of
from pagemill.jobs.run.job import Report, run_job
from pagemill.jobs.run.progress import Progress, open_progress
from pagemill.jobs.run.report import STATUSES, by_document, counts_table, write_report
from pagemill.jobs.run.spec import JobSpec, resolve_job
from pagemill.jobs.settings.config import Config
from pagemill.jobs.settings.layers import load_config

JOB_SUFFIXES = (".yaml", ".yml")
MOST_MESSAGES = 50

Flags = Mapping[tuple[str, str], object]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The settings that have a flag of their own; None is one that was not given."""

    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Output folder.  [default: out]", show_default=False)
    ] = None
    formats: Annotated[
        str | None, typer.Option("--format", help="Any of text,markdown,html,... as in config.yaml.", show_default=False)
    ] = None
    text_model: Annotated[
        Path | None,
        typer.Option("--model", help="The text model's GGUF file.  [default: the sample model]", show_default=False),
    ] = None
    mmproj: Annotated[Path | None, typer.Option(help="Its vision encoder's GGUF file.", show_default=False)] = None
    threads: Threads = None
    cpu: Cpu = None
    slots: Annotated[int | None, typer.Option(min=1, help="Pages decoded at once.  [default: 16]", show_default=False)] = None
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens a page may have.  [default: 4096]", show_default=False)
    ] = None
    password: Password = None
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Do pages again that failed in an earlier run.")] = False
    progress: ProgressOption = None
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write where the time goes, for ui.perfetto.dev.", show_default=False)
    ] = None

    @property
    def flags(self) -> Flags:
        """As ``layers`` takes them."""
        return {
            ("output", "folder"): path_text(self.output),
            ("output", "formats"): split_names(self.formats),
            ("model", "text"): path_text(self.text_model),
            ("model", "mmproj"): path_text(self.mmproj),
            ("engine", "threads"): self.threads,
            ("engine", "cpu"): self.cpu,
            ("engine", "slots"): self.slots,
            ("engine", "max_tokens"): self.max_tokens,
            ("input", "password"): self.password,
            ("run", "retry_failed"): self.retry_failed or None,
            ("run", "progress"): self.progress and self.progress.value,
            ("run", "trace"): path_text(self.trace),
        }


def command(inputs: InputNames, options: RunOptions) -> int:
    """``pagemill run``."""
    return run_documents(inputs, options.flags)


def run_documents(inputs: Sequence[str], flags: Flags) -> int:
    """Runs a job file, or documents with the default settings."""
    job_file, paths = split_inputs(inputs)
    return run_with(load_config(job_file, os.environ, {**flags, ("input", "paths"): paths or None}))


def run_with(config: Config) -> int:
    """Runs a job of these settings."""
    job = resolve_job(config)
    progress = open_progress(config.run.progress, sys.stderr, sys.stdout)
    logging.basicConfig(format="pagemill: %(message)s", level=logging.WARNING)
    if job.model.embedded:
        kind = "for strips and small pages of clean print"
        progress.note(f"model: the sample model {job.model.text.name}, {kind}; {REAL_MODEL_ADVICE}")
    from pagemill.jobs.run.opening import (
        open_reader,  # loads the engine, which takes longer than to find a fault in the settings
    )

    report = run_job(job, open_reader, progress)
    write_report(job, report)
    copies = copies_of(job)
    if copies is not None and report.signal is None:
        copies.copy()  # the report too
    return tell(report, job, progress)


def tell(report: Report, job: JobSpec, progress: Progress) -> int:
    """Says how a job ended; returns the exit code."""
    troubled = report.troubled
    for document, ref, outcome in troubled[:MOST_MESSAGES]:
        progress.note(f"{document.found.label}, page {ref.number}: {outcome.status}: {outcome.reason}")
    if len(troubled) > MOST_MESSAGES:
        progress.note(f"... and {len(troubled) - MOST_MESSAGES} more pages that are not ok")
    counts = report.counts
    progress.note("\n".join(counts_table(by_document(report))))
    by_status = ", ".join(f"{count} {status}" for status, count in sorted(counts.items(), key=_status_order))
    progress.note(
        f"{len(report.pages)} pages: {by_status}; {report.new_pages} of them now, in {report.seconds:.1f} s; see {job.output}"
    )
    if report.signal is not None:
        progress.note("interrupted; the same command goes on from here")
        return 128 + report.signal
    if counts["failed"]:
        progress.note("failed pages stay failed in later runs; --retry-failed tries them again")
        return SOME_FAILED
    return 0


def split_inputs(inputs: Sequence[str]) -> tuple[Path | None, list[str]]:
    """A job file, or documents; never both."""
    job_files = [text for text in inputs if text.lower().endswith(JOB_SUFFIXES)]
    if not job_files:
        return None, list(inputs)
    if len(inputs) > 1:
        raise ConfigError(
            [f"expected one job file or documents, found {job_files[0]} among {len(inputs)} names; give it alone"]
        )
    return Path(job_files[0]), []


def _status_order(item: tuple[str, int]) -> int:
    return STATUSES.index(item[0]) if item[0] in STATUSES else len(STATUSES)
