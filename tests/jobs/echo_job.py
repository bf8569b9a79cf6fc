"""A job of the real parts around a reader that echoes, as a process of its own that a test can kill.

python -m tests.jobs.echo_job [--die POINT TIMES] OUTPUT INPUT...
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pagemill.jobs.cli.run import tell
from pagemill.jobs.run import runner
from pagemill.jobs.run.job import OpenReader, run_job
from pagemill.jobs.run.progress import NoProgress
from pagemill.jobs.run.report import write_report
from pagemill.jobs.run.spec import JobSpec
from pagemill.jobs.settings.config import Config, RenderSection
from pagemill.jobs.settings.registry import ModelFiles
from pagemill.pipeline.page import PageImage, PageRef, PageText
from pagemill.pipeline.reading.settings import ReadSettings
from tests.fakes import EchoReader
from tests.jobs.deaths import POINTS, Countdown

STEP_SECONDS = 0.004


class SlowEchoReader(EchoReader):
    """Takes a moment a step, so that a kill meets pages in every state."""

    def step(self) -> list[PageText]:
        time.sleep(STEP_SECONDS)
        return super().step()

    def submit(self, image: PageImage, settings: ReadSettings | None = None) -> PageRef:
        time.sleep(STEP_SECONDS)
        return super().submit(image)


@contextmanager
def open_echo(job: JobSpec, provenance: Mapping[str, str]) -> Iterator[OpenReader]:
    """A reader without a model."""
    yield OpenReader(SlowEchoReader(slots=4), 1540)


def echo_job(output: Path, inputs: Sequence[Path], **run: object) -> JobSpec:
    """A job that writes all formats."""
    config = Config.model_validate(
        {"output": {"formats": ["text", "markdown", "jsonl"]}, "run": run, "render": RenderSection(workers=1).model_dump()}
    )
    return JobSpec(config, tuple(inputs), output, ModelFiles(Path("text"), Path("mmproj")), "model", "settings")


def main(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--die", nargs=2, metavar=("POINT", "TIMES"))
    parser.add_argument("paths", nargs="+", type=Path)
    said = parser.parse_args(arguments)
    if said.die:
        POINTS[said.die[0]](Countdown(int(said.die[1])))
    runner.COMMIT_PAGES = 8  # so that a short run has several commits to die in
    output, *inputs = said.paths
    job = echo_job(output, inputs)
    progress = NoProgress(sys.stderr)
    report = run_job(job, open_echo, progress)
    write_report(job, report)
    return tell(report, job, progress)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
