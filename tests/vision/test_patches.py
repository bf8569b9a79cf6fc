"""Preprocessing against the reference processor's recorded pixels, and the rules of page sizes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from pagemill.vision.errors import BadPixels
from pagemill.vision.patches import fit, normalise, prepare, resize, to_patches
from pagemill.vision.spec import VisionSpec


def test_resized_pages_equal_the_pillow_processor_to_the_bit(page, spec: VisionSpec) -> None:
    np.testing.assert_array_equal(resize(page.open(), spec), page.answers["hf_pixels_pil_u8"])


def test_normalised_pixels_agree_with_the_reference(page, spec: VisionSpec) -> None:
    pixels, expected = prepare(page.open(), spec), page.answers["hf_pixels"]
    assert pixels.dtype == np.float32
    difference = np.abs(pixels - expected)
    if tuple(page.answers["image_size_wh"]) == tuple(page.answers["hf_size_hw"][::-1]):
        assert difference.max() < 1e-5
    else:  # the recorded tensor was resized by another library: up to two levels of 255 apart
        assert difference.max() < 0.035
        assert difference.mean() < 0.001


def test_both_rounding_rules_give_the_recorded_sizes(page, spec: VisionSpec) -> None:
    width, height = page.answers["image_size_wh"].tolist()
    assert fit(width, height, spec) == tuple(page.answers["hf_size_hw"][::-1])
    narrow = tuple(page.answers["hf_size14_hw"][::-1])
    assert fit(width, height, spec, 14) == narrow


def test_normalise_is_the_formula_at_every_level(spec: VisionSpec) -> None:
    levels = np.arange(256, dtype=np.uint8).repeat(3).reshape(16, 16, 3)
    expected = levels.astype(np.float32) / np.float32(255) - np.asarray(spec.mean, np.float32)
    expected /= np.asarray(spec.std, np.float32)
    np.testing.assert_array_equal(normalise(levels, spec), expected.transpose(2, 0, 1))


@pytest.mark.parametrize(
    ("size", "multiple", "expected", "tokens"),
    [
        pytest.param((1700, 2200), 28, (1204, 1540), 2365, id="letter"),
        pytest.param((1700, 2200), 14, (1190, 1540), 2310, id="letter, multiple of 14"),
        pytest.param((1700, 2800), 28, (952, 1540), 1870, id="legal"),
        pytest.param((1700, 2800), 14, (938, 1540), 1815, id="legal, multiple of 14"),
        pytest.param((1654, 2339), 28, (1092, 1540), 2145, id="A4"),
        pytest.param((3000, 3000), 28, (1540, 1540), 3025, id="square"),
        pytest.param((1541, 1541), 28, (1540, 1540), 3025, id="one pixel too many"),
        pytest.param((560, 448), 28, (560, 448), 320, id="fits: unchanged"),
        pytest.param((57, 28), 28, (84, 28), 3, id="small: only rounded up, never enlarged"),
        pytest.param((1, 1), 28, (28, 28), 1, id="one pixel"),
        pytest.param((1, 1), 14, (28, 28), 1, id="one pixel, multiple of 14: still one row"),
        pytest.param((14, 300), 14, (28, 308), 11, id="one patch wide, multiple of 14: still one column"),
        pytest.param((9000, 2), 28, (1540, 28), 55, id="a hair: the short side would shrink to nothing"),
    ],
)
def test_fit_of_pages(size, multiple: int, expected, tokens: int, spec: VisionSpec) -> None:
    spec = replace(spec, longest_edge_px=1540)
    width, height = fit(*size, spec, multiple)
    assert (width, height) == expected
    assert (width // spec.block_px) * (height // spec.block_px) == tokens


def test_a_page_that_fits_is_not_resampled(spec: VisionSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = np.random.default_rng(1).integers(0, 256, (56, 84, 3), np.uint8)
    monkeypatch.setattr(Image.Image, "resize", lambda *_: pytest.fail("resampled"))
    np.testing.assert_array_equal(resize(Image.fromarray(noise), spec), noise)


@pytest.mark.parametrize("mode", ["1", "L", "P", "CMYK"])
def test_other_colour_modes_become_rgb(mode: str, spec: VisionSpec) -> None:
    assert resize(Image.new(mode, (28, 56)), spec).shape == (56, 28, 3)


def test_patch_rows_are_channel_then_y_then_x_with_x_fastest(spec: VisionSpec) -> None:
    pixels = np.arange(3 * 56 * 84, dtype=np.float32).reshape(3, 56, 84)
    patches = to_patches(pixels, spec)
    assert (patches.grid.rows, patches.grid.columns) == (4, 6)
    assert patches.rows.shape == (24, 588)
    third_in_block_order = pixels[:, 14:28, 0:14]  # after (0, 0) and (0, 1) comes (1, 0)
    np.testing.assert_array_equal(patches.rows[2], third_in_block_order.reshape(-1))
    second_block = pixels[:, 0:14, 28:42]
    np.testing.assert_array_equal(patches.rows[4], second_block.reshape(-1))


@pytest.mark.parametrize("shape", [(28, 28), (1, 28, 28), (3, 28, 30), (3, 14, 28), (3, 0, 28)])
def test_pixels_of_another_shape_are_refused_with_what_was_expected(shape, spec: VisionSpec) -> None:
    with pytest.raises(BadPixels, match=r"expected pixels of shape \(3, height, width\)"):
        to_patches(np.zeros(shape, np.float32), spec)


def test_impossible_sizes_are_refused(spec: VisionSpec) -> None:
    with pytest.raises(BadPixels, match="at least 1 x 1"):
        fit(0, 5, spec)
    with pytest.raises(BadPixels, match="multiples of the patch"):
        fit(5, 5, spec, 16)
    with pytest.raises(BadPixels, match="uint8"):
        normalise(np.zeros((4, 4), np.uint8), spec)
