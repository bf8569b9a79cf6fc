"""Runs measured against one truth, and against each other page by page: what ``pagemill eval`` reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pagemill.jobs.evaluate.evaluate import Errors, PageScore, all_confusions, characters_of, score_page, total, words_of
from pagemill.jobs.evaluate.intervals import Calibration, Interval, calibrate, difference_interval, rate_interval
from pagemill.jobs.evaluate.readings import Transcripts, match


@dataclass(frozen=True, slots=True)
class RunScores:
    """A run's scores.  unread, untold: see ``readings.Matched``; they are in no figure."""

    name: str
    scores: tuple[PageScore, ...]
    unread: tuple[tuple[str, int], ...]
    untold: tuple[tuple[str, int], ...]
    characters: Errors
    words: Errors
    misread_words: int
    moved_words: int
    characters_interval: Interval | None
    words_interval: Interval | None
    calibration: Calibration | None

    @property
    def invented(self) -> int:
        """Characters read on pages whose truth is empty."""
        return sum(score.characters.insertions for score in self.scores if not score.characters.length)

    @property
    def mean_page_rate(self) -> float | None:
        """The mean of the pages' character error rates, over pages with text."""
        rates = [rate for score in self.scores if (rate := score.characters.rate) is not None]
        return sum(rates) / len(rates) if rates else None

    def worst(self, count: int) -> list[PageScore]:
        """Pages by character errors, the most first; pages without any are left out."""
        wrong = [score for score in self.scores if score.characters.count]
        return sorted(wrong, key=lambda score: (-score.characters.count, score.document, score.page))[:count]

    def confused(self, count: int) -> list[tuple[str, str, int]]:
        """The commonest confusions: of the truth, as read, how often."""
        found = sorted(all_confusions(self.scores).items(), key=lambda item: (-item[1], item[0]))
        return [(truth, read, times) for (truth, read), times in found[:count]]


@dataclass(frozen=True, slots=True)
class Change:
    """One page in two runs: character errors of each."""

    document: str
    page: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """A run against the first one, on the pages that both have.  difference: of the rates; below 0 it is better."""

    first: str
    other: str
    pages: int
    better: int
    worse: int
    difference: float | None
    interval: Interval | None
    changes: tuple[Change, ...]
    only_first: tuple[tuple[str, int], ...]
    only_other: tuple[tuple[str, int], ...]


def measure(truth: Mapping[str, Mapping[int, str]], run: Transcripts, normalise: Callable[[str], str]) -> RunScores:
    """Scores every page that has both a truth and a reading."""
    matched = match(truth, run)
    scores = tuple(
        score_page(
            pair.document,
            pair.page,
            normalise(pair.truth),
            normalise(pair.reading.text),
            status=pair.reading.status,
            mean_log_prob=pair.reading.mean_log_prob,
        )
        for pair in matched.pairs
    )
    return RunScores(
        name=run.name,
        scores=scores,
        unread=matched.unread,
        untold=matched.untold,
        characters=total(scores, characters_of),
        words=total(scores, words_of),
        misread_words=sum(score.misread_words for score in scores),
        moved_words=sum(score.moved_words for score in scores),
        characters_interval=rate_interval([score.characters for score in scores]),
        words_interval=rate_interval([score.words for score in scores]),
        calibration=calibrate(scores),
    )


def compare(first: RunScores, other: RunScores) -> Comparison:
    """Page by page; the largest changes come first."""
    mine = {(score.document, score.page): score for score in first.scores}
    theirs = {(score.document, score.page): score for score in other.scores}
    both = sorted(mine.keys() & theirs.keys())
    before, after = [mine[key].characters for key in both], [theirs[key].characters for key in both]
    changes = [Change(*key, old.count, new.count) for key, old, new in zip(both, before, after, strict=True)]
    length = sum(errors.length for errors in before)
    return Comparison(
        first=first.name,
        other=other.name,
        pages=len(both),
        better=sum(change.after < change.before for change in changes),
        worse=sum(change.after > change.before for change in changes),
        difference=sum(change.after - change.before for change in changes) / length if length else None,
        interval=difference_interval(before, after),
        changes=tuple(sorted((one for one in changes if one.after != one.before), key=_by_size)),
        only_first=tuple(sorted(mine.keys() - theirs.keys())),
        only_other=tuple(sorted(theirs.keys() - mine.keys())),
    )


def compare_all(measured: Sequence[RunScores]) -> list[Comparison]:
    """Every run but the first against the first."""
    return [compare(measured[0], other) for other in measured[1:]]


def _by_size(change: Change) -> tuple[int, str, int]:
    return -abs(change.after - change.before), change.document, change.page
