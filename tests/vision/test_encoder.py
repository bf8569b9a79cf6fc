"""Opening encoders: backends, precisions and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pagemill.decoder.errors import ModelError, Refused
from pagemill.vision.encoder import open_encoder
from pagemill.vision.patches import to_patches
from pagemill.vision.reference import ReferenceEncoder


def test_the_reference_backend_is_the_reference(mmproj: Path, reference: ReferenceEncoder) -> None:
    encoder = open_encoder(mmproj, backend="reference", text_width=reference.spec.out_width)
    pixels = np.random.default_rng(4).standard_normal((3, 56, 84)).astype(np.float32)
    patches = to_patches(pixels, encoder.spec)
    np.testing.assert_array_equal(encoder.encode(patches), reference.encode(patches))
    encoder.close()


def test_an_encoder_of_another_width_is_refused_before_it_is_loaded(mmproj: Path) -> None:
    with pytest.raises(Refused, match="mmproj file that belongs to the text model"):
        open_encoder(mmproj, backend="reference", text_width=64)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"backend": "tpu"}, "vision backend should be one of auto, cpu, .*found 'tpu'"),
        ({"precision": "f8"}, "vision precision should be auto, bf16, int8, f32, found 'f8'"),
        ({"backend": "reference", "precision": "bf16"}, "computes in f32"),
    ],
    ids=["backend", "precision", "precision of the backend"],
)
def test_unknown_settings_are_refused_with_the_known_ones(settings: dict, message: str, mmproj: Path) -> None:
    with pytest.raises(ModelError, match=message):
        open_encoder(mmproj, **settings)
