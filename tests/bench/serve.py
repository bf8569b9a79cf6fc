"""A worker's side of the bench: requests in, answers out, a JSON object a line.  Standard library only, any Python 3.9."""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

Answer = dict[str, Any]


def serve(operations: dict[str, Callable[..., Answer]]) -> None:
    """Answers requests ``{"do": name, **arguments}`` until standard input ends.  Other prints go to standard error."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = operations[request.pop("do")](**request)
            answer["peak_bytes"] = peak_bytes()
        except Exception as error:  # the bench goes on with its other figures
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")


def peak_bytes() -> int:
    """The most memory that this process, or a program that it ran, has had."""
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return peak if sys.platform == "darwin" else peak * 1024


def timed(action: Callable[[], object], runs: int, *, warm: bool = True) -> list[float]:
    """Wall seconds of each run, after one that does not count."""
    if warm:
        action()
    return [once(action) for _ in range(runs)]


def once(action: Callable[[], object]) -> float:
    """Wall seconds of one call."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def median(values: list[float]) -> float:
    """The middle one."""
    return statistics.median(values)
