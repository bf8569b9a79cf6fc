"""Text to token ids and back, from a GGUF header alone.

Called by the engine's users and by ``template``.  Special tokens are cut out here; what lies between them goes to ``bpe`` or
``spm``.  Refuses a tokenizer model or pre-split that it does not know.

Ids and bytes are llama.cpp's, with one intended difference: its "clean spaces" step, which drops spaces before punctuation
when it writes the tokens of some vocabularies, is left out, because a transcription must not lose what the model wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from pagemill.decoder.errors import ModelError, Refused
from pagemill.decoder.gguf.parse import Header
from pagemill.decoder.tokenizer.bpe import BytePairs
from pagemill.decoder.tokenizer.detokenizer import Detokenizer
from pagemill.decoder.tokenizer.pretokenizers import DEFAULT, PRE_SPLITS
from pagemill.decoder.tokenizer.spm import ScoredPieces
from pagemill.decoder.tokenizer.vocabulary import HIDDEN, PREFIX, Kind, Vocabulary, read_vocabulary

MODELS = ("gpt2", "llama")  # values of ``tokenizer.ggml.model`` that are known: byte-level BPE and SentencePiece

NO_PRE = (
    f"{PREFIX}pre is missing: words are cut by llama.cpp's default rule, which the model may not have been trained with; "
    "convert the model again with a current converter"
)

_BLANK = " \t\n\v\f\r"
_RSTRIP_MARKS = frozenset({"<|assistant|>", "<|placeholder1|>"})  # a vocabulary with both eats blanks after a marker ...
_NO_RSTRIP = frozenset({"<unk>", "<s>", "<|endoftext|>"})  # ... but after these


class Pieces(Protocol):
    """What differs between the families: how plain text becomes ids, and a token bytes."""

    add_space_prefix: bool

    def encode(self, text: str, *, after_special: bool) -> list[int]:
        """Ids of text that holds no special token."""

    def piece(self, token_id: int) -> bytes:
        """The bytes that a token stands for."""


@dataclass(frozen=True, slots=True)
class Special:
    """A token that is found in the text before anything is merged.  rstrip: blanks after it belong to it."""

    text: str
    token_id: int
    rstrip: bool


class Tokenizer:
    """The tokens of one model.  bos_id and eos_id begin and end a text; eos_ids are all that end a generation.  Thread-safe.

    warnings: what the file leaves open, and what was taken for granted.
    """

    def __init__(
        self, vocabulary: Vocabulary, pieces: Pieces, *, add_bos: bool, add_eos: bool, warnings: tuple[str, ...] = ()
    ) -> None:
        self.warnings = warnings
        self._vocabulary = vocabulary
        self._pieces = pieces
        self._head = [vocabulary.bos_id] if add_bos and vocabulary.bos_id is not None else []
        self._tail = [vocabulary.eos_id] if add_eos and vocabulary.eos_id is not None else []
        self._specials = _specials(vocabulary, Kind.CONTROL, Kind.USER_DEFINED, Kind.UNKNOWN)
        self._always_special = _specials(vocabulary, Kind.USER_DEFINED)
        self.bos_id = vocabulary.bos_id
        self.eos_id = vocabulary.eos_id
        self.eos_ids = vocabulary.eos_ids
        self.vocab_size = len(vocabulary)

    @classmethod
    def from_header(cls, header: Header) -> Tokenizer:
        """The tokenizer of a file; raises Refused, or NotGguf if a key is missing or ill-typed."""
        match header.text(PREFIX + "model"):
            case "gpt2":
                return _byte_pairs(cls, header)
            case "llama":
                return _scored_pieces(cls, header)
            case other:
                raise Refused("tokenizer", [f"{PREFIX}model is {other!r}, known are {', '.join(MODELS)}"])

    def encode(self, text: str, *, parse_special: bool = False, add_special: bool = False) -> list[int]:
        """Ids of a text.

        parse_special: the names of special tokens in the text become these tokens; only for text that we wrote ourselves.
        add_special: also add the tokens with which the model begins and ends every text.
        """
        ids: list[int] = []
        after_special = True
        for part in _partition(text, self._specials if parse_special else self._always_special):
            if isinstance(part, int):
                ids.append(part)
            else:
                ids += self._pieces.encode(part, after_special=after_special)
            after_special = isinstance(part, int)
        return [*self._head, *ids, *self._tail] if add_special else ids

    def decode_bytes(self, ids: Sequence[int], *, special: bool = True) -> bytes:
        """The bytes of a sequence of tokens, which may end amid a character.  special: write special tokens out."""
        data = b"".join(self.piece(i, special=special) for i in ids[:1])
        if self._pieces.add_space_prefix:
            data = data.removeprefix(b" ")
        return data + b"".join(self.piece(i, special=special) for i in ids[1:])

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        """The text of a sequence of tokens; bytes that are no UTF-8 become U+FFFD."""
        return self.decode_bytes(ids, special=special).decode("utf-8", "replace")

    def detokenizer(self, *, special: bool = False, continues: bool = False) -> Detokenizer:
        """The streaming form of decode.  continues: the tokens go on after others, so that their first space counts."""
        strip_space = self._pieces.add_space_prefix and not continues
        return Detokenizer(partial(self.piece, special=special), strip_space=strip_space)

    def piece(self, token_id: int, *, special: bool = True) -> bytes:
        """The bytes of one token.  special: write a special token out."""
        if not 0 <= token_id < self.vocab_size:
            raise ModelError(f"token id {token_id} is outside the vocabulary: expected 0 to {self.vocab_size - 1}")
        return b"" if not special and self._vocabulary.kinds[token_id] in HIDDEN else self._pieces.piece(token_id)

    def token_id(self, piece: str) -> int | None:
        """The id of a token by its text in the file, or None."""
        return self._vocabulary.ids.get(piece)

    def token_text(self, token_id: int) -> str:
        """A token's text in the file (byte-level vocabularies write bytes as letters)."""
        return self._vocabulary.texts[token_id]


def _byte_pairs(cls: type[Tokenizer], header: Header) -> Tokenizer:
    pre = header.text(PREFIX + "pre", default=DEFAULT)
    warnings = () if PREFIX + "pre" in header.metadata else (NO_PRE,)
    if pre not in PRE_SPLITS:
        raise Refused("tokenizer", [f"{PREFIX}pre is {pre!r}, known are {', '.join(PRE_SPLITS)}"])
    split = PRE_SPLITS[pre]
    vocabulary = read_vocabulary(header)
    pieces = BytePairs(vocabulary, list(header.texts(PREFIX + "merges")), split)
    return _build(cls, header, vocabulary, pieces, add_bos=split.add_bos, warnings=warnings)


def _scored_pieces(cls: type[Tokenizer], header: Header) -> Tokenizer:
    vocabulary = read_vocabulary(header, bos_id=1, eos_id=2)
    scores = np.asarray(header.numbers(PREFIX + "scores", default=[0.0] * len(vocabulary)), np.float32)
    prefix = header.flag(PREFIX + "add_space_prefix", default=True)
    pieces = ScoredPieces(vocabulary, scores.tolist(), add_space_prefix=prefix)
    return _build(cls, header, vocabulary, pieces, add_bos=True)


def _build(
    cls: type[Tokenizer],
    header: Header,
    vocabulary: Vocabulary,
    pieces: Pieces,
    *,
    add_bos: bool,
    warnings: tuple[str, ...] = (),
) -> Tokenizer:
    add_bos = header.flag(PREFIX + "add_bos_token", default=add_bos)
    add_eos = header.flag(PREFIX + "add_eos_token", default=False)
    return cls(vocabulary, pieces, add_bos=add_bos, add_eos=add_eos, warnings=warnings)


def _specials(vocabulary: Vocabulary, *kinds: Kind) -> tuple[Special, ...]:
    """Special tokens of these kinds in the order in which a text is searched: longest first."""
    strips = vocabulary.ids.keys() >= _RSTRIP_MARKS
    found = [
        Special(vocabulary.texts[i], i, strips and vocabulary.texts[i] not in _NO_RSTRIP) for i in vocabulary.of_kind(*kinds)
    ]
    return tuple(sorted(found, key=lambda special: -len(special.text.encode())))


def _partition(text: str, specials: Sequence[Special]) -> list[str | int]:
    """Plain texts and special tokens in order.  Longer specials are cut out everywhere before shorter ones."""
    parts: list[str | int] = [text] if text else []
    for special in specials:
        if special.text in text:
            parts = [cut for part in parts for cut in (_cut(part, special) if isinstance(part, str) else (part,))]
    return parts


def _cut(text: str, special: Special) -> list[str | int]:
    first, *others = text.split(special.text)
    parts: list[str | int] = [first] if first else []
    for other in others:
        rest = other.lstrip(_BLANK) if special.rstrip else other
        parts += [special.token_id, rest] if rest else [special.token_id]
    return parts
