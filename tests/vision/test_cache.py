"""Repacked encoder weights kept on disk: the second start maps them and gives the same rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pagemill.jobs.models.files import SAMPLE_FOLDERS
from pagemill.vision.encoder import load_encoder
from pagemill.vision.patches import to_patches
from pagemill.vision.weights import plan_encoder

MMPROJ = SAMPLE_FOLDERS[1] / "mmproj-f16.gguf"


@pytest.mark.parametrize("precision", ["auto", "f32"])
def test_a_cached_encoder_gives_the_same_rows(precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEMILL_CACHE", str(tmp_path))
    pixels = np.random.default_rng(0).standard_normal((3, 56, 84), np.float32)
    rows = []
    for cached in (False, True, True):
        encoder = load_encoder(plan_encoder(MMPROJ), 1, precision=precision, cached=cached)
        rows.append(encoder.encode(to_patches(pixels, encoder.spec)))
        encoder.close()
    assert len(list(tmp_path.glob("panels/*.panels"))) == 1
    assert np.array_equal(rows[0], rows[1])
    assert np.array_equal(rows[0], rows[2])
