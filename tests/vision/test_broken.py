"""An encoder's weights that are not numbers are refused by name; rows that stop being numbers raise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pagemill.decoder.errors import ModelError
from pagemill.decoder.gguf.files import open_file
from pagemill.decoder.kernels.isa import detect
from pagemill.decoder.kernels.team import Team
from pagemill.vision.arithmetic import Products
from pagemill.vision.encoder import load_encoder, open_encoder
from pagemill.vision.errors import BrokenRows
from pagemill.vision.patches import prepare, to_patches
from pagemill.vision.weights import plan_encoder
from tests.answers import ROOT

SAMPLE = ROOT / "samples" / "model" / "mmproj-f16.gguf"
PAGE = Image.fromarray(np.random.default_rng(4).integers(0, 256, (112, 168, 3), np.uint8))
PRECISIONS: list[Products] = ["f32", "int8", *(["bf16"] if detect().bf16 else [])]  # type: ignore[list-item]


def with_weight(path: Path, name: str, value: float, copy: Path) -> Path:
    """A copy of an mmproj file with one weight replaced."""
    header, data = open_file(path)
    info, changed = header.tensors[name], np.array(data)
    kind = np.float16 if info.type_name == "F16" else np.float32
    place = info.offset + 7 * np.dtype(kind).itemsize
    changed[place : place + np.dtype(kind).itemsize] = np.frombuffer(np.array(value, kind).tobytes(), np.uint8)
    copy.write_bytes(changed.tobytes())
    return copy


NAMES = [name for name in open_file(SAMPLE)[0].tensors if not name.startswith(("v.blk.1", "v.blk.2", "v.blk.3"))]


@pytest.mark.parametrize("name", NAMES)
def test_a_weight_that_is_no_number_is_refused_by_name(name: str, tmp_path: Path) -> None:
    for value in (np.nan, np.inf):
        path = with_weight(SAMPLE, name, value, tmp_path / "bad.gguf")
        for backend in ("cpu", "reference"):
            with pytest.raises(ModelError, match=rf"tensor {name}: expected finite weights, found NaN or infinity"):
                open_encoder(path, backend=backend)


@pytest.mark.parametrize("name", ["v.pre_ln.weight", "v.blk.0.ln1.weight", "v.blk.0.ln2.weight", "v.blk.2.ln1.weight"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_rows_that_overflow_raise(precision: Products, name: str, tmp_path: Path) -> None:
    path = with_weight(SAMPLE, name, 3e38, tmp_path / "overflow.gguf")
    encoder = open_encoder(path, precision=precision)
    patches = to_patches(prepare(PAGE, encoder.spec), encoder.spec)
    with pytest.raises(BrokenRows, match="NaN or infinity"):
        encoder.encode(patches)
    encoder.close()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_page_of_pixels_that_are_no_numbers_raises(precision: Products) -> None:
    team = Team(1)
    encoder = load_encoder(plan_encoder(SAMPLE), team, precision=precision)
    patches = to_patches(prepare(PAGE, encoder.spec), encoder.spec)
    patches.rows[9, 100] = np.nan
    with pytest.raises(BrokenRows):
        encoder.encode(replace(patches))
    team.close()
