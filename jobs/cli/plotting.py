"""The picture of ``pagemill eval --plot``: error rates of pages, and confidence against errors.  Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pagemill.jobs.errors import ConfigError, OutputError
from pagemill.jobs.evaluate.comparing import RunScores

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".png", ".svg", ".pdf")


def draw(measured: Sequence[RunScores], path: Path) -> None:
    """Draws the picture into a file of the kind that its suffix says.  Raises ConfigError, OutputError."""
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError([f"--plot: expected a file with one of {', '.join(SUFFIXES)}, found {path.name}"])
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError(
            ["--plot: expected matplotlib, found none; install pagemill with its extra: pagemill[plot]"]
        ) from None
    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)  # no window and no pyplot: nothing that outlives the figure
    rates, confidence = figure.subplots(1, 2)
    _draw_rates(rates, measured)
    _draw_confidence(confidence, measured)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written ({error.strerror or error}); choose another file with --plot") from error


def _draw_rates(axes: Axes, measured: Sequence[RunScores]) -> None:
    """How many pages have at most which rate: a curve a run."""
    for run in measured:
        rates = sorted(rate for score in run.scores if (rate := score.characters.rate) is not None)
        shares = [100 * (index + 1) / len(rates) for index in range(len(rates))]
        axes.step([100 * rate for rate in rates], shares, where="post", label=run.name)
    axes.set_xlabel("character error rate of a page, %")
    axes.set_ylabel("pages with at most this rate, %")
    axes.set_ylim(0, 101)
    if measured:
        axes.legend(fontsize="small")


def _draw_confidence(axes: Axes, measured: Sequence[RunScores]) -> None:
    """A dot a page: where confidence foretells errors, they fall to the right."""
    for run in measured:
        pages = [
            (score.mean_log_prob, rate)
            for score in run.scores
            if score.mean_log_prob is not None and (rate := score.characters.rate) is not None
        ]
        axes.scatter([log_prob for log_prob, _ in pages], [100 * rate for _, rate in pages], s=12, label=run.name)
    axes.set_xlabel("mean log-prob of a page's tokens")
    axes.set_ylabel("its character error rate, %")
