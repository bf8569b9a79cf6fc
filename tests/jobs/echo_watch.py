"""A watch of the real parts around a reader that echoes, as a process of its own that a test can kill.

python -m tests.jobs.echo_watch FOLDER: watches FOLDER/in with FOLDER/job.yaml until all is done.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pagemill.jobs.cli.codes import SOME_FAILED
from pagemill.jobs.run.progress import NoProgress
from pagemill.jobs.settings.layers import load_config
from pagemill.jobs.watch.daemon import places_of, run_watch
from pagemill.jobs.watch.overrides import FolderSettings
from tests.jobs.echo_job import open_echo


def main(folder: str) -> int:
    job = Path(folder, "job.yaml")
    config = load_config(job, {}, {})
    settings = FolderSettings(job, {}, {})
    end = run_watch(config, places_of(config), settings, open_echo, NoProgress(sys.stderr), once=True)
    return 128 + end.signal if end.signal else SOME_FAILED * end.some_failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
