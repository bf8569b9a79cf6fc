"""The model's tokenizer and the turns around an image."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tokenizers import Tokenizer

FILE = Path(__file__).parents[1] / "tokenizer.json"
END = "<|im_end|>"
SYSTEM = "<|im_start|>system<|im_end|>\n"
ASSISTANT = "<|im_end|>\n<|im_start|>assistant\n"
TURNS = (  # before and after the image: the model's own form first, then llama.cpp's, then both without a system turn
    (SYSTEM + "<|im_start|>user\n", ASSISTANT),
    (SYSTEM + "<|im_start|>user\n<|im_start|>", "<|im_end|>" + ASSISTANT),
    ("<|im_start|>user\n<|im_start|>", "<|im_end|>" + ASSISTANT),
    ("<|im_start|>user\n", ASSISTANT),
)
TURN_WEIGHTS = (0.6, 0.2, 0.1, 0.1)


@dataclass(frozen=True, slots=True)
class Turn:
    """Token ids before and after the image."""

    before: tuple[int, ...]
    after: tuple[int, ...]


@cache
def open_tokenizer() -> Tokenizer:
    """The byte-level BPE of 1,536 tokens."""
    return Tokenizer.from_file(str(FILE))


@cache
def end_id() -> int:
    """The token that ends a page."""
    return open_tokenizer().get_vocab()[END]


@cache
def turns() -> tuple[Turn, ...]:
    """All forms of the prompt."""
    encode = open_tokenizer().encode
    return tuple(Turn(tuple(encode(before).ids), tuple(encode(after).ids)) for before, after in TURNS)
