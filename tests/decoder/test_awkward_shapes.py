"""Shapes that no vector likes: widths that are no multiples of 16, odd head counts, prompts around every block edge."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pagemill.decoder.engine import logits
from pagemill.decoder.gguf.files import open_file
from pagemill.decoder.model import open_model
from tests.build import tiny_parts
from tests.decoder.reference_forward import Reference

SHAPES = {
    "narrow": ("qwen3", {"width": 24, "ff_width": 40, "heads": 1, "kv_heads": 1, "head_dim": 16, "vocab": 33}),
    "three heads a kv head": ("llama", {"width": 72, "ff_width": 56, "heads": 6, "kv_heads": 2, "head_dim": 48, "vocab": 51}),
    "seven heads": ("qwen2", {"width": 100, "ff_width": 96, "heads": 7, "kv_heads": 1, "head_dim": 32, "vocab": 64}),
    "wide heads": ("qwen3", {"width": 40, "ff_width": 33, "heads": 4, "kv_heads": 4, "head_dim": 80, "vocab": 17}),
    "large heads": ("llama", {"width": 64, "ff_width": 64, "heads": 2, "kv_heads": 1, "head_dim": 256, "vocab": 40}),
}


@pytest.mark.parametrize("length", [1, 65, 300])
@pytest.mark.parametrize("shape", SHAPES)
def test_any_shape_gives_the_definitions_logits(shape: str, length: int, tmp_path: Path) -> None:
    architecture, sizes = SHAPES[shape]
    path = tmp_path / "model.gguf"
    path.write_bytes(tiny_parts(architecture, context=512, **sizes).bytes())
    tokens = np.random.default_rng(length).integers(0, sizes["vocab"], length)
    expected = Reference(*open_file(path)).logits(tokens)
    model = open_model(path, exact=True)
    for split in (length, length // 2):  # as a prompt; half of it decoded
        found = logits(model, tokens.tolist(), kv_cache="f32", decode_from=split)
        assert np.linalg.norm(found - expected) / np.linalg.norm(expected) < 1e-5  # float32 against float64
