"""How the cost of a stage grows with what it is given: measured points and polynomials through them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.bench.workers import Worker

if TYPE_CHECKING:
    from tests.bench.sections import Bench

Point = tuple[float, float]
Series = tuple[str, int, tuple[int, ...], Callable[[int], float]]


def series(bench: Bench, ours: Worker) -> Iterator[Series]:
    """(name, degree of the fit, points, seconds at a point)."""
    text = {"text": bench.text, "threads": bench.threads}

    def prefill(tokens: int) -> float:
        return float(ours.ask("prefill", tokens=tokens, **text)["seconds"])

    def decode(batch: int) -> float:
        return float(ours.ask("decode", batch=batch, context=512, kv_cache="f16", steps=5, **text)["seconds"])

    def context(tokens: int) -> float:
        return float(ours.ask("decode", batch=8, context=tokens, kv_cache="f16", steps=5, **text)["seconds"])

    def threads(count: int) -> float:
        return float(ours.ask("prefill", text=bench.text, tokens=512, threads=count)["seconds"])

    def page(side: int) -> float:
        common = {"mmproj": bench.mmproj, "precision": bench.precision, "threads": bench.threads}
        return float(ours.ask("vision", width=14 * side, height=14 * side, **common)["seconds"])

    yield "prefill seconds by prompt tokens", 2, (128, 256, 512, 1024, 2048), prefill
    yield "decode step seconds by sequences", 1, (1, 2, 4, 8, 16, 24), decode
    yield "decode step seconds by context", 1, (16, 256, 512, 1024, 2048), context
    yield "prefill seconds by threads", 1, tuple(range(1, bench.threads + 1)), threads
    yield "page seconds by side in patches", 4, (14, 26, 38, 50, 62), page


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
