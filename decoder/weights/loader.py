"""Tensors of a planned file as what forward reads: norms as float32, matrices as panels, rounded as asked.

One loader for text models and encoders.  Quantized tensors are repacked, never expanded, unless a rounding says so.  Q, K
and V (and gate and up) become one ``Matrix`` of parts; neighbours of one format become one part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pagemill.decoder.errors import ModelError
from pagemill.decoder.formats import FORMATS
from pagemill.decoder.gguf.header import TensorInfo
from pagemill.decoder.kernels.isa import LANES
from pagemill.decoder.spec import Role
from pagemill.decoder.weights.panel_store import PanelStore
from pagemill.decoder.weights.panels import Panels, repack
from pagemill.decoder.weights.rounding import BLOCKS, to_bf16, to_codes

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Arrange = Callable[[Floats], Floats]
# stored: as in the file. exact: float32. float: float32, or float16 where the file has it. bf16, int8: rounded to them.
Rounding = Literal["stored", "exact", "float", "bf16", "int8"]

ROWS_AT_ONCE = 128  # weights rounded at a time, so that what lies between stays in a core's cache


def padded(count: int) -> int:
    """count rounded up to whole vectors: how wide its row buffer is."""
    return -(-count // LANES) * LANES


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Panels whose products start at ``column`` of the output row; bias: float32, padded, or None."""

    panels: Panels
    column: int
    bias: Floats | None


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """Matrices that share their input, side by side.  columns: where each tensor's products start; width: of the output row."""

    parts: tuple[Part, ...]
    columns: tuple[int, ...]
    width: int


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """One transformer block.  Norm weights are float32, padded with zeros."""

    attn_norm: Floats
    qkv: Matrix
    q_norm: Floats | None
    k_norm: Floats | None
    attn_output: Matrix
    ffn_norm: Floats
    gate_up: Matrix
    down: Matrix


def stored_rows(data: Bytes, info: TensorInfo) -> Bytes:
    """A tensor's bytes in the mapped file, a view: (rows, row_bytes) uint8; later dimensions are folded into rows."""
    return data[info.offset : info.offset + info.size_bytes].reshape(info.rows, -1)


def finite_rows(data: Bytes, info: TensorInfo) -> Bytes:
    """``stored_rows``; raises ModelError where a weight is NaN or infinite: it would make invented text, not an error."""
    rows = stored_rows(data, info)
    if not FORMATS[info.type_name].is_finite(rows):
        raise ModelError(
            f"tensor {info.name}: expected finite weights, found NaN or infinity in its {info.type_name} data; "
            "the file is damaged or was converted wrongly: download or convert it again"
        )
    return rows


@dataclass(frozen=True, slots=True, eq=False)
class Loader:
    """Reads tensors by role and layer out of a mapped file.  Raises ModelError for weights that are not numbers.

    rounding: of the layers' matrices.  store: repacked weights of an earlier start.
    """

    data: Bytes
    tensors: Mapping[Any, TensorInfo]  # by (role, layer); a mapping's keys are invariant, hence Any
    biases: Mapping[Any, TensorInfo]
    rounding: Rounding
    store: PanelStore | None = None

    def floats(self, info: TensorInfo) -> Floats:
        """The tensor as (rows, n) float32."""
        return FORMATS[info.type_name].dequantize(finite_rows(self.data, info))

    def vector(self, role: Enum, layer: int) -> Floats | None:
        """A one-row tensor as float32, padded with zeros; None where the file has none."""
        info = self.tensors.get((role, layer))
        return None if info is None else _pad(self.floats(info).reshape(-1))

    def norm(self, role: Enum, layer: int) -> Floats:
        """A norm's weight, which the plan has checked to be there."""
        weight = self.vector(role, layer)
        assert weight is not None, "the plan admits no file without it"
        return weight

    def layer(self, number: int) -> Layer:
        """A transformer block."""
        return Layer(
            self.norm(Role.ATTN_NORM, number),
            self.matrix(number, Role.ATTN_Q, Role.ATTN_K, Role.ATTN_V),
            self.vector(Role.ATTN_Q_NORM, number),
            self.vector(Role.ATTN_K_NORM, number),
            self.matrix(number, Role.ATTN_OUTPUT),
            self.norm(Role.FFN_NORM, number),
            self.matrix(number, Role.FFN_GATE, Role.FFN_UP),
            self.matrix(number, Role.FFN_DOWN),
        )

    def matrix(self, layer: int, *roles: Enum, rounding: Rounding | None = None, arrange: Arrange | None = None) -> Matrix:
        """The tensors of the roles side by side.

        arrange: reorders the float32 rows of the file before they are rounded, where its order is not the product's.
        """
        rounding = rounding or self.rounding
        tensors = [self.tensors[role, layer] for role in roles]
        biases = [self.biases.get((role, layer)) for role in roles]
        name, parts, columns, width = f"{layer}.{roles[0].name}", [], [], 0
        for group in _groups(tensors, biases, rounding):
            members = [tensors[i] for i in group]
            panels = self._kept(f"{name}.{group.start}", partial(self._panels, members, rounding, arrange))
            parts.append(Part(panels, width, self._bias([biases[i] for i in group])))
            rows = [info.rows for info in members] if len(members) > 1 else [panels.rows]
            for count in rows:
                columns.append(width)
                width += padded(count)
        return Matrix(tuple(parts), tuple(columns), width)

    def _kept(self, name: str, make: Callable[[], Panels]) -> Panels:
        return make() if self.store is None else self.store.panels(name, make)

    def _bias(self, biases: list[TensorInfo | None]) -> Floats | None:
        if any(info is None for info in biases):
            return None
        return _pad(np.concatenate([self.floats(info).reshape(-1) for info in biases if info is not None]))

    def _panels(self, members: list[TensorInfo], rounding: Rounding, arrange: Arrange | None) -> Panels:
        """The tensors' rows, one below the other."""
        if rounding == "stored":
            raw = [finite_rows(self.data, info) for info in members]
            return repack(raw[0] if len(raw) == 1 else np.concatenate(raw), members[0].type_name)
        rows = [self.floats(info) for info in members]
        joined = np.concatenate([arrange(each) for each in rows] if arrange else rows)
        types = {info.type_name for info in members}
        return _rounded(joined, "F16" if rounding == "float" and types == {"F16"} else rounding)


def _rounded(rows: Floats, rounding: str) -> Panels:
    """Panels of float32 rows (rows, width)."""
    if rounding == "bf16":
        upper = np.empty(rows.shape, np.uint16)
        for first in range(0, len(rows), ROWS_AT_ONCE):
            upper[first : first + ROWS_AT_ONCE] = to_bf16(rows[first : first + ROWS_AT_ONCE])
        return repack(upper.view(np.uint8), "BF16")
    if rounding == "int8":
        name, block = next((name, block) for name, block in BLOCKS.items() if rows.shape[1] % block == 0)
        return repack(to_codes(rows, block), name)
    if rounding == "F16":
        return repack(rows.astype(np.float16).view(np.uint8), "F16")  # exact: they come from float16
    return repack(rows.view(np.uint8).reshape(len(rows), -1), "F32")


def _groups(tensors: list[TensorInfo], biases: list[TensorInfo | None], rounding: Rounding) -> list[range]:
    """Neighbours that one panel can hold: one format, whole row groups, all with a bias or none."""
    groups = [range(1)]
    for i in range(1, len(tensors)):
        before, info = tensors[i - 1], tensors[i]
        whole = before.rows % LANES == 0
        alike = (rounding != "stored" or before.type_name == info.type_name) and (biases[i] is None) == (biases[i - 1] is None)
        if whole and alike:
            groups[-1] = range(groups[-1].start, i + 1)
        else:
            groups.append(range(i, i + 1))
    return groups


def _pad(values: Floats) -> Floats:
    """float32, whole vectors, zeros after the values."""
    out = np.zeros(padded(len(values)), np.float32)
    out[: len(values)] = values
    return out
