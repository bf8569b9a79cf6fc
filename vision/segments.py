"""The prompt of a page: fixed chat tokens around the page's embedding rows.

The rows stand where the model's image tokens would: they are a segment of their own and never token ids.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pagemill.decoder import ModelError, Prompt, Rows, Tokenizer, Tokens

BEFORE_PAGE = "<|im_start|>system<|im_end|>\n<|im_start|>user\n"
AFTER_PAGE = "<|im_end|>\n<|im_start|>assistant\n"
MARKERS = ("<|im_start|>", "<|im_end|>")


def page_prompt(tokenizer: Tokenizer, embeddings: NDArray[np.float32], prompt_text: str = "") -> Prompt:
    """The prompt that asks for a page's text.

    embeddings: (rows, width) float32.  prompt_text: what follows the page directly, taken literally (a marker written in it
    is text); most page models are trained without any.
    """
    before, after = page_tokens(tokenizer, prompt_text)
    return Prompt((Tokens(before), Rows(embeddings), Tokens(after)))


def page_tokens(tokenizer: Tokenizer, prompt_text: str = "") -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The token ids before and after a page's rows."""
    missing = [marker for marker in MARKERS if tokenizer.token_id(marker) is None]
    if missing:
        raise ModelError(
            f"the text model's vocabulary has no {' or '.join(missing)}, which a page's prompt needs: "
            "give the text model that belongs to the mmproj file"
        )
    after = tokenizer.encode(prompt_text) if prompt_text else []
    after = after + tokenizer.encode(AFTER_PAGE, parse_special=True)
    return tuple(tokenizer.encode(BEFORE_PAGE, parse_special=True)), tuple(after)
