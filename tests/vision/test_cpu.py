"""The encoder on the kernels: against Hugging Face, against itself, and end to end with the text model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pagemill.decoder.batch import Request
from pagemill.decoder.engine import Engine
from pagemill.decoder.errors import ModelError
from pagemill.decoder.kernels.isa import detect
from pagemill.decoder.kernels.team import available_cores
from pagemill.decoder.model import open_model
from pagemill.vision.encoder import open_encoder
from pagemill.vision.patches import prepare, to_patches
from pagemill.vision.segments import page_prompt
from tests.answers import oracle_files

PAGES = oracle_files("vision/page-*.npz")
FOLDER = PAGES[0].parent

PRECISIONS = [
    ("f32", 1e-5),  # two float32 implementations
    pytest.param("bf16", 5e-3, marks=pytest.mark.skipif(not detect().bf16, reason="no bf16 products on this CPU")),
]  # each product rounds its inputs to 8 bits: 2e-3, over three layers


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
@pytest.mark.parametrize(("precision", "bound"), PRECISIONS)
def test_embeddings_equal_an_independent_encoders(path: Path, precision: str, bound: float) -> None:
    answers = np.load(path)
    encoder = open_encoder(FOLDER / "tiny-mmproj-f32.gguf", precision=precision)
    found = encoder.encode(to_patches(answers["hf_pixels"], encoder.spec))
    encoder.close()
    error = np.linalg.norm(found - answers["hf_embd"]) / np.linalg.norm(answers["hf_embd"])
    assert error < bound


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
@pytest.mark.parametrize(("precision", "bound"), [("bf16", 0.9999), ("int8", 0.999)])
def test_rounded_products_keep_the_direction_of_every_row(path: Path, precision: str, bound: float) -> None:
    if precision == "bf16" and not detect().bf16:
        pytest.skip("no bf16 products on this CPU")
    pixels = np.load(path)["hf_pixels"]
    rows = []
    for kind in ("f32", precision):
        encoder = open_encoder(FOLDER / "tiny-mmproj-f32.gguf", precision=kind)
        rows.append(encoder.encode(to_patches(pixels, encoder.spec)).astype(np.float64))
        encoder.close()
    lengths = [np.linalg.norm(x, axis=1) for x in rows]
    assert ((rows[0] * rows[1]).sum(1) / (lengths[0] * lengths[1])).min() > bound


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_image_gives_the_recorded_tokens(path: Path) -> None:
    answers = np.load(path)
    encoder = open_encoder(FOLDER / "tiny-mmproj-f32.gguf", precision="f32")
    model = open_model(FOLDER / "tiny-text-f32.gguf", exact=True)
    pixels = prepare(Image.open(path.with_suffix(".png")), encoder.spec)
    rows = encoder.encode(to_patches(pixels, encoder.spec))
    engine = Engine(model, slots=1, context=1024, kv_cache="f32")
    events = engine.generate(Request(page_prompt(model.tokenizer, rows), len(answers["hf_greedy"])))
    encoder.close()
    engine.close()
    assert [event.token for event in events] == answers["hf_greedy"].tolist()


@pytest.mark.parametrize("precision", ["auto", "int8", "f32"])
def test_a_page_gives_the_same_bits_on_any_threads_and_after_any_page(precision: str) -> None:
    pages = [np.load(path)["hf_pixels"] for path in PAGES]
    path = FOLDER / "tiny-mmproj-f16.gguf"
    one = open_encoder(path, precision=precision, threads=1)
    two = open_encoder(path, precision=precision, threads=min(2, available_cores()))
    forwards = [one.encode(to_patches(page, one.spec)) for page in pages]
    backwards = [two.encode(to_patches(page, two.spec)) for page in pages[::-1]][::-1]
    for first, second in zip(forwards, backwards, strict=True):
        np.testing.assert_array_equal(first, second)
    one.close()
    two.close()


@pytest.mark.skipif(detect().bf16, reason="this CPU has bf16 products")
def test_bf16_is_refused_where_the_cpu_has_it_not() -> None:
    with pytest.raises(ModelError, match="bf16"):
        open_encoder(FOLDER / "tiny-mmproj-f32.gguf", precision="bf16")
