"""Every weight format: rows that ggml's own C code dequantized, and the integer view that they are computed from."""

from __future__ import annotations

from pathlib import Path

import gguf as reference
import numpy as np
import pytest

from pagemill.decoder.formats import FORMATS, QuantFormat
from pagemill.decoder.gguf.parse import TYPES
from tests.answers import oracle_files

QUANTIZED = [name for name, each in FORMATS.items() if isinstance(each, QuantFormat)]


def _recorded() -> list[tuple[Path, str]]:
    """Files of answers and the formats in them; the whole suite has formats that come later."""
    cases = []
    for path in oracle_files("formats/*.npz"):
        with np.load(path) as answers:
            cases += [(path, name) for name in answers["row_types"].tolist() if name in FORMATS]
    return cases


RECORDED = _recorded()


def _random_rows(name: str, *, rows: int = 7, width: int = 512) -> np.ndarray:
    """Random bytes: every code and sub-scale, and float16 scales of all kinds, NaN and infinity among them."""
    return np.random.default_rng(3).integers(0, 256, (rows, FORMATS[name].row_bytes(width)), np.uint8)


@pytest.mark.parametrize(("path", "name"), RECORDED, ids=[f"{path.stem}-{name}" for path, name in RECORDED])
def test_recorded_rows_are_equal_to_the_bit(path: Path, name: str) -> None:
    with np.load(path) as answers:
        raw, expected = answers[f"rows_{name}_raw"], answers[f"rows_{name}_f32"]
    actual = FORMATS[name].dequantize(raw)
    assert actual.dtype == np.float32
    np.testing.assert_array_equal(actual.view(np.uint32), expected.view(np.uint32))


def test_recorded_rows_cover_every_format_but_f32() -> None:
    assert {name for _, name in RECORDED} == set(FORMATS) - {"F32"}


@pytest.mark.parametrize("name", FORMATS)
def test_any_bytes_dequantize_as_the_reference_writer_does(name: str) -> None:
    raw = _random_rows(name)
    with np.errstate(all="ignore"):
        expected = reference.dequantize(raw, reference.GGMLQuantizationType(FORMATS[name].type_id))
    actual = FORMATS[name].dequantize(raw)
    np.testing.assert_array_equal(actual, expected.reshape(actual.shape))
    finite = np.isfinite(actual)
    np.testing.assert_array_equal(np.signbit(actual[finite]), np.signbit(expected.reshape(actual.shape)[finite]))


@pytest.mark.parametrize("name", FORMATS)
def test_table_agrees_with_the_file_format(name: str) -> None:
    each = FORMATS[name]
    assert each.name == name
    assert TYPES[each.type_id] == (name, each.block, each.block_bytes)


@pytest.mark.parametrize("name", FORMATS)
def test_rows_of_a_larger_array_need_no_copy_first(name: str) -> None:
    raw = _random_rows(name)
    strided = np.zeros((raw.shape[0] * 2, raw.shape[1] + 5), np.uint8)
    strided[::2, 3:-2] = raw
    view = strided[::2, 3:-2]
    view.flags.writeable = False
    np.testing.assert_array_equal(FORMATS[name].dequantize(view), FORMATS[name].dequantize(raw))
    assert FORMATS[name].dequantize(raw[:0]).shape == (0, 512)


@pytest.mark.parametrize("name", QUANTIZED)
def test_codes_have_the_shapes_and_ranges_that_panels_pack(name: str) -> None:
    each = FORMATS[name]
    assert isinstance(each, QuantFormat)
    view = each.codes(_random_rows(name))
    blocks = (7, 512 // each.block)
    assert (view.code_bits, view.offset, view.block, view.sub_block) == (
        each.code_bits,
        each.offset,
        each.block,
        each.sub_block,
    )
    assert view.codes.shape == (7, 512)
    assert view.codes.dtype == np.uint8
    assert view.codes.max() == (1 << view.code_bits) - 1
    for scale in (view.d, view.m, view.dmin):
        assert scale is None or (scale.shape, scale.dtype) == (blocks, np.float32)
    if view.block == view.sub_block:
        assert view.sub_scales is None
        assert view.sub_mins is None
        assert view.dmin is None
    else:
        assert view.sub_scales is not None
        assert view.sub_scales.shape == (*blocks, view.block // view.sub_block)
        assert view.m is None
        assert (view.dmin is None) == (view.sub_mins is None)
        assert view.sub_mins is None or (view.sub_mins.shape, view.sub_mins.dtype) == (view.sub_scales.shape, np.uint8)


def test_float_formats_keep_special_values() -> None:
    halves = np.array([[0x0001, 0x8000, 0x7C00, 0x3555]], np.uint16).view(np.uint8)
    np.testing.assert_array_equal(
        FORMATS["F16"].dequantize(halves), np.array([[2**-24, -0.0, np.inf, 0.333251953125]], np.float32)
    )
    upper = np.array([[0x3F80, 0x8000, 0xFF80, 0x0001]], np.uint16).view(np.uint8)
    expected = np.array([[1.0, -0.0, -np.inf, np.float32(2.0**-133)]], np.float32)
    np.testing.assert_array_equal(FORMATS["BF16"].dequantize(upper), expected)
    floats = np.array([[1.5, -0.0, 1e-40]], np.float32)
    np.testing.assert_array_equal(FORMATS["F32"].dequantize(floats.view(np.uint8)), floats)
