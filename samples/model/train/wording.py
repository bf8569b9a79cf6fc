"""What the pages say: prose, shuffled prose, dictionary words and codes, so that the model must look instead of guess."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

PRINTED = "".join(map(chr, range(33, 127)))
QUOTED = ('"{}"', "({})", "[{}]", "'{}'")
PROSE, SHUFFLED, DICTIONARY = 0.55, 0.65, 0.93  # cumulative; the rest is codes


@dataclass(frozen=True, slots=True)
class Wording:
    """Draws words for a block of text."""

    paragraphs: Sequence[str]
    words: Sequence[str]

    def draw(self, rng: Random, count: int) -> list[str]:
        """Up to `count` words that belong together."""
        kind = rng.random()
        if kind < PROSE:
            return self._prose(rng, count)
        if kind < SHUFFLED:
            words = rng.choice(self.paragraphs).split(" ")[:count]
            rng.shuffle(words)
            return words
        if kind < DICTIONARY:
            return [self._dictionary_word(rng) for _ in range(count)]
        return [self.code(rng) for _ in range(max(1, count // 2))]

    def _prose(self, rng: Random, count: int) -> list[str]:
        words = rng.choice(self.paragraphs).split(" ")
        first = 0 if len(words) <= count or rng.random() < 0.5 else rng.randrange(len(words) - count + 1)
        return words[first : first + count]

    def _dictionary_word(self, rng: Random) -> str:
        word, dress = rng.choice(self.words), rng.random()
        if dress < 0.10:
            return word.capitalize()
        if dress < 0.14:
            return word.upper()
        if dress < 0.22:
            return word + rng.choice(",,,.;:!?")
        if dress < 0.25:
            return rng.choice(QUOTED).format(word)
        return self.code(rng) if dress < 0.30 else word

    def code(self, rng: Random) -> str:
        """A number, date, price, identifier or random letters: nothing that a language model could guess."""
        return rng.choices(CODES, CODE_WEIGHTS)[0](rng, self.words)


def _number(rng: Random, _words: Sequence[str]) -> str:
    return str(rng.randint(0, 10 ** rng.randint(1, 7)))


def _date(rng: Random, _words: Sequence[str]) -> str:
    day, month, year = rng.randint(1, 31), rng.randint(1, 12), rng.randint(1900, 2030)
    return f"{year}-{month:02d}-{day:02d}" if rng.random() < 0.3 else f"{day}/{month}/{year}"


def _price(rng: Random, _words: Sequence[str]) -> str:
    return f"{rng.choice(('$', '$', '$', '', '#'))}{rng.randint(0, 9999):,}.{rng.randint(0, 99):02d}"


def _percent(rng: Random, _words: Sequence[str]) -> str:
    return f"{rng.randint(0, 100)}%"


def _letters(rng: Random, _words: Sequence[str]) -> str:
    return "".join(rng.choices(string.ascii_letters, k=rng.randint(1, 9)))


def _part_number(rng: Random, _words: Sequence[str]) -> str:
    return "".join(rng.choices(string.ascii_uppercase + string.digits + "-", k=rng.randint(2, 9)))


def _identifier(rng: Random, words: Sequence[str]) -> str:
    return rng.choice(words).lower().replace("'", "") + rng.choice("._-@/") + rng.choice(words).lower()


def _nonsense(rng: Random, _words: Sequence[str]) -> str:
    return "".join(rng.choices(string.ascii_lowercase, k=rng.randint(2, 12)))


def _anything(rng: Random, _words: Sequence[str]) -> str:
    return "".join(rng.choices(PRINTED, k=rng.randint(1, 7)))


CODES = (_number, _date, _price, _percent, _letters, _part_number, _identifier, _nonsense, _anything)
CODE_WEIGHTS = (25, 10, 10, 5, 10, 10, 10, 10, 10)
