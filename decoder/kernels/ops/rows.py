"""The PREPARE op as seen from outside: a row norm or an activation, then packing for the products that read it."""

from __future__ import annotations

from dataclasses import dataclass

from pagemill.decoder.kernels.activations import Activations
from pagemill.decoder.kernels.drivers.codes import PREPARE
from pagemill.decoder.kernels.drivers.step import ROWS
from pagemill.decoder.kernels.isa import LANES
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
    ints = [rows, address(source.rows), source.rows.strides[0], _address(source.index)]
    ints += [source_kernel(source.kind, program.isa), _a(source), _address(source.bias), vectors]
    keep = [array for array in (source.rows, source.weight, source.bias, source.index) if array is not None]
    if isinstance(target, Activations):
        kind, blocks = target.kind, target.blocks
        padded = 4 * blocks * kind.block
        buffers = [target.codes, target.scales, target.sums16, target.sums32]
        per_block = [kind.block * target.codes.itemsize, kind.block // 32, kind.block // kind.sub]
        ints += [packing_kernel(kind, program.isa), *map(address, buffers), blocks, *per_block, padded]
        keep += buffers
    else:
        padded = 64 * vectors
        ints += [0, address(target), 0, 0, 0, 0, target.strides[0], 0, 0, padded]
        keep.append(target)
    program.add(PREPARE, ints, (source.eps, float(source.width)), keep, scratch_bytes=padded)


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
