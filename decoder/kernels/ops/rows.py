"""The PREPARE op as seen from outside: a row norm or an activation, then packing for the products that read it."""

from __future__ import annotations

from dataclasses import dataclass

from pagemill.decoder.kernels.activations import Activations
from pagemill.decoder.kernels.drivers.codes import PREPARE
from pagemill.decoder.kernels.drivers.fields import PrepareOp
from pagemill.decoder.kernels.drivers.step import ROWS
from pagemill.decoder.kernels.isa import LANES, Isa
from pagemill.decoder.kernels.memory import Array, address
from pagemill.decoder.kernels.program import Program
from pagemill.decoder.kernels.tiles.rows import packing_kernel, source_kernel


@dataclass(frozen=True, slots=True)
class Source:
    """What a row becomes before it is packed.

    kind: copy, rms, layer, silu, gelu_tanh, gelu_erf, or one of these activations with "_gated": activation(x) * up.
    rows: float32 (capacity, ld), ld a multiple of 16, padding lanes zero.  width: values that count.
    weight, bias: float32, padded to a multiple of 16.  up_column: where ``up`` starts in the row.
    index: int64 table; row r is taken from row index[r].
    """

    kind: str
    rows: Array
    width: int
    eps: float = 0.0
    weight: Array | None = None
    bias: Array | None = None
    up_column: int = 0
    index: Array | None = None


def prepare(program: Program, source: Source, target: Activations | Array, *, rows: int = ROWS) -> None:
    """Record: target[r] = packed(source(row r)) for r < step[rows].  A float32 target is written as plain rows.

    Raises ValueError on shapes that do not fit.
    """
    vectors = -(-source.width // LANES)
    _check(source, target, vectors)
    keep = [array for array in (source.rows, source.weight, source.bias, source.index) if array is not None]
    if isinstance(target, Activations):
        packing, buffers = _packing(target, program.isa), [target.codes, target.scales, target.sums16, target.sums32]
    else:
        packing, buffers = _plain(target, vectors), [target]
    op = PrepareOp(
        step_rows=rows,
        src=address(source.rows),
        src_bytes=source.rows.strides[0],
        row_index=_address(source.index),
        source_kernel=source_kernel(source.kind, program.isa),
        a=_a(source),
        b=_address(source.bias),
        vectors=vectors,
        **packing,
    )
    program.add(PREPARE, op, (source.eps, float(source.width)), [*keep, *buffers], scratch_bytes=packing["padded_bytes"])


def _packing(target: Activations, isa: Isa) -> dict[str, int]:
    """The fields of an op that packs rows."""
    kind = target.kind
    return {
        "packing_kernel": packing_kernel(kind, isa),
        "codes": address(target.codes),
        "scales": address(target.scales),
        "sums16": address(target.sums16),
        "sums32": address(target.sums32),
        "blocks": target.blocks,
        "row_bytes": kind.block * target.codes.itemsize,
        "sums16_per_block": kind.block // 32,
        "sums32_per_block": kind.block // kind.sub,
        "padded_bytes": 4 * target.blocks * kind.block,
    }


def _plain(target: Array, vectors: int) -> dict[str, int]:
    """The fields of an op that writes float32 rows."""
    unused = ("packing_kernel", "scales", "sums16", "sums32", "blocks", "sums16_per_block", "sums32_per_block")
    places = {"codes": address(target), "row_bytes": target.strides[0], "padded_bytes": 64 * vectors}
    return dict.fromkeys(unused, 0) | places


def _address(array: Array | None) -> int:
    return 0 if array is None else address(array)


def _a(source: Source) -> int:
    """The source kernel's first extra argument: bytes from gate to up, or the weight's address."""
    return 4 * source.up_column if source.kind.endswith("_gated") else _address(source.weight)


def _check(source: Source, target: Activations | Array, vectors: int) -> None:
    lanes = LANES * vectors
    needed = max(lanes, source.up_column + lanes if source.kind.endswith("_gated") else 0)
    if source.rows.shape[1] < needed:
        raise ValueError(f"{source.kind}: rows hold {source.rows.shape[1]} values, {needed} are read")
    for name, array in (("weight", source.weight), ("bias", source.bias)):
        if array is not None and array.size < lanes:
            raise ValueError(f"{source.kind}: {name} has {array.size} values, {lanes} (padded) are read")
    if isinstance(target, Activations):
        if target.width != source.width:
            raise ValueError(f"{source.kind}: activations are {target.width} wide, the source is {source.width}")
    elif target.shape[1] < lanes:
        raise ValueError(f"{source.kind}: target rows hold {target.shape[1]} values, {lanes} are written")
