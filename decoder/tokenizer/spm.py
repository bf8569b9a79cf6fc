"""SentencePiece vocabularies as llama.cpp merges them (tokenizer.ggml.model = llama): best score first, then leftmost.

Called by ``tokenizer``, for text without special tokens.  The merge is ours, because a merge list cannot say "any two
neighbours that make a piece, at equal scores the leftmost": characters outside the vocabulary may merge too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

from pagemill.decoder.errors import Refused
from pagemill.decoder.tokenizer.vocabulary import PREFIX, Kind, Vocabulary, byte_of

SPACE = "\u2581"  # how a piece writes a space
_CACHED_WORDS = 1 << 16


class ScoredPieces:
    """Text to ids and ids to bytes of a vocabulary with scores; what has no piece is spelled in byte tokens."""

    def __init__(self, vocabulary: Vocabulary, scores: Sequence[float], *, add_space_prefix: bool) -> None:
        if len(scores) != len(vocabulary):
            found = f"{PREFIX}scores should have one entry for each of {len(vocabulary)} tokens, it has {len(scores)}"
            raise Refused("tokenizer", [found])
        self.add_space_prefix = add_space_prefix
        self._vocabulary = vocabulary
        self._scores = scores
        self._byte_ids = _byte_ids(vocabulary)
        self._cut = cut_pattern(vocabulary.texts)
        self._words: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str, *, after_special: bool) -> list[int]:
        """Ids of a text without special tokens.  after_special: it begins the text or follows a special token."""
        spaced = SPACE if self.add_space_prefix and after_special else ""
        ids: list[int] = []
        for word in self._cut.split(spaced + text.replace(" ", SPACE)):
            ids += self._word(word)
        return ids

    def piece(self, token_id: int) -> bytes:
        """The bytes that a token stands for; unused tokens stand for none."""
        text, kind = self._vocabulary.texts[token_id], self._vocabulary.kinds[token_id]
        match kind:
            case Kind.NORMAL:
                return text.replace(SPACE, " ").encode()
            case Kind.BYTE:
                return byte_of(text)
            case Kind.UNUSED | Kind.UNDEFINED:
                return b""
            case _:
                return text.encode()

    def _word(self, word: str) -> tuple[int, ...]:
        found = self._words.get(word)
        if found is None:
            if len(self._words) >= _CACHED_WORDS:
                self._words.clear()
            pieces = merge(word, self._vocabulary.ids, self._scores)
            found = self._words[word] = tuple(i for piece in pieces for i in self._ids(piece))
        return found

    def _ids(self, piece: str) -> Sequence[int]:
        found = self._vocabulary.ids.get(piece)
        if found is not None:
            return (found,)
        if "\ud800" <= piece <= "\udc7f" or "\udd00" <= piece <= "\udfff":
            piece = "\ufffd"  # half a surrogate pair; U+DC80 to U+DCFF are Python's escapes for bytes that are not UTF-8
        return [self._byte_ids[byte] for byte in piece.encode("utf-8", "surrogateescape")]


def merge(word: str, ids: dict[str, int], scores: Sequence[float]) -> list[str]:
    """The pieces of a word: while neighbours make tokens, those with the best score merge, at equal scores the leftmost."""
    pieces, count = list(word), len(word)
    after, before = list(range(1, count + 1)), list(range(-1, count - 1))
    queue: list[tuple[float, int, int, int]] = []  # (-score, left, right, characters of both)
    for left in range(count - 1):
        token = ids.get(pieces[left] + pieces[left + 1])
        if token is not None:
            queue.append((-scores[token], left, left + 1, 2))
    heapify(queue)
    while queue:
        _, left, right, size = heappop(queue)
        if not pieces[left] or not pieces[right] or len(pieces[left]) + len(pieces[right]) != size:
            continue  # one of the two was merged since
        pieces[left] += pieces[right]
        pieces[right] = ""
        after[left] = after[right]
        if after[right] < count:
            before[after[right]] = left
        for a, b in ((before[left], left), (left, after[left])):
            if a >= 0 and b < count and (token := ids.get(pieces[a] + pieces[b])) is not None:
                heappush(queue, (-scores[token], a, b, len(pieces[a]) + len(pieces[b])))
    return [piece for piece in pieces if piece]


def cut_pattern(texts: Iterable[str]) -> re.Pattern[str]:
    """Where a text can be cut before merging: before a space whose left neighbour no piece holds before a space."""
    joined = set(re.findall(f"([^{SPACE}\0]){SPACE}", "\0".join(texts)))
    kept = "".join(re.escape(letter) for letter in sorted(joined))
    return re.compile(f"(?<=[^{SPACE}{kept}])(?={SPACE})")


def _byte_ids(vocabulary: Vocabulary) -> list[int]:
    names = [(f"<0x{byte:02X}>", chr(byte)) for byte in range(256)]
    found = [vocabulary.ids.get(name, vocabulary.ids.get(letter, -1)) for name, letter in names]
    if missing := [name for (name, _), token in zip(names, found, strict=True) if token < 0]:
        reason = f"{len(missing)} of 256 byte tokens are missing, first {missing[0]}, so that not every text has ids"
        raise Refused("tokenizer", [f"{reason}; export the file again with byte fallback"])
    return found
