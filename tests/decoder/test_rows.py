"""PREPARE against its plain twin: norms, activations, packing."""

from __future__ import annotations

import numpy as np
import pytest

from pagemill.decoder.kernels.activations import ActivationKind, Activations, new_activations
from pagemill.decoder.kernels.drivers.step import ROWS
from pagemill.decoder.kernels.isa import PORTABLE, Isa, detect
from pagemill.decoder.kernels.memory import Array, aligned, aligned_copy
from pagemill.decoder.kernels.ops.rows import Source, prepare
from pagemill.decoder.kernels.program import Program
from pagemill.decoder.kernels.team import Team
from tests.decoder.reference_rows import activate, layer_norm, rms_norm

ISAS = [detect(), PORTABLE]


def rows_of(rng: np.random.Generator, count: int, width: int) -> Array:
    padded = np.zeros((count, -(-width // 16) * 16), np.float32)
    padded[:, :width] = rng.standard_normal((count, width)) * 3
    return aligned_copy(padded)


def run_op(source: Source, target: Activations | Array, count: int, isa: Isa, team: Team) -> None:
    program = Program(team, isa)
    prepare(program, source, target)
    program.step[ROWS] = count
    program.run()


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("width", [16, 24, 64, 111, 576])
@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_norms_equal_their_definition(kind: str, width: int, isa: Isa, team: Team) -> None:
    rng = np.random.default_rng(width)
    x, weight, bias = rows_of(rng, 7, width), rows_of(rng, 1, width)[0], rows_of(rng, 1, width)[0]
    out = aligned(x.shape, np.float32)
    run_op(Source(kind, x, width, 1e-5, weight, bias), out, 7, isa, team)
    plain = x[:, :width], weight[:width], bias[:width]
    expected = rms_norm(plain[0], plain[1], 1e-5) if kind == "rms" else layer_norm(*plain, 1e-5)
    np.testing.assert_allclose(out[:, :width], expected, rtol=2e-6, atol=2e-6)  # a few float32 roundings
    assert not out[:, width:].any()


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("name", ["silu", "gelu_tanh", "gelu_erf"])
def test_activations_equal_their_definition(name: str, isa: Isa, team: Team) -> None:
    x = aligned_copy(np.concatenate([np.linspace(-30, 30, 4096 - 16), np.full(16, 0.0)]).astype(np.float32)[None])
    out = aligned(x.shape, np.float32)
    run_op(Source(name, x, x.shape[1]), out, 1, isa, team)
    np.testing.assert_allclose(out, activate(name, x), rtol=2e-6, atol=5e-7)  # erf is good to 1.5e-7, times |x| / 2


def test_a_gated_activation_multiplies_up(team: Team) -> None:
    rng = np.random.default_rng(1)
    x = rows_of(rng, 5, 128)
    out = aligned((5, 64), np.float32)
    run_op(Source("silu_gated", x, 64, up_column=64), out, 5, detect(), team)
    np.testing.assert_allclose(out, activate("silu", x[:, :64]) * x[:, 64:], rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize(
    ("block", "offset", "sub", "width"),
    [(32, 0, 32, 32), (32, 128, 32, 96), (256, 0, 32, 256), (256, 32, 16, 576), (256, 128, 256, 576), (32, 8, 32, 99)],
)
def test_int8_packing_equals_its_definition(block: int, offset: int, sub: int, width: int, isa: Isa, team: Team) -> None:
    rng = np.random.default_rng(width)
    x = rows_of(rng, 9, width)
    x[3] = 0
    target = new_activations(ActivationKind("int8", block, offset, sub), width, 16)
    run_op(Source("copy", x, width), target, 9, isa, team)
    blocks = target.blocks
    full = np.zeros((9, blocks * block), np.float32)
    full[:, :width] = x[:, :width]
    parts = full.reshape(9, blocks, block).transpose(1, 0, 2)
    peak = np.abs(parts).max(-1)
    inverse = np.divide(np.float32(127), peak, out=np.zeros_like(peak), where=peak > 0)
    codes = np.rint(parts * inverse[..., None]).astype(np.int8)
    dense = target.codes.reshape(-1)[: codes.size].reshape(codes.shape)
    np.testing.assert_array_equal(dense, codes)
    np.testing.assert_array_equal(target.scales.reshape(-1)[: peak.size].reshape(peak.shape), peak / np.float32(127))
    sums = codes.reshape(blocks, 9, block // 32, 32).astype(np.int32).sum(-1)
    np.testing.assert_array_equal(target.sums16.reshape(-1)[: sums.size].reshape(sums.shape), sums)
    sums = codes.reshape(blocks, 9, block // sub, sub).astype(np.int32).sum(-1)
    np.testing.assert_array_equal(target.sums32.reshape(-1)[: sums.size].reshape(sums.shape), -offset * sums)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@pytest.mark.parametrize("width", [24, 64, 576])
def test_bf16_packing_rounds_to_nearest_even(width: int, isa: Isa, team: Team) -> None:
    x = rows_of(np.random.default_rng(3), 6, width)
    target = new_activations(ActivationKind("bf16"), width, 8)
    run_op(Source("copy", x, width), target, 6, isa, team)
    bits = np.zeros((6, target.blocks * 32), np.uint32)
    bits[:, :width] = x[:, :width].view(np.uint32)
    expected = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).reshape(6, -1, 32).transpose(1, 0, 2)
    np.testing.assert_array_equal(target.codes.reshape(-1)[: expected.size].reshape(expected.shape), expected)


def test_rows_are_taken_from_the_index(team: Team) -> None:
    x = rows_of(np.random.default_rng(5), 6, 32)
    out, index = aligned((3, 32), np.float32), np.array([5, 0, 3], np.int64)
    run_op(Source("copy", x, 32, index=index), out, 3, detect(), team)
    np.testing.assert_array_equal(out, x[[5, 0, 3]])


def test_a_narrow_buffer_is_refused(team: Team) -> None:
    with pytest.raises(ValueError, match="rows hold 32 values, 64 are read"):
        prepare(Program(team, detect()), Source("copy", aligned((1, 32), np.float32), 64), aligned((1, 64), np.float32))
