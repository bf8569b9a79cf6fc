"""Exit codes of the command line."""

from __future__ import annotations

# The exit codes of the process. README has the same table (tested).
EXIT_CODES: dict[int, str] = {
    0: "every page is done",
    1: "an internal error: please report it with its trace",
    2: "wrong command or option",
    3: "a setting in a job file, the environment or a flag is wrong",
    4: "an input is missing, or nothing readable was named",
    5: "the model was refused, or its two files do not fit each other",
    6: "the output folder cannot be written, or its disk is full",
    7: "the job is done, but some pages failed: the messages say which and why",
    8: "the ledger is damaged, locked by another process, or of a newer version",
    9: "verify found outputs or records that are missing or changed",
    130: "interrupted (Ctrl-C): the same command goes on where it stopped",
    143: "asked to end (SIGTERM): the same command goes on where it stopped",
}
SOME_FAILED = 7
NOT_AS_WRITTEN = 9
