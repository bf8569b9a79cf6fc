"""A worker's side of the bench: requests in, answers out, a JSON object a line.  Standard library only, any Python 3.9."""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

Answer = dict[str, Any]


@dataclass(frozen=True)
class Sequences:
    """What a decode step holds.  batch: sequences; context: positions of each.  kv_cache: their storage type."""

    batch: int
    context: int
    kv_cache: str


@dataclass(frozen=True)
class Switches:
    """llama.cpp's: repacked weights, flash attention."""

    repack: bool
    flash: bool


@dataclass(frozen=True)
class Pages:
    """Pages of a job.  side: pixels; answer: tokens of each; slots: decoded at once."""

    count: int
    side: int
    answer: int
    slots: int
    kv_cache: str


RECORDS: dict[str, Callable[..., Any]] = {"sequences": Sequences, "switches": Switches, "pages": Pages}
"""Arguments that are records, by name."""


def plain(value: object) -> object:
    """A record as JSON takes it."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"expected a record, found {type(value).__name__}")


def serve(operations: dict[str, Callable[..., Answer]]) -> None:
    """Answers requests ``{"do": name, **arguments}`` until standard input ends.  Other prints go to standard error."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            known = {name: RECORDS[name](**value) if name in RECORDS else value for name, value in request.items()}
            answer = operations[known.pop("do")](**known)
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
