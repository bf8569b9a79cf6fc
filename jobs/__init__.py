"""Many documents, durably: what to do, what is done, who does it.

>>> import io, tempfile
>>> folder = tempfile.mkdtemp()
>>> settings = {"input": {"paths": ["samples/documents/notice.png"]}, "output": {"folder": folder}}
>>> report = run_job(resolve_job(Config.model_validate(settings)), open_reader, NoProgress(io.StringIO()))
>>> report.counts["ok"]
1
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pagemill.lazy import exports

if TYPE_CHECKING:
    from pagemill.jobs.errors import JobError as JobError
    from pagemill.jobs.run.job import Report as Report
    from pagemill.jobs.run.job import run_job as run_job
    from pagemill.jobs.run.opening import open_reader as open_reader
    from pagemill.jobs.run.progress import NoProgress as NoProgress
    from pagemill.jobs.run.progress import Progress as Progress
    from pagemill.jobs.run.progress import open_progress as open_progress
    from pagemill.jobs.run.report import write_report as write_report
    from pagemill.jobs.run.spec import JobSpec as JobSpec
    from pagemill.jobs.run.spec import resolve_job as resolve_job
    from pagemill.jobs.settings.config import Config as Config
    from pagemill.jobs.settings.layers import load_config as load_config

__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "errors": "JobError",
        "run.job": "Report run_job",
        "run.opening": "open_reader",
        "run.progress": "NoProgress Progress open_progress",
        "run.report": "write_report",
        "run.spec": "JobSpec resolve_job",
        "settings.config": "Config",
        "settings.layers": "load_config",
    },
)
