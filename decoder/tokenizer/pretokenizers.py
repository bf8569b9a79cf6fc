"""How each family of byte-level vocabularies cuts a text into words before it merges bytes.

Called by ``bpe``.  The patterns are those of llama.cpp (src/llama-vocab.cpp), which spells contractions out instead of
ignoring case, so that no letter that merely folds to "s" counts as one.
"""

from __future__ import annotations

from dataclasses import dataclass

_CONTRACTIONS = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@dataclass(frozen=True, slots=True)
class PreSplit:
    """patterns: applied one after the other, each to the pieces that the one before left.

    whole_words: a word that is itself a token is not merged from its bytes.  add_bos: what the file means if it is silent.
    """

    patterns: tuple[str, ...]
    whole_words: bool = False
    add_bos: bool = False


def _words(digits: str) -> str:
    return (
        rf"(?:{_CONTRACTIONS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


_LLAMA3 = PreSplit((_words(r"\p{N}{1,3}"),), whole_words=True, add_bos=True)
_QWEN2 = PreSplit((_words(r"\p{N}"),))
_PLAIN = PreSplit((_GPT2,))
_DEFAULT = PreSplit(
    (
        r"[\p{P}\$\+<=>\^~\|]+",
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
        r"\p{N}+",
        r"[0-9][0-9][0-9]",
    )
)

# Values of ``tokenizer.ggml.pre``.
PRE_SPLITS: dict[str, PreSplit] = {
    "default": _DEFAULT,
    "gpt-2": _PLAIN,
    "phi-2": _PLAIN,
    "olmo": _PLAIN,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "falcon3": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "smollm": PreSplit((r"\p{N}", _GPT2)),
}

# What a file without ``tokenizer.ggml.pre`` means, as in llama.cpp; such files often cut words otherwise than in training.
DEFAULT = "default"
