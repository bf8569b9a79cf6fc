"""How sure a figure is: bootstrap intervals over pages, and whether confidence foretells errors.

Pages are drawn with replacement (Efron 1979), as wholes, since errors on one page go together.  The draws come from a fixed
seed: the same pages give the same interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pagemill.jobs.evaluate.evaluate import Errors, PageScore

DRAWS = 2000
SEED = 20_251_006
LEVEL = 95.0
BINS = 5
FEWEST_PAGES = 3  # below that neither an interval nor a correlation says anything

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Bin:
    """Pages of like confidence.  confidence: mean probability of a token, by the model; accuracy: 1 - CER, measured."""

    pages: int
    confidence: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Does the mean log-prob of a page foretell its errors?

    rank_correlation: Spearman's, of log-prob and character error rate; -1 when the surest page is always the best.
    miss_detection: the chance that a page with more errors than the median is less sure than one with fewer; 0.5 is
    guessing.  gap: mean distance of confidence and accuracy over the bins, weighted by pages.
    """

    pages: int
    rank_correlation: float | None
    miss_detection: float | None
    gap: float
    bins: tuple[Bin, ...]


def rate_interval(errors: Sequence[Errors]) -> Interval | None:
    """The interval of the rate of these pages together; None for too few pages or no text."""
    if len(errors) < FEWEST_PAGES or not any(one.length for one in errors):
        return None
    counts, lengths = _columns(errors)
    drawn = _draws(len(errors))
    return _interval(counts[drawn].sum(1), lengths[drawn].sum(1))


def difference_interval(first: Sequence[Errors], second: Sequence[Errors]) -> Interval | None:
    """The interval of the second's rate minus the first's, on the same pages in the same order."""
    if len(first) < FEWEST_PAGES or not any(one.length for one in first):
        return None
    counts, lengths = _columns(first)
    others, _ = _columns(second)
    drawn = _draws(len(first))
    return _interval(others[drawn].sum(1) - counts[drawn].sum(1), lengths[drawn].sum(1))


def calibrate(scores: Sequence[PageScore]) -> Calibration | None:
    """Of the pages that have both a log-prob and a truth with text; None where they are too few."""
    known = [
        (score.mean_log_prob, score.characters.rate)
        for score in scores
        if score.mean_log_prob is not None and math.isfinite(score.mean_log_prob) and score.characters.rate is not None
    ]
    if len(known) < FEWEST_PAGES:
        return None
    log_probs, rates = np.array(known, np.float64).T
    order = np.argsort(log_probs, kind="stable")
    bins = tuple(
        Bin(len(part), float(np.exp(log_probs[part]).mean()), float(1 - np.minimum(rates[part], 1).mean()))
        for part in np.array_split(order, min(BINS, len(order)))
    )
    gap = sum(one.pages * abs(one.confidence - one.accuracy) for one in bins) / len(known)
    return Calibration(len(known), _spearman(log_probs, rates), _miss_detection(log_probs, rates), gap, bins)


def _columns(errors: Sequence[Errors]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.array([one.count for one in errors], np.float64), np.array([one.length for one in errors], np.float64)


def _draws(pages: int) -> NDArray[np.int64]:
    return np.random.default_rng(SEED).integers(0, pages, (DRAWS, pages))


def _interval(counts: NDArray[np.float64], lengths: NDArray[np.float64]) -> Interval:
    rates = counts[lengths > 0] / lengths[lengths > 0]
    low, high = np.percentile(rates, [(100 - LEVEL) / 2, (100 + LEVEL) / 2])
    return float(low), float(high)


def _spearman(one: NDArray[np.float64], other: NDArray[np.float64]) -> float | None:
    """Rank correlation, ties at their mean rank; None where one of them is constant."""
    ranks = _ranks(one), _ranks(other)
    if any(np.ptp(rank) == 0 for rank in ranks):
        return None
    return float(np.corrcoef(*ranks)[0, 1])


def _miss_detection(log_probs: NDArray[np.float64], rates: NDArray[np.float64]) -> float | None:
    """Area under the curve of Mann and Whitney: pages above the median error rate against the others."""
    bad = rates > np.median(rates)
    if not bad.any() or bad.all():
        return None
    ranks = _ranks(-log_probs)
    worse, better = int(bad.sum()), int((~bad).sum())
    return float((ranks[bad].sum() - worse * (worse + 1) / 2) / (worse * better))


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return ((ends - counts + 1 + ends) / 2)[inverse]
