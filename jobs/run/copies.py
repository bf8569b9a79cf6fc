"""Finished outputs copied to an address, such as s3://bucket/prefix, while a job runs and when it ends.

The output folder stays on this machine, with the ledger and the page records in .pagemill, which are never copied: a store
of objects can neither rename nor lock.  What was copied is remembered, so that a later run copies only what changed.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pagemill.jobs.errors import ConfigError, OutputError
from pagemill.jobs.inputs.remote import LISTING, connect
from pagemill.jobs.ledger.output_folder import OutputFolder
from pagemill.jobs.run.spec import JobSpec
from pagemill.jobs.settings.addresses import protocol, shown_url
from pagemill.pipeline import TEMP_SUFFIX, write_durably

COPY_SECONDS = 60.0  # between copies while a job runs

_log = logging.getLogger("pagemill")

Stamp = list[int]  # bytes, nanoseconds of the last change


class OutputCopies:
    """Copies what is new or changed in an output folder.  clock: seconds, for ``copy_sometimes``."""

    def __init__(self, folder: Path, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._url, self._clock = folder, url.rstrip("/"), clock
        self._due = clock() + COPY_SECONDS

    def copy(self) -> int:
        """Copy all that is not there yet; how many files that were.  Raises OutputError; what is copied then stays copied."""
        copied = self._copied()
        new = [(name, stamp) for name, stamp in self._files() if copied.get(name) != stamp]
        if not new:
            return 0
        try:
            files, root = connect(self._url)
            for name, stamp in new:
                files.put_file(str(self._folder / name), f"{root}/{name}")
                copied[name] = stamp
        except Exception as error:  # each store raises types of its own
            raise OutputError(
                f"{shown_url(self._url)}: expected to copy the outputs there, found {type(error).__name__}: {error}; they are "
                f"whole in {self._folder}: mend the address or the credentials, then give the same command again"
            ) from error
        finally:
            write_durably(OutputFolder(self._folder).copied, json.dumps({"url": self._url, "files": copied}).encode())
        return len(new)

    def copy_sometimes(self) -> None:
        """``copy`` when some time has passed; trouble is only logged, since the end of the job copies again."""
        if self._clock() < self._due:
            return
        try:
            self.copy()
        except OutputError as error:
            _log.warning("%s", error)
        self._due = self._clock() + COPY_SECONDS

    def _files(self) -> Iterator[tuple[str, Stamp]]:
        """The outputs, whole ones only: name -> stamp.  Names that are no UTF-8 cannot be there."""
        for parent, folders, names in os.walk(self._folder):
            folders[:] = sorted(folder for folder in folders if Path(parent, folder) != OutputFolder(self._folder).state)
            for name in sorted(names):
                path = Path(parent, name)
                if not name.endswith(TEMP_SUFFIX):
                    found = path.stat()
                    yield path.relative_to(self._folder).as_posix(), [found.st_size, found.st_mtime_ns]

    def _copied(self) -> dict[str, Stamp]:
        try:
            record = json.loads((OutputFolder(self._folder).copied).read_bytes())
            return dict(record["files"]) if record["url"] == self._url else {}
        except (OSError, ValueError, KeyError, TypeError):  # none yet, or damaged: copying again harms nothing
            return {}


def copies_of(job: JobSpec) -> OutputCopies | None:
    """Where a job's outputs are copied to, None where they stay.  Raises ConfigError."""
    url = job.config.output.copy_to
    if url is None:
        return None
    if protocol(url) not in LISTING or "::" in url:
        raise ConfigError([f"output.copy_to: expected an address such as s3://bucket/folder, found {shown_url(url)}"])
    return OutputCopies(job.output, url)
