"""MATMUL: activations times panels."""

from __future__ import annotations

from typing import Any

from decoder.kernels.calls import driver


@driver
def matmul(op: Any, reals: int, step: Any, counter: int, scratch: int, worker: int, workers: int) -> None:
    """To be written."""
