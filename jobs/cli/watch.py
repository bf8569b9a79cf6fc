"""``pagemill watch``: transcribe what arrives in folders, until it is stopped."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from pagemill.jobs.cli.codes import SOME_FAILED
from pagemill.jobs.cli.options import ProgressOption, Threads
from pagemill.jobs.run.progress import open_progress
from pagemill.jobs.run.spec import resolve_job
from pagemill.jobs.settings.layers import load_config
from pagemill.jobs.watch.daemon import places_of, run_watch
from pagemill.jobs.watch.overrides import FolderSettings


def command(
    job: Annotated[
        Path, typer.Argument(metavar="JOB.yaml", help="Its input.paths are the folders to watch.", show_default=False)
    ],
    once: Annotated[bool, typer.Option("--once", help="End when everything that is there has ended.")] = False,
    threads: Threads = None,
    progress: ProgressOption = None,
) -> int:
    """``pagemill watch``."""
    flags = {("engine", "threads"): threads, ("run", "progress"): progress and progress.value}
    config = load_config(job, os.environ, flags)
    places = places_of(config)
    resolve_job(config)  # refuses now what no batch could run with
    shown = open_progress(config.run.progress, sys.stderr, sys.stdout)
    logging.basicConfig(format="pagemill: %(message)s", level=logging.WARNING)
    from pagemill.jobs.run.opening import (
        open_reader,  # loads the engine, which takes longer than to find a fault in the settings
    )

    settings = FolderSettings(job, os.environ, flags)
    end = run_watch(config, places, settings, open_reader, shown, once=once)
    if end.signal is not None:
        return 128 + end.signal
    return SOME_FAILED if end.some_failed else 0
