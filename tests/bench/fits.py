"""How the cost of a stage grows with what it is given: measured points and polynomials through them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.bench.serve import Pages, Sequences
from tests.bench.workers import Worker

if TYPE_CHECKING:
    from tests.bench.sections import Bench

Point = tuple[float, float]
Series = tuple[str, int, tuple[float, ...], Callable[[float], float]]


def series(bench: Bench, ours: Worker) -> Iterator[Series]:
    """(name, degree of the fit, points, seconds at a point)."""
    text = {"text": bench.text, "threads": bench.threads}

    def prefill(tokens: float) -> float:
        return float(ours.ask("prefill", tokens=int(tokens), **text)["seconds"])

    def decode(batch: float) -> float:
        return float(ours.ask("decode", sequences=Sequences(int(batch), 512, "f16"), steps=5, **text)["seconds"])

    def context(tokens: float) -> float:
        return float(ours.ask("decode", sequences=Sequences(8, int(tokens), "f16"), steps=5, **text)["seconds"])

    def threads(share: float) -> float:
        return float(ours.ask("prefill", text=bench.text, tokens=512, threads=round(1 / share))["seconds"])

    encoder = {"mmproj": bench.mmproj, "precision": bench.precision, "threads": bench.threads}

    def page(side: float) -> float:
        return float(ours.ask("vision", width=int(14 * side), height=int(14 * side), **encoder)["seconds"])

    def pages(count: float) -> float:
        job = Pages(int(count), side=280, answer=32, slots=16, kv_cache="f16")
        return float(ours.ask("job", text=bench.text, pages=job, **encoder)["seconds"])

    yield "prefill seconds by prompt tokens", 2, (128, 256, 512, 1024, 2048), prefill
    yield "decode step seconds by sequences", 1, (1, 2, 4, 8, 16, 24), decode
    yield "decode step seconds by context", 1, (16, 256, 512, 1024, 2048), context
    yield "prefill seconds by 1 / threads", 1, tuple(1 / count for count in range(1, bench.threads + 1)), threads
    yield "page seconds by side in patches", 4, (14, 26, 38, 50, 62), page
    yield "job seconds by small pages of 32 tokens", 1, (1, 2, 4, 8, 16, 32), pages


def fit(points: Sequence[Point], degree: int) -> dict[str, Any]:
    """The polynomial's coefficients, lowest first, as text too, and how far a point lies off it at most, relatively."""
    degree = min(degree, len(points) - 1)
    x, y = (np.array(column, float) for column in zip(*points, strict=True))
    scale = x.max()
    # relative errors: a small point counts as much as a large one
    columns = np.stack([(x / scale) ** power for power in range(degree + 1)], axis=1) / y[:, None]
    scaled, *_ = np.linalg.lstsq(columns, np.ones(len(y)), rcond=None)
    off = float(np.abs(columns @ scaled - 1).max())
    coefficients = [float(value / scale**power) for power, value in enumerate(scaled)]
    text = " + ".join(f"{value:.3g}" + ("" if not power else f" n^{power}") for power, value in enumerate(coefficients))
    return {"coefficients": coefficients, "largest_error": off, "text": f"{text} (within {off:.0%})"}
