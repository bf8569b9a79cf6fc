"""Panels hold exactly the file's weights."""

from __future__ import annotations

import numpy as np
import pytest

from pagemill.decoder.formats import PACKED
from pagemill.decoder.kernels.memory import address
from pagemill.decoder.weights.panels import repack, unpack
from tests.decoder.weights import random_rows, widths_of


@pytest.mark.parametrize("rows", [1, 24, 63])
@pytest.mark.parametrize("name", PACKED)
def test_unpacked_panels_equal_the_dequantized_rows(name: str, rows: int) -> None:
    for width in widths_of(name):
        raw = random_rows(name, rows, width)
        panels = repack(raw, name)
        assert (panels.rows, panels.width, address(panels.data) % 64) == (rows, width, 0)
        expected = PACKED[name].dequantize(raw)
        np.testing.assert_array_equal(unpack(panels).view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("name", PACKED)
def test_panels_are_hardly_larger_than_the_file(name: str) -> None:
    raw = random_rows(name, 64, 1024)
    assert repack(raw, name).data.nbytes <= 1.03 * raw.nbytes


def test_many_chunks_equal_one(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = random_rows("Q5_K", 111, 512)
    whole = repack(raw, "Q5_K")
    monkeypatch.setattr("pagemill.decoder.weights.panels.CHUNK_BYTES", 1)
    np.testing.assert_array_equal(repack(raw, "Q5_K").data, whole.data)


def test_half_a_block_is_refused() -> None:
    with pytest.raises(ValueError, match="rows of Q4_K are multiples of 144 bytes, found 72"):
        repack(np.zeros((2, 72), np.uint8), "Q4_K")
