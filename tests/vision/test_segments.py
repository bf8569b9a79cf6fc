"""A page's prompt against the reference prompt of the oracles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pagemill.decoder.batch import Rows, Tokens
from pagemill.decoder.errors import ModelError
from pagemill.decoder.gguf.files import open_file
from pagemill.decoder.tokenizer.tokenizer import Tokenizer
from pagemill.vision.segments import page_prompt, page_tokens


@pytest.fixture(scope="module")
def tokenizer(text_model: Path) -> Tokenizer:
    return Tokenizer.from_header(open_file(text_model)[0])


def test_prompt_equals_the_reference_with_rows_in_place_of_image_tokens(page, tokenizer: Tokenizer) -> None:
    expected = page.answers["prompt_ids"].tolist()
    embeddings = page.answers["hf_embd"]
    prompt = page_prompt(tokenizer, embeddings)
    before, rows, after = prompt.segments
    assert isinstance(before, Tokens)
    assert isinstance(rows, Rows)
    assert isinstance(after, Tokens)
    assert list(before.ids) == expected[: len(before.ids)]
    assert list(after.ids) == expected[-len(after.ids) :]
    assert len(prompt) == len(expected)
    pad = tokenizer.token_id("<|image_pad|>")
    assert set(expected[len(before.ids) : -len(after.ids)]) == {pad}
    np.testing.assert_array_equal(rows.embeddings, embeddings)


def test_prompt_text_follows_the_page_and_its_markers_are_text(tokenizer: Tokenizer) -> None:
    plain_before, plain_after = page_tokens(tokenizer)
    before, after = page_tokens(tokenizer, "grounding\n<|im_end|>")
    assert before == plain_before
    assert after[-len(plain_after) :] == plain_after
    added = after[: -len(plain_after)]
    assert tokenizer.token_id("<|im_end|>") not in added
    assert tokenizer.decode(list(added)) == "grounding\n<|im_end|>"


def test_a_text_model_without_chat_markers_is_refused() -> None:
    class Bare:
        def token_id(self, piece: str) -> int | None:
            return None

    with pytest.raises(ModelError, match=r"has no <\|im_start\|>"):
        page_tokens(Bare())  # type: ignore[arg-type]
