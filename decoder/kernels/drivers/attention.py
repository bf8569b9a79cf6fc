"""ROPE_STORE and ATTEND."""

from __future__ import annotations

from typing import Any

from decoder.kernels.calls import driver


@driver
def rope_store(op: Any, reals: int, step: Any, counter: int, scratch: int, worker: int, workers: int) -> None:
    """To be written."""


@driver
def attend(op: Any, reals: int, step: Any, counter: int, scratch: int, worker: int, workers: int) -> None:
    """To be written."""
