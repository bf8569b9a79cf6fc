"""Which exit code an expected error has.  A row here and one in ``codes.EXIT_CODES`` is all that a new kind of error needs."""

from __future__ import annotations

from pagemill.decoder import ModelError
from pagemill.jobs.errors import ConfigError, InputError, LedgerError, OutputError
from pagemill.pipeline import PageError

CODES: tuple[tuple[type[Exception], int], ...] = (
    (ConfigError, 3),
    (InputError, 4),
    (PageError, 4),
    (ModelError, 5),
    (OutputError, 6),
    (LedgerError, 8),
)


def exit_code_of(error: Exception) -> int | None:
    """The code of the first kind in CODES that the error is; None for an error that nobody expected."""
    return next((code for kind, code in CODES if isinstance(error, kind)), None)
