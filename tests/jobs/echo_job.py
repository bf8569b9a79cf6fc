"""A job of the real parts around a reader that echoes, as a process of its own that a test can kill.

python -m tests.jobs.echo_job OUTPUT INPUT...
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from jobs.commands.run import tell
from jobs.config import Config, RenderSection
from jobs.job import OpenReader, run_job
from jobs.models import ModelFiles
from jobs.spec import JobSpec
from pipeline.page import PageImage, PageText
from pipeline.progress import NoProgress
from tests.fakes import EchoReader

STEP_SECONDS = 0.004


class SlowEchoReader(EchoReader):
    """Takes a moment a step, so that a kill meets pages in every state."""

    def step(self) -> list[PageText]:
        time.sleep(STEP_SECONDS)
        return super().step()

    def submit(self, image: PageImage) -> None:
        time.sleep(STEP_SECONDS)
        super().submit(image)


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


def main(output: str, *inputs: str) -> int:
    job = echo_job(Path(output), [Path(path) for path in inputs])
    progress = NoProgress(sys.stderr)
    return tell(run_job(job, open_echo, progress), job, progress)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
