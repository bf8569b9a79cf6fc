"""The numpy encoder against the reference implementation's recorded embeddings."""

from __future__ import annotations

from math import erf, exp

import numpy as np
import pytest

from pagemill.vision import reference as numpy_encoder
from pagemill.vision.errors import BadPixels
from pagemill.vision.patches import Patches, normalise, prepare, to_patches
from pagemill.vision.positions import Grid
from pagemill.vision.reference import ReferenceEncoder, attend, gelu, silu
from pagemill.vision.weights import plan_encoder


def relative(found: np.ndarray, expected: np.ndarray) -> float:
    assert found.shape == expected.shape
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def test_embeddings_agree_with_the_reference(page, reference: ReferenceEncoder) -> None:
    found = reference.encode(to_patches(page.answers["hf_pixels"], reference.spec))
    assert found.dtype == np.float32
    assert relative(found, page.answers["hf_embd"]) < 1e-5  # two float32 implementations; measured 1e-6


def test_embeddings_of_other_pixels_agree_too(page, reference: ReferenceEncoder) -> None:
    pixels = normalise(page.answers["llama_pixels_u8"], reference.spec)
    assert relative(reference.encode(to_patches(pixels, reference.spec)), page.answers["hf_embd_llama_px"]) < 1e-5


def test_another_engine_agrees_up_to_its_half_precision_patches(page, reference: ReferenceEncoder) -> None:
    found = reference.encode(to_patches(page.answers["hf_pixels"], reference.spec))
    assert relative(found, page.answers["llama_embd_hfpx"]) < 1e-3


def test_half_precision_file_stays_near(page, mmproj_f16) -> None:
    planned = plan_encoder(mmproj_f16)
    encoder = ReferenceEncoder(planned.spec, planned.weights())
    found = encoder.encode(to_patches(page.answers["hf_pixels"], planned.spec))
    assert relative(found, page.answers["hf_embd"]) < 1e-3  # the weights' own rounding; measured 6e-4


def test_an_odd_patch_row_is_seen_by_attention_and_dropped_by_the_merge(page, reference: ReferenceEncoder) -> None:
    if "hf_embd14" not in page.answers:
        pytest.skip("both rounding rules agree on this page")
    found = reference.encode(to_patches(prepare(page.open(), reference.spec, 14), reference.spec))
    assert relative(found, page.answers["hf_embd14"]) < 1e-3  # resized by another library: 5e-4


def test_query_blocks_do_not_change_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    query, key, value = np.random.default_rng(3).standard_normal((3, 50, 2, 8)).astype(np.float32)
    whole = attend(query, key, value)
    monkeypatch.setattr(numpy_encoder, "QUERY_ROWS", 7)
    np.testing.assert_allclose(attend(query, key, value), whole, rtol=1e-5, atol=1e-6)


def test_activations_are_exact_also_far_out() -> None:
    x = np.array([-200.0, -90.0, -5.0, -1e-3, 0.0, 1e-3, 1.0, 7.0, 90.0, 3e38], np.float32)
    exact_gelu = [float(v) * 0.5 * (1 + erf(float(v) / 2**0.5)) for v in x]
    exact_silu = [float(v) / (1 + exp(-min(max(float(v), -700), 700))) for v in x]
    np.testing.assert_allclose(gelu(x), exact_gelu, rtol=1e-6)
    np.testing.assert_allclose(silu(x), exact_silu, rtol=1e-5, atol=1e-5)


def test_patches_of_another_shape_are_refused(reference: ReferenceEncoder) -> None:
    rows = np.zeros((4, 588), np.float32)
    with pytest.raises(BadPixels, match=r"expected patch rows of shape \(6, 588\), found \(4, 588\)"):
        reference.encode(Patches(rows, Grid(2, 3)))
    with pytest.raises(BadPixels, match="at least 2 x 2 patches"):
        reference.encode(Patches(rows, Grid(1, 4)))
