"""What can go wrong between a command and its pages.  ``codes.EXIT_CODES`` pairs each with an exit code.

JobError
├── ConfigError    a key or a value in a job file, the environment or a flag
├── InputError     nothing to read: no such file, no page in it
├── OutputError    the output folder cannot be written
│   └── DiskFull   its disk is full: a run waits and tries again
└── LedgerError    the ledger is damaged, locked, or of a newer Pagemill
"""

from __future__ import annotations

from collections.abc import Sequence


class JobError(Exception):
    """A job that cannot go on; the message says what, expected, found and what to do."""


class ConfigError(JobError):
    """Settings that cannot be used.  ``problems`` holds every problem, each with the place where it was written."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class InputError(JobError):
    """The job's inputs cannot be read at all; a bad document among good ones is no InputError but failed pages."""


class OutputError(JobError):
    """The output folder cannot take what was made; what is done stays done, and the same command goes on from there."""


class DiskFull(OutputError):
    """The output folder's disk is full, or a limit on file sizes is reached; it may pass."""


class LedgerError(JobError):
    """The ledger in the output folder cannot be used."""
