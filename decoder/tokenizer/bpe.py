"""Byte-level BPE: words of bytes, merged in the order of the file's merge list (tokenizer.ggml.model = gpt2).

Called by ``tokenizer``, for text without special tokens.  Merging is the ``tokenizers`` library's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import tokenizers
from tokenizers import models, pre_tokenizers

from pagemill.decoder.errors import Refused
from pagemill.decoder.tokenizer.pretokenizers import PreSplit
from pagemill.decoder.tokenizer.vocabulary import PREFIX, Kind, Vocabulary, byte_of


class BytePairs:
    """Text to ids and ids to bytes of a byte-level vocabulary.  Refuses merges of or into what is no token."""

    add_space_prefix = False

    def __init__(self, vocabulary: Vocabulary, merges: Sequence[str], split: PreSplit) -> None:
        pairs = _pairs(vocabulary, merges)
        self._vocabulary = vocabulary
        self._merger = tokenizers.Tokenizer(models.BPE(vocab=vocabulary.ids, merges=pairs, ignore_merges=split.whole_words))
        cuts = [pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated") for pattern in split.patterns]
        to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        self._merger.pre_tokenizer = pre_tokenizers.Sequence([*cuts, to_bytes])

    def encode(self, text: str, *, after_special: bool) -> list[int]:
        """Ids of a text without special tokens; half a surrogate pair counts as U+FFFD, which is what it can only show as."""
        try:
            ids: list[int] = self._merger.encode(text, add_special_tokens=False).ids
        except (TypeError, UnicodeEncodeError):
            whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
            ids = self._merger.encode(whole, add_special_tokens=False).ids
        return ids

    def piece(self, token_id: int) -> bytes:
        """The bytes that a token stands for; unused tokens stand for none."""
        text, kind = self._vocabulary.texts[token_id], self._vocabulary.kinds[token_id]
        match kind:
            case Kind.NORMAL:
                return _unmap(text)
            case Kind.BYTE:
                return byte_of(text)
            case Kind.UNUSED | Kind.UNDEFINED:
                return b""
            case _:
                return text.encode()


def _pairs(vocabulary: Vocabulary, merges: Sequence[str]) -> list[tuple[str, str]]:
    ids = vocabulary.ids
    cuts = [merge.find(" ", 1) for merge in merges]  # a piece is never empty, so the first character is no separator
    pairs = [(merge[:cut], merge[cut + 1 :]) for merge, cut in zip(merges, cuts, strict=True)]
    bad = [i for i, (left, right) in enumerate(pairs) if left not in ids or right not in ids or left + right not in ids]
    if bad:
        reason = f"{len(bad)} of {len(merges)} entries of {PREFIX}merges do not make a token of two tokens, first {bad[0]}"
        raise Refused("tokenizer", [f"{reason}: {merges[bad[0]]!r}; export the file again with its own tokenizer"])
    return pairs


def _byte_letters() -> Iterator[tuple[int, int]]:
    """(letter, byte): GPT-2 writes printable Latin-1 bytes as themselves and the others as letters from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    letter = 0x100
    for byte in range(256):
        yield (byte if byte in printable else letter), byte
        letter += byte not in printable


_BYTES = dict(_byte_letters())


def _unmap(text: str) -> bytes:
    try:
        return text.translate(_BYTES).encode("latin-1")
    except UnicodeEncodeError:  # a file may hold tokens outside the byte alphabet
        return b"".join(bytes([_BYTES[ord(c)]]) if ord(c) in _BYTES else c.encode() for c in text)
