"""The MATMUL op as seen from outside: packed activations times packed weights.  Twin: ``tests.decoder.reference_matmul``."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from pagemill.decoder.kernels.activations import ActivationKind, Activations
from pagemill.decoder.kernels.drivers.codes import MATMUL
from pagemill.decoder.kernels.drivers.fields import MatmulOp
from pagemill.decoder.kernels.drivers.step import ROWS
from pagemill.decoder.kernels.isa import LANES, Isa
from pagemill.decoder.kernels.layouts import LAYOUTS, CodeLayout
from pagemill.decoder.kernels.memory import Array, address, aligned
from pagemill.decoder.kernels.program import Program
from pagemill.decoder.kernels.tiles.float import finish_kernel, float_counts, float_tile
from pagemill.decoder.kernels.tiles.int8 import int8_tile

if TYPE_CHECKING:
    from pagemill.decoder.weights.panels import Panels

CACHED_BYTES = 384 << 10  # activations that are meant to stay in a core's second cache beside a row group of weights
PLAIN_SUMS = -1  # as offset of a kind: sums32 are then the sums themselves, which minima of blocks of 32 are multiplied with
ROW_BLOCK = 48  # rows per block are a multiple of every tile's activation count


def activation_kind(weights: Panels | str, isa: Isa, *, exact: bool = False) -> ActivationKind:
    """How rows are packed for weights of a format.  exact: BF16 weights meet float32 activations even where bf16 is faster."""
    layout = LAYOUTS[weights if isinstance(weights, str) else weights.format]
    if not isinstance(layout, CodeLayout):
        return ActivationKind("bf16" if layout.pairs and isa.bf16 and not exact else "f32")
    if layout.is_super:
        return ActivationKind("int8", 256, 32, 16)
    if layout.block == 256:
        return ActivationKind("int8", 256, layout.offset, 256)
    return ActivationKind("int8", 32, PLAIN_SUMS if layout.has_minima else layout.offset)


def matmul(
    program: Program,
    acts: Activations,
    panels: Panels,
    out: Array,
    *,
    column: int = 0,
    rows: int = ROWS,
    bias: Array | None = None,
    add: bool = False,
) -> None:
    """Record: out[r, column + j] = sum over k of x[r, k] w[j, k] (+ bias[j]) (+ out[r, column + j]) for r < step[rows].

    out: (capacity, ld) float32.  Behind the last row of weights, zeros are written up to a multiple of 16, within
    ld: parts that share a row are recorded by ascending column.  bias: at least one float32 a weight row, copied.
    Raises ValueError on shapes or activations that do not fit.
    """
    _check(program, acts, panels, out, column, bias)
    kind, lanes = acts.kind, panels.layout.group_rows
    variants = _variants(panels.format, kind, program.isa)
    code_bytes = kind.block * acts.codes.itemsize
    padded_bias = _padded(bias, panels.rows, panels.groups * lanes)
    block_rows = max(1, CACHED_BYTES // (acts.blocks * code_bytes * ROW_BLOCK)) * ROW_BLOCK
    written = min(out.shape[1] - column, -(-panels.rows // LANES) * LANES)
    op = MatmulOp(
        step_rows=rows,
        panels=address(panels.data),
        group_bytes=panels.group_bytes,
        groups=panels.groups,
        group_rows=lanes,
        blocks=acts.blocks,
        codes=address(acts.codes),
        scales=address(acts.scales),
        sums16=address(acts.sums16),
        sums32=address(acts.sums32),
        code_bytes=code_bytes,
        sums16_bytes=2 * (kind.block // 32),
        sums32_bytes=4 * (kind.block // kind.sub),
        out=address(out) + 4 * column,
        out_bytes=out.strides[0],
        written=written,
        bias=address(padded_bias),
        finish_kernel=finish_kernel(lanes, bias is not None, add, program.isa),
        block_rows=block_rows,
        variants=len(variants),
    )
    keep = [panels.data, acts.codes, acts.scales, acts.sums16, acts.sums32, out, padded_bias]
    program.add(MATMUL, [*op, *chain.from_iterable(variants)], (), keep, scratch_bytes=4 * lanes * variants[0][0])


def _variants(format: str, kind: ActivationKind, isa: Isa) -> list[tuple[int, int]]:
    """(activations, kernel address), largest first."""
    if kind.dtype == "int8":
        return [(count, int8_tile(format, count, isa)) for count in reversed(isa.tile_counts)]
    return [(count, float_tile(format, kind.dtype, count, isa)) for count in reversed(float_counts(isa))]


def _padded(bias: Array | None, rows: int, lanes: int) -> Array:
    padded = aligned(lanes if bias is not None else 0, np.float32)
    padded.fill(0)
    if bias is not None:
        padded[:rows] = bias[:rows]
    return padded


def _check(program: Program, acts: Activations, panels: Panels, out: Array, column: int, bias: Array | None) -> None:
    what = f"product with {panels.format} weights {panels.rows} x {panels.width}"
    kinds = {activation_kind(panels.format, program.isa), activation_kind(panels.format, program.isa, exact=True)}
    if acts.kind not in kinds:
        raise ValueError(f"{what}: expected activations of {' or '.join(map(str, kinds))}, found {acts.kind}")
    if acts.width != panels.width:
        raise ValueError(f"{what}: expected activations {panels.width} wide, found {acts.width}")
    if out.dtype != np.float32 or out.ndim != 2 or out.strides[1] != 4:
        raise ValueError(f"{what}: expected out as rows of float32, found {out.dtype} of shape {out.shape}")
    if out.shape[0] < acts.capacity or column < 0 or out.shape[1] < column + panels.rows:
        needed = (acts.capacity, column + panels.rows)
        raise ValueError(f"{what} at column {column}: expected out of at least {needed}, found {out.shape}")
    if bias is not None and (bias.ndim != 1 or bias.size < panels.rows):
        raise ValueError(f"{what}: expected a bias of {panels.rows} values, found shape {bias.shape}")
