"""MATMUL against its plain twin, and the promise that a result does not depend on how it was computed."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from pagemill.decoder.formats import PACKED
from pagemill.decoder.kernels.activations import ActivationKind, new_activations
from pagemill.decoder.kernels.compile import kernel_assembly
from pagemill.decoder.kernels.drivers.step import OUTPUTS, ROWS
from pagemill.decoder.kernels.isa import AVX2, AVX512, NEON, PORTABLE, Isa, detect
from pagemill.decoder.kernels.layouts import LAYOUTS, CodeLayout
from pagemill.decoder.kernels.memory import Array, aligned, aligned_copy
from pagemill.decoder.kernels.ops.matmul import activation_kind, matmul
from pagemill.decoder.kernels.ops.rows import Source, prepare
from pagemill.decoder.kernels.program import Program
from pagemill.decoder.kernels.team import Team
from pagemill.decoder.kernels.tiles.float import float_counts, float_emit
from pagemill.decoder.kernels.tiles.int8 import ARGUMENTS, int8_emit
from pagemill.decoder.weights.panels import Panels, repack
from tests.decoder.reference_matmul import matmul as plain_matmul
from tests.decoder.reference_matmul import pack_activations, values_of
from tests.decoder.weights import random_rows, widths_of

QUANTIZED = [name for name, layout in LAYOUTS.items() if isinstance(layout, CodeLayout)]
UNQUANTIZED = [name for name in PACKED if name not in QUANTIZED]
SIZES = [(1, 5), (24, 1), (63, 16), (111, 31)]  # weight rows, activation rows
CAPACITY = 32


def _runnable() -> list[Isa]:
    """The host's variant and those below it that the host can run too."""
    found = detect()
    below = [AVX2] if found.dot == "vnni" else []
    return list(dict.fromkeys([found, *below, PORTABLE]))


ISAS = _runnable()


def inputs(width: int, rows: int = 31) -> Array:
    x = np.random.default_rng(width).standard_normal((rows, width)).astype(np.float32)
    x[0, : width // 2] *= 100  # blocks of very different size
    x[-1] = 0
    return x


def product(
    panels: Panels, x: Array, isa: Isa, team: Team, *, kind: ActivationKind | None = None, bias: Array | None = None
) -> Array:
    """The op's whole output row buffer for packed rows of x."""
    acts = pack_activations(x, kind or activation_kind(panels, isa), CAPACITY)
    out = aligned((CAPACITY, -(-panels.rows // 16) * 16), np.float32)
    program = Program(team, isa)
    matmul(program, acts, panels, out, bias=bias)
    program.step[ROWS] = len(x)
    program.run()
    return out[: len(x)]


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("name", PACKED)
def test_products_equal_their_definition(name: str, isa: Isa, team: Team) -> None:
    for width in widths_of(name):
        for rows, count in SIZES:
            raw, x = random_rows(name, rows, width), inputs(width)[:count]
            out = product(repack(raw, name), x, isa, team)
            packed = values_of(pack_activations(x, activation_kind(name, isa), CAPACITY), count)
            weights = PACKED[name].dequantize(raw)
            # float32 sums of a few hundred terms: some roundings of the terms' absolute sum
            bound = 1e-6 * plain_matmul(np.abs(packed), np.abs(weights)) + 1e-30
            assert (np.abs(out[:, :rows] - plain_matmul(packed, weights)) <= bound).all()
            assert not out[:, rows:].any()


@pytest.mark.parametrize("name", PACKED)
def test_bits_do_not_depend_on_rows_threads_or_blocks(name: str, team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    width, isa = widths_of(name)[-1], detect()
    panels, x = repack(random_rows(name, 111, width), name), inputs(width)
    whole = product(panels, x, isa, team)
    alone = Team(1)
    np.testing.assert_array_equal(product(panels, x, isa, alone), whole)
    for count in (1, 2, 3, 5, 16, 23):
        np.testing.assert_array_equal(product(panels, x[7 : 7 + count], isa, alone), whole[7 : 7 + count])
    monkeypatch.setattr("pagemill.decoder.kernels.ops.matmul.ROW_BLOCK", 1)
    monkeypatch.setattr("pagemill.decoder.kernels.ops.matmul.CACHED_BYTES", 5 * width)
    np.testing.assert_array_equal(product(panels, x, isa, team), whole)


@pytest.mark.parametrize("isa", ISAS[1:], ids=lambda isa: isa.name)
@pytest.mark.parametrize("name", PACKED)
def test_bits_do_not_depend_on_the_cpu(name: str, isa: Isa, team: Team) -> None:
    width = widths_of(name)[-1]
    panels, x = repack(random_rows(name, 63, width), name), inputs(width)[:7]
    kind = activation_kind(name, detect(), exact=True)
    here, there = (product(panels, x, variant, team, kind=kind) for variant in (detect(), isa))
    np.testing.assert_array_equal(here, there)


def test_parts_bias_and_residual_go_to_their_columns(team: Team) -> None:
    isa, x = detect(), inputs(256, 4)
    first, second = (repack(random_rows(name, rows, 256), name) for name, rows in (("Q4_K", 24), ("F32", 63)))
    biases = [np.arange(panels.rows, dtype=np.float32) for panels in (first, second)]
    before = np.random.default_rng(2).standard_normal((5, 96)).astype(np.float32)
    out, program = aligned_copy(before), Program(team, isa)
    for panels, bias, column, add in ((first, biases[0], 0, False), (second, biases[1], 32, True)):
        acts = pack_activations(x, activation_kind(panels, isa), 5)
        matmul(program, acts, panels, out, column=column, rows=OUTPUTS, bias=bias, add=add)
    program.step[OUTPUTS] = 4
    program.run()
    alone = [product(panels, x, isa, team)[:, : panels.rows] for panels in (first, second)]
    np.testing.assert_array_equal(out[:4, :24], alone[0] + biases[0])
    np.testing.assert_array_equal(out[:4, 32:95], (alone[1] + biases[1]) + before[:4, 32:95])
    assert not out[:4, 24:32].any()
    np.testing.assert_array_equal(out[4], before[4])


def test_the_last_lanes_stay_inside_the_row(team: Team) -> None:
    panels, x, isa = repack(random_rows("Q8_0", 24, 64), "Q8_0"), inputs(64, 3), detect()
    out = np.full((4, 40), 7, np.float32)
    program = Program(team, isa)
    matmul(program, pack_activations(x, activation_kind(panels, isa), 3), panels, out, column=13)
    program.step[ROWS] = 3
    program.run()
    np.testing.assert_array_equal(out[:3, 13:37], product(panels, x, isa, team)[:, :24])
    assert (out[:3, :13] == 7).all()
    assert not out[:3, 37:].any()
    assert (out[3] == 7).all()


@pytest.mark.parametrize("name", ["F32", "BF16", "Q4_1", "Q8_0", "Q4_K"])
def test_prepared_rows_equal_the_packing_that_these_tests_use(name: str, team: Team) -> None:
    isa, x = detect(), aligned_copy(inputs(256, 9))
    kind = activation_kind(name, isa)
    target, program = new_activations(kind, 256, 9), Program(team, isa)
    prepare(program, Source("copy", x, 256), target)
    program.step[ROWS] = 9
    program.run()
    expected = pack_activations(x, kind, 9)
    for field in ("codes", "scales", "sums16", "sums32"):
        np.testing.assert_array_equal(getattr(target, field), getattr(expected, field))


@pytest.mark.parametrize("name", PACKED)
def test_the_largest_tile_keeps_its_sums_in_registers(name: str) -> None:
    if name in QUANTIZED:
        text = kernel_assembly("tile", ARGUMENTS, int8_emit(name, AVX512.tile_counts[-1]), AVX512)
    else:
        dtype = activation_kind(name, AVX512).dtype
        assert dtype != "int8"
        text = kernel_assembly("tile", ARGUMENTS, float_emit(name, dtype, float_counts(AVX512)[-1]), AVX512)
    assert "zmm" in text
    assert not re.search(r"zmm\d+.*\(%rsp|\(%rsp.*zmm", text)


@pytest.mark.parametrize("name", QUANTIZED)
def test_arm_tiles_multiply_with_sdot_by_lane(name: str) -> None:
    text = kernel_assembly("tile", ARGUMENTS, int8_emit(name, NEON.tile_counts[-1]), NEON)
    assert re.search(r"sdot\s+v\d+\.4s, v\d+\.16b, v\d+\.4b\[3\]", text)


def test_what_does_not_fit_is_refused(team: Team) -> None:
    isa = detect()
    program, panels = Program(team, isa), repack(random_rows("Q4_K", 24, 256), "Q4_K")
    acts = new_activations(activation_kind(panels, isa), 256, 4)
    out = aligned((4, 32), np.float32)
    wrong_kind = replace(acts, kind=ActivationKind("f32"))
    with pytest.raises(ValueError, match=r"Q4_K weights 24 x 256: expected activations of .*int8.*, found .*f32"):
        matmul(program, wrong_kind, panels, out)
    with pytest.raises(ValueError, match="expected activations 256 wide, found 512"):
        matmul(program, replace(acts, width=512), panels, out)
    with pytest.raises(ValueError, match=r"at column 16: expected out of at least \(4, 40\), found \(4, 32\)"):
        matmul(program, acts, panels, out, column=16)
    with pytest.raises(ValueError, match="expected out as rows of float32, found float64"):
        matmul(program, acts, panels, out.astype(np.float64))
    with pytest.raises(ValueError, match=r"expected a bias of 24 values, found shape \(23,\)"):
        matmul(program, acts, panels, out, bias=np.zeros(23, np.float32))
