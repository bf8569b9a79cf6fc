"""Weights rounded at load."""

from __future__ import annotations

import numpy as np
import pytest

from pagemill.decoder.formats import PACKED
from pagemill.decoder.weights.rounding import BLOCKS, to_bf16, to_codes


@pytest.mark.parametrize("name", BLOCKS)
def test_codes_are_within_half_a_step(name: str) -> None:
    x = np.random.default_rng(0).standard_normal((5, 768)).astype(np.float32)
    x[0, :256], x[1] = 0, x[1] * 1e-3
    found = PACKED[name].dequantize(to_codes(x, BLOCKS[name]))
    steps = np.abs(x).reshape(5, -1, BLOCKS[name]).max(-1).repeat(BLOCKS[name], 1) / 127
    assert (np.abs(found - x) <= steps * (0.5 + 127 * 2.0**-11)).all()  # the scale itself is a float16


def test_bf16_is_the_nearest_and_even_where_two_are() -> None:
    x = np.array([1.0, 1.0 + 2**-8, 1.0 + 3 * 2**-8, 1.0 + 2**-8 + 2**-20, -3.1], np.float32)
    found = (to_bf16(x).astype(np.uint32) << 16).view(np.float32)
    assert found.tolist() == [1.0, 1.0, 1.0 + 2**-6, 1.0 + 2**-7, -3.09375]
