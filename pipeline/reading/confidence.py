"""How sure the model was: from the log-probs of tokens to the confidence of words, lines and the page.

A word's confidence is the probability of all its tokens together, a line's the geometric mean of its words', a page's the
geometric mean of its tokens'.  They rank what to look at; they are no error rates.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from pagemill.pipeline.page import PageText

NEARBY_CHARACTERS = 64  # how much of the model's answer may be missing before a word of the tidied text
LOWEST = 0.5  # percent, so that a word of 0 does not make its line 0

_WORD = re.compile(r"\S+")


def word_confidences(text: str, pieces: Sequence[tuple[str, float]]) -> tuple[int, ...]:
    """Percent for each word of ``text``.  pieces: the model's answer, in order, each part with its log-prob.

    text: the pieces together, tidied: characters may have gone, none were added.
    """
    answer = "".join(piece for piece, _ in pieces)
    ends = list(accumulate(len(piece) for piece, _ in pieces))
    confidences = []
    cursor = 0
    for match in _WORD.finditer(text):
        start, cursor = _find(answer, match[0], cursor)
        first, last = bisect_right(ends, start), bisect_right(ends, cursor - 1)
        total = sum(log_prob for _, log_prob in pieces[first : last + 1])
        confidences.append(round(100 * math.exp(min(total, 0.0))))
    return tuple(confidences)


def line_confidences(page: PageText) -> tuple[int | None, ...]:
    """Percent for each line of the page's text; None for a line without words, and where nothing is known."""
    lines = page.text.split("\n")
    if not page.word_confidences:
        return (None,) * len(lines)
    words = iter(page.word_confidences)
    return tuple(_geometric_mean([next(words) for _ in line.split()]) for line in lines)


def page_confidence(page: PageText) -> float | None:
    """From 0 to 1; None where nothing was decoded."""
    return None if page.mean_log_prob is None else math.exp(min(page.mean_log_prob, 0.0))


def _geometric_mean(percents: Sequence[int]) -> int | None:
    if not percents:
        return None
    return round(math.exp(sum(math.log(max(percent, LOWEST)) for percent in percents) / len(percents)))


def _find(answer: str, word: str, cursor: int) -> tuple[int, int]:
    """(start, end) of a word in the answer, at or after ``cursor``; letter by letter where letters are missing in it."""
    start = answer.find(word, cursor, cursor + NEARBY_CHARACTERS + len(word))
    if start >= 0:
        return start, start + len(word)
    places = []
    for letter in word:
        found = answer.find(letter, cursor, cursor + NEARBY_CHARACTERS)
        if found >= 0:
            places.append(found)
            cursor = found + 1
    return (places[0], cursor) if places else (cursor, cursor)
