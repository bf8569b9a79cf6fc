"""``pagemill retry-failed``: do pages again that ended badly, of a job file or of an output folder's last run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from pagemill.jobs.cli.options import Password, ProgressOption, Threads, split_names
from pagemill.jobs.cli.run import run_documents, run_with
from pagemill.jobs.errors import LedgerError
from pagemill.jobs.ledger.ledger_view import open_view
from pagemill.jobs.settings.config import Config
from pagemill.jobs.settings.layers import apply_flags


def command(
    target: Annotated[
        Path, typer.Argument(metavar="JOB.yaml | DIR", help="A job file, or the output folder of a run.", show_default=False)
    ],
    statuses: Annotated[str, typer.Option("--status", help="Any of failed,looped,truncated,low_confidence,blank.")] = "failed",
    threads: Threads = None,
    password: Password = None,
    progress: ProgressOption = None,
) -> int:
    """``pagemill retry-failed``."""
    wishes = {
        ("engine", "threads"): threads,
        ("input", "password"): password,
        ("run", "progress"): progress and progress.value,
        ("run", "retry_failed"): True,
        ("run", "retry_statuses"): split_names(statuses),
    }
    if not target.is_dir():
        return run_documents([str(target)], wishes)
    return run_with(apply_flags(_last_settings(target), wishes))


def _last_settings(folder: Path) -> Config:
    with open_view(folder) as view:
        run = view.last_run()
    if run is None:
        raise LedgerError(f"{folder}: expected a folder that a run worked on, found none noted; give the job file instead")
    if not run.settings:
        raise LedgerError(
            f"{folder}: its last run had addresses with credentials, which are not kept; give the job file instead"
        )
    try:
        return Config.model_validate(json.loads(run.settings))
    except ValidationError as error:
        raise LedgerError(
            f"{folder}: its last run has settings that this version does not know; give the job file instead"
        ) from error
