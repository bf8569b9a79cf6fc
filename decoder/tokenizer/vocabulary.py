"""The tokens of a GGUF file: texts, kinds, and which of them begin or end a text.

Called by ``tokenizer``; knows nothing of merging.  Files often call a control token an ordinary one, so tokens that can only
be markers are found by their text, as llama.cpp does (src/llama-vocab.cpp).  One exception is ours: ``</s>`` and ``<eos>``
stay ordinary where the file says so, because they are also markup that a page may hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from pagemill.decoder.errors import Refused
from pagemill.decoder.gguf.parse import Header

PREFIX = "tokenizer.ggml."


class Kind(IntEnum):
    """The values of ``tokenizer.ggml.token_type``."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


HIDDEN = frozenset({Kind.UNKNOWN, Kind.CONTROL})  # kinds that text holds only when special tokens are asked for, in and out

_END_TEXTS = frozenset({
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>", "<EOT>",
    "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<turn|>", "<｜end▁of▁sentence｜>",
})  # fmt: skip
_MARKUP_ENDS = frozenset({"</s>", "<eos>"})
_FILL_TEXTS = {
    "fim_pre": ("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>"),
    "fim_suf": ("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>"),
    "fim_mid": ("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>"),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}
_FILL_ENDS = frozenset({"fim_pad", "fim_rep", "fim_sep"})


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokens of one file.  ids: the inverse of texts.  eos_ids: every token that ends a generation."""

    texts: tuple[str, ...]
    kinds: bytes  # one Kind a token
    ids: dict[str, int]
    bos_id: int | None
    eos_id: int | None
    eos_ids: frozenset[int]

    def __len__(self) -> int:
        return len(self.texts)

    def of_kind(self, *kinds: Kind) -> list[int]:
        """Ids of the tokens of these kinds, ascending."""
        table = np.frombuffer(self.kinds, np.uint8)
        return [int(i) for i in np.flatnonzero(np.isin(table, kinds))]


def read_vocabulary(header: Header, *, bos_id: int | None = None, eos_id: int | None = None) -> Vocabulary:
    """The tokens of a header; bos_id and eos_id are what the tokenizer's family means when the file names none."""
    texts = tuple(text or f"[EMPTY_{i}]" for i, text in enumerate(header.texts(PREFIX + "tokens")))
    ids = {text: i for i, text in enumerate(texts)}
    kinds = bytearray(_kinds(header, len(texts)))
    if reasons := list(_faults(texts, ids, kinds)):
        raise Refused("tokenizer", reasons)
    fills = dict(_fill_ids(header, ids))
    ends = {ids[text] for text in _END_TEXTS if text in ids}
    for i in ends.union(*(fills[name] for name in _FILL_TEXTS if not _named(header, name, len(ids)))):
        kinds[i] = Kind.CONTROL
    ends |= {ids[text] for text in _MARKUP_ENDS if text in ids and kinds[ids[text]] == Kind.CONTROL}
    ends = ends.union(*(fills[name] for name in _FILL_ENDS))
    bos, eos = _special(header, "bos", len(ids), bos_id), _special(header, "eos", len(ids), eos_id)
    ends |= {i for i in (eos, *(_special(header, name, len(ids)) for name in ("eot", "eom"))) if i is not None}
    return Vocabulary(texts, bytes(kinds), ids, bos, eos, frozenset(ends))


def byte_of(text: str) -> bytes:
    """The byte that a byte token such as ``<0x0A>`` stands for; another text stands for itself."""
    return bytes([int(text[3:5], 16)]) if re.fullmatch("<0x[0-9A-Fa-f]{2}>", text) else text.encode()


def _kinds(header: Header, count: int) -> bytes:
    values = np.asarray(header.integers(PREFIX + "token_type", default=[Kind.NORMAL] * count))
    return np.where((values >= 0) & (values <= max(Kind)), values, Kind.UNDEFINED).astype(np.uint8).tobytes()


def _faults(texts: Sequence[str], ids: dict[str, int], kinds: bytearray) -> Iterator[str]:
    if not texts:
        yield f"{PREFIX}tokens is empty: the file holds no vocabulary; export it again with its tokenizer"
    if len(kinds) != len(texts):
        yield f"{PREFIX}token_type should have one entry for each of {len(texts)} tokens, it has {len(kinds)}"
    if len(ids) != len(texts):
        twice = next(i for i, text in enumerate(texts) if ids[text] != i)
        yield f"every token should be there once, but {texts[twice]!r} is token {twice} and token {ids[texts[twice]]}"


def _fill_ids(header: Header, ids: dict[str, int]) -> Iterator[tuple[str, frozenset[int]]]:
    for name, texts in _FILL_TEXTS.items():
        named = _named(header, name, len(ids))
        yield name, frozenset(named if named else (ids[text] for text in texts if text in ids))


def _named(header: Header, name: str, count: int) -> tuple[int, ...]:
    found = _special(header, name, count)
    return () if found is None else (found,)


def _special(header: Header, name: str, count: int, default: int | None = None) -> int | None:
    """The id that the file gives a special token; one outside the vocabulary counts as none."""
    found = header.integer(f"{PREFIX}{name}_token_id", default=-1)
    if 0 <= found < count:
        return found
    return default if default is not None and default < count else None
