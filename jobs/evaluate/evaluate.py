"""How well pages were read: edit distances of characters and words, and what kind of errors they are.

Rates are errors by truth length: of a page, and of many pages together as the sum of errors by the sum of lengths, so that
a page without text counts what was invented for it.  The distances are Levenshtein's (1966), every edit counting one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rapidfuzz.distance import Levenshtein

LONGEST_CONFUSION = 3  # characters on either side; longer pieces are lost or invented text, no confusion


@dataclass(frozen=True, slots=True)
class Errors:
    """Edits that turn the truth into what was read.  length: units of the truth."""

    substitutions: int
    deletions: int
    insertions: int
    length: int

    @property
    def count(self) -> int:
        """The edit distance."""
        return self.substitutions + self.deletions + self.insertions

    @property
    def rate(self) -> float | None:
        """Errors by length; None where the truth is empty and there is nothing to divide by."""
        return self.count / self.length if self.length else None

    def __add__(self, other: Errors) -> Errors:
        """The errors of both."""
        return Errors(
            self.substitutions + other.substitutions,
            self.deletions + other.deletions,
            self.insertions + other.insertions,
            self.length + other.length,
        )


NO_ERRORS = Errors(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class PageScore:
    """One page.  misread_words: wrong, missing or extra whatever the order; moved_words: right, but in another place.

    Their sum is the words' edit distance.  confusions: (of the truth, as read) -> how often; "" for nothing.
    """

    document: str
    page: int
    status: str
    characters: Errors
    words: Errors
    misread_words: int
    moved_words: int
    confusions: Counter[tuple[str, str]]
    mean_log_prob: float | None = None


def score_page(
    document: str, page: int, truth: str, read: str, *, status: str = "ok", mean_log_prob: float | None = None
) -> PageScore:
    """Compares one page; both texts are already normalised."""
    words = count_errors(truth.split(), read.split())
    misread = count_misread(truth.split(), read.split())
    return PageScore(
        document=document,
        page=page,
        status=status,
        characters=count_errors(truth, read),
        words=words,
        misread_words=misread,
        moved_words=words.count - misread,
        confusions=confusions(truth, read),
        mean_log_prob=mean_log_prob,
    )


def count_errors(truth: Sequence[str], read: Sequence[str]) -> Errors:
    """Edits from truth to read: of characters for two strings, of words for two lists."""
    kinds = Counter(edit.tag for edit in Levenshtein.editops(truth, read))
    return Errors(kinds["replace"], kinds["delete"], kinds["insert"], len(truth))


def count_misread(truth: Sequence[str], read: Sequence[str]) -> int:
    """Word errors that no other order of the words would mend; never more than their edit distance."""
    wanted, found = Counter(truth), Counter(read)
    return max((wanted - found).total(), (found - wanted).total())


def confusions(truth: str, read: str) -> Counter[tuple[str, str]]:
    """Short pieces of the truth and what was read for them.  Neighbouring edits are one piece: "rn" read as "m"."""
    pieces: Counter[tuple[str, str]] = Counter()
    start: tuple[int, int] | None = None
    ends = (0, 0)
    for edit in [*Levenshtein.opcodes(truth, read), None]:
        if edit is not None and edit.tag != "equal":
            start = start or (edit.src_start, edit.dest_start)
            ends = (edit.src_end, edit.dest_end)
        elif start is not None:
            piece = truth[start[0] : ends[0]], read[start[1] : ends[1]]
            if max(map(len, piece)) <= LONGEST_CONFUSION:
                pieces[piece] += 1
            start = None
    return pieces


def total(scores: Iterable[PageScore], errors_of: Callable[[PageScore], Errors]) -> Errors:
    """The errors of many pages together."""
    whole = NO_ERRORS
    for score in scores:
        whole += errors_of(score)
    return whole


def characters_of(score: PageScore) -> Errors:
    """A page's character errors."""
    return score.characters


def words_of(score: PageScore) -> Errors:
    """A page's word errors."""
    return score.words


def all_confusions(scores: Iterable[PageScore]) -> Counter[tuple[str, str]]:
    """The confusions of many pages together."""
    whole: Counter[tuple[str, str]] = Counter()
    for score in scores:
        whole.update(score.confusions)
    return whole
