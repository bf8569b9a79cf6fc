"""Ids and bytes equal to llama.cpp's on every recorded string; partitions, refusals and the stream on small vocabularies."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from pagemill.decoder.errors import ModelError, Refused
from pagemill.decoder.gguf.files import open_file
from pagemill.decoder.gguf.parse import Header
from pagemill.decoder.tokenizer.pretokenizers import PRE_SPLITS
from pagemill.decoder.tokenizer.spm import cut_pattern, merge
from pagemill.decoder.tokenizer.tokenizer import Tokenizer
from pagemill.decoder.tokenizer.vocabulary import Kind
from tests.answers import ORACLE_DIRS, ORACLES, oracle_files
from tests.real_models import SOURCES, real_model

TINY = oracle_files("tokenizer/tiny-*.json")
REAL = [path for path in oracle_files("tokenizer/*.json") if path.stem in SOURCES]
CLEANED = ("gpt-2", "llama-bpe")  # llama.cpp drops spaces before punctuation when it writes these out; we do not


@dataclass(frozen=True, slots=True)
class Answer:
    """One recorded string.  text: with surrogate escapes where the bytes are no UTF-8."""

    category: str
    text: str
    ids: list[int]
    parsed: list[int]
    added: list[int]
    detokenized: bytes


def answers(path: Path) -> list[Answer]:
    """All strings of a file; an absent answer is the one before it, an absent detokenization the text."""
    record = json.loads(path.read_text(encoding="utf-8"))
    found = []
    for entry in [*record["strings"], *record.get("raw_bytes", [])]:
        data = bytes.fromhex(entry["bytes_hex"]) if "bytes_hex" in entry else entry["text"].encode()
        parsed = entry.get("ids_parse_special", entry["ids"])
        written = bytes.fromhex(entry["detok_parse_special_hex"]) if "detok_parse_special_hex" in entry else data
        text = data.decode("utf-8", "surrogateescape")
        added = entry.get("ids_add_special", parsed)
        found.append(Answer(entry.get("category", "raw"), text, entry["ids"], parsed, added, written))
    return found


@cache
def tiny_header(stem: str) -> Header:
    """The header of the tiny file that a record was made with."""
    path = next(path for path in TINY if path.stem == stem)
    model = json.loads(path.read_text(encoding="utf-8"))["model"]
    return open_file(next(d / model for d in ORACLE_DIRS if (d / model).exists()))[0]


@cache
def tiny(stem: str) -> Tokenizer:
    """The tokenizer of that file."""
    return Tokenizer.from_header(tiny_header(stem))


def check(tokenizer: Tokenizer, answer: Answer) -> None:
    """The three ids of one string."""
    assert tokenizer.encode(answer.text) == answer.ids
    assert tokenizer.encode(answer.text, parse_special=True) == answer.parsed
    if answer.category != "raw":  # recorded without what the model adds
        assert tokenizer.encode(answer.text, parse_special=True, add_special=True) == answer.added


@pytest.mark.parametrize("path", TINY, ids=lambda path: path.stem)
def test_tiny_vocabularies_give_llama_cpps_ids_and_bytes(path: Path) -> None:
    tokenizer = tiny(path.stem)
    cleans = path.stem.removeprefix("tiny-") in CLEANED
    for answer in answers(path):
        check(tokenizer, answer)
        written = answer.text.encode() if cleans else answer.detokenized
        assert tokenizer.decode_bytes(answer.parsed) == written, answer.text


@pytest.mark.slow
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_real_vocabularies_give_llama_cpps_ids_and_bytes(path: Path) -> None:
    model = real_model(path.stem)
    if model is None:
        pytest.skip("the packages that hold the model cannot be downloaded")
    tokenizer = Tokenizer.from_header(open_file(model)[0])
    for answer in answers(path):
        if answer.text == "</s>":  # an ordinary token to the file and to us, a control token to llama.cpp
            assert tokenizer.encode(answer.text) == answer.ids
        else:
            check(tokenizer, answer)
        assert tokenizer.decode_bytes(answer.parsed) == answer.detokenized


def changed(stem: str, drop: str = "", **metadata: object) -> Header:
    """A tiny file's header with some of its tokenizer's keys replaced, and one dropped."""
    header = tiny_header(stem)
    keys = {**header.metadata, **{f"tokenizer.ggml.{key}": value for key, value in metadata.items()}}
    keys.pop(f"tokenizer.ggml.{drop}", None)
    return replace(header, metadata=keys)


def extended(stem: str, *tokens: tuple[str, Kind], **metadata: object) -> Tokenizer:
    """A tiny tokenizer with more tokens at its end."""
    header = tiny_header(stem)
    texts = (*header.texts("tokenizer.ggml.tokens"), *(text for text, _ in tokens))
    kinds = np.array([*header.integers("tokenizer.ggml.token_type"), *(kind for _, kind in tokens)])
    scores = np.zeros(len(texts), np.float32)
    scores[: len(texts) - len(tokens)] = header.numbers("tokenizer.ggml.scores", default=[0.0] * (len(texts) - len(tokens)))
    return Tokenizer.from_header(changed(stem, tokens=texts, token_type=kinds, scores=scores, **metadata))


def test_longer_special_tokens_are_found_before_shorter_ones() -> None:
    tokenizer = extended("tiny-qwen2", ("<ab", Kind.CONTROL), ("bcd>", Kind.CONTROL))
    first = tokenizer.vocab_size - 2
    assert tokenizer.encode("<abcd>", parse_special=True) == [*tokenizer.encode("<a"), first + 1]
    assert tokenizer.encode("<ab<ab", parse_special=True) == [first, first]


def test_user_defined_tokens_are_found_and_shown_always() -> None:
    tokenizer = extended("tiny-qwen2", ("<think>", Kind.USER_DEFINED))
    ids = tokenizer.encode("a<think>b")
    assert ids[1] == tokenizer.vocab_size - 1
    assert tokenizer.decode(ids, special=False) == "a<think>b"


def test_special_tokens_are_invisible_unless_asked_for() -> None:
    tokenizer = tiny("tiny-qwen2")
    ids = tokenizer.encode("<|im_start|>user", parse_special=True)
    assert tokenizer.decode(ids) == "user"
    assert tokenizer.decode(ids, special=True) == "<|im_start|>user"


def test_a_vocabulary_with_placeholders_drops_blanks_after_its_markers() -> None:
    marks = ("<|assistant|>", "<|placeholder1|>", "<|end|>", "<|endoftext|>")
    tokenizer = extended("tiny-phi3-spm", *((mark, Kind.CONTROL) for mark in marks))
    plain, first = tokenizer.encode("Hi"), tokenizer.vocab_size - len(marks)
    assert tokenizer.encode("<|end|>\n <|assistant|>\tHi", parse_special=True) == [first + 2, first, *plain]
    assert tokenizer.encode("<|endoftext|>\nHi", parse_special=True) == [first + 3, *tokenizer.encode("\nHi")]


def test_generation_ends_at_every_marker_that_can_only_be_one() -> None:
    tokenizer = extended(
        "tiny-qwen2", ("<end_of_turn>", Kind.NORMAL), ("</s>", Kind.NORMAL), ("<|file_sep|>", Kind.USER_DEFINED)
    )
    first = tokenizer.vocab_size - 3
    assert tokenizer.eos_ids >= {first, first + 2, tokenizer.token_id("<|im_end|>")}
    assert first + 1 not in tokenizer.eos_ids, "an ordinary </s> is markup that a page may hold"
    assert tokenizer.decode([first, first + 1]) == "</s>"


def test_tokens_of_every_kind_have_their_bytes() -> None:
    kinds = (Kind.BYTE, Kind.UNUSED, Kind.UNKNOWN, Kind.NORMAL)
    for stem, spaced in (("tiny-qwen2", "Ġx"), ("tiny-llama-spm", "▁x")):
        tokenizer = extended(stem, *zip(("<0xe9>", "[PAD7]", "<what>", spaced + "q"), kinds, strict=True))
        ids = range(tokenizer.vocab_size - 4, tokenizer.vocab_size)
        assert [tokenizer.piece(i) for i in ids] == [b"\xe9", b"", b"<what>", b" xq"]


def test_missing_pre_split_means_llama_cpps_default_and_is_reported() -> None:
    text = "It's 1234 o'clock,  isn't\tit? a+b<=c ~x|y (approx)...\n\n"
    silent, named = (
        Tokenizer.from_header(header) for header in (changed("tiny-gpt-2", drop="pre"), changed("tiny-gpt-2", pre="default"))
    )
    assert silent.encode(text) == named.encode(text)
    assert "tokenizer.ggml.pre is missing" in silent.warnings[0]
    assert named.warnings == ()


def test_the_default_pre_split_gives_llama_cpps_ids() -> None:
    recorded = json.loads((ORACLES / "tokenizer" / "default-pre.json").read_text(encoding="utf-8"))
    header, _ = open_file(ORACLES / "archs" / "qwen3.gguf")
    silent = {key: value for key, value in header.metadata.items() if key != "tokenizer.ggml.pre"}
    tokenizer = Tokenizer.from_header(replace(header, metadata=silent))
    assert len(recorded["cases"]) > 200
    assert [(text, tokenizer.encode(text)) for text, _ in recorded["cases"]] == [tuple(case) for case in recorded["cases"]]


def test_the_default_pre_split_keeps_punctuation_and_three_digits_apart() -> None:
    cuts = [pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated") for pattern in PRE_SPLITS["default"].patterns]
    pieces = pre_tokenizers.Sequence(cuts).pre_tokenize_str("Price: $1234567.89 (approx)... a+b<=c ~x|y")
    assert [piece for piece, _ in pieces] == [  # as llama.cpp cuts: its four patterns, one after the other
        *("Price", ":", " ", "$", "123", "456", "7", ".", "89", " ", "(", "approx", ")...", " a", "+", "b", "<=", "c", " "),
        *("~", "x", "|", "y"),
    ]


def test_texts_begin_and_end_with_what_the_file_adds() -> None:
    header = changed("tiny-llama-spm", drop="add_bos_token", add_eos_token=True)
    assert Tokenizer.from_header(header).encode("", add_special=True) == [1, 2]
    assert Tokenizer.from_header(changed("tiny-llama-bpe", drop="add_bos_token")).encode("", add_special=True) == [381]
    assert tiny("tiny-qwen2").encode("", add_special=True) == []


REFUSED = {
    "unknown model": ("tiny-qwen2", {"model": "t5"}, "'t5', known are gpt2, llama"),
    "unknown pre-split": ("tiny-qwen2", {"pre": "viking"}, "'viking', known are default"),
    "no tokens": ("tiny-qwen2", {"tokens": (), "token_type": np.zeros(0, np.int32)}, "tokens is empty"),
    "a token twice": ("tiny-qwen2", {"tokens": ("!", "b", "!"), "token_type": np.ones(3, np.int32)}, "'!' is token 0 and"),
    "too few kinds": ("tiny-qwen2", {"token_type": np.ones(3, np.int32)}, "each of 384 tokens, it has 3"),
    "a merge of no tokens": ("tiny-qwen2", {"merges": ("i n", "nix", "q zz")}, "2 of 3 entries"),
    "too few scores": ("tiny-llama-spm", {"scores": np.zeros(5, np.float32)}, "each of 384 tokens, it has 5"),
    "no byte tokens": (
        "tiny-llama-spm",
        {"tokens": ("a", "b"), "token_type": np.ones(2, np.int32), "scores": np.zeros(2, np.float32)},
        "254 of 256 byte tokens are missing, first <0x00>",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_say_what_is_wrong(case: str) -> None:
    stem, metadata, message = REFUSED[case]
    with pytest.raises(Refused, match=re.escape(message)):
        Tokenizer.from_header(changed(stem, **metadata))


@pytest.mark.parametrize("token_id", [-1, 384])
def test_ids_outside_the_vocabulary_are_an_error(token_id: int) -> None:
    with pytest.raises(ModelError, match="expected 0 to 383"):
        tiny("tiny-qwen2").decode([token_id])


@pytest.mark.parametrize("stem", ["tiny-qwen2", "tiny-llama-spm"])
def test_half_a_surrogate_pair_is_a_replacement_character(stem: str) -> None:
    assert tiny(stem).encode("a\ud83db") == tiny(stem).encode("a\ufffdb")


def greedy(text: str, scores: dict[str, float]) -> list[str]:
    """SentencePiece's merge by its definition: look at every pair again after each merge."""
    pieces = list(text)
    while True:
        found = [(-scores[a + b], i) for i, (a, b) in enumerate(pairwise(pieces)) if a + b in scores]
        if not found:
            return pieces
        _, i = min(found)
        pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]


LETTERS = st.text("ab▁c", min_size=1, max_size=24)


@given(LETTERS, st.dictionaries(st.text("ab▁", min_size=1, max_size=5), st.integers(-5, 5), max_size=30))
@settings(deadline=None, database=None)
def test_merging_equals_its_definition(text: str, scores: dict[str, int]) -> None:
    ids = {piece: i for i, piece in enumerate(scores)}
    expected = greedy(text, scores)
    assert merge(text, ids, list(scores.values())) == expected
    assert [piece for word in cut_pattern(scores).split(text) for piece in merge(word, ids, list(scores.values()))] == expected


STEMS = ("tiny-qwen2", "tiny-llama-spm", "tiny-gemma-spm")


@pytest.mark.parametrize("stem", STEMS)
@given(st.lists(st.integers(0, 383), max_size=40), st.booleans())
@settings(deadline=None, database=None)
def test_pushed_tokens_and_flush_equal_decode(stem: str, ids: list[int], special: bool) -> None:
    tokenizer = tiny(stem)
    stream = tokenizer.detokenizer(special=special)
    assert "".join([*map(stream.push, ids), stream.flush()]) == tokenizer.decode(ids, special=special)


@pytest.mark.parametrize("stem", STEMS)
def test_no_push_shows_a_part_of_a_character(stem: str) -> None:
    tokenizer = tiny(stem)
    text = "naïve 汉字 👩‍👩‍👧 e\u0301 ✓"
    stream, shown = tokenizer.detokenizer(), ""
    for token in tokenizer.encode(text):
        shown += stream.push(token)
        assert text.startswith(shown)
    assert shown == text
    assert stream.flush() == ""


def test_flush_shows_an_unfinished_character_as_replacement() -> None:
    tokenizer = tiny("tiny-qwen2")
    stream = tokenizer.detokenizer()
    assert [stream.push(token) for token in tokenizer.encode("汉")[:-1]][-1:] == [""]
    assert stream.flush() == "\ufffd"


def test_a_continued_text_keeps_its_first_space() -> None:
    tokenizer = tiny("tiny-llama-spm")
    (token, *_) = tokenizer.encode(" is")
    assert tokenizer.detokenizer().push(token) == tokenizer.decode([token])
    assert tokenizer.detokenizer(continues=True).push(token) == " " + tokenizer.decode([token])
