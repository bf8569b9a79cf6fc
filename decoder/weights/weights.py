"""A plan's tensors as matrices that forward can use without a question: the normalisations at load.

Quantized tensors are repacked into panels, never expanded, unless the plan is exact.  Q, K and V (and gate and up) become one
``Matrix`` of parts; neighbours of one format become one part.  A missing output matrix is the token embedding.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pagemill.decoder.errors import ModelError
from pagemill.decoder.formats import FORMATS
from pagemill.decoder.gguf.header import TensorInfo
from pagemill.decoder.kernels.isa import LANES
from pagemill.decoder.kernels.team import available_cores
from pagemill.decoder.plan import Plan
from pagemill.decoder.spec import Role
from pagemill.decoder.tensors import GLOBAL
from pagemill.decoder.weights.panel_store import PanelStore
from pagemill.decoder.weights.panels import Panels, repack

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


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
    """One layer.  Norm weights are float32, padded with zeros."""

    attn_norm: Floats
    qkv: Matrix
    q_norm: Floats | None
    k_norm: Floats | None
    attn_output: Matrix
    ffn_norm: Floats
    gate_up: Matrix
    down: Matrix


@dataclass(frozen=True, slots=True, eq=False)
class Embedding:
    """Token embeddings as the file stores them; rows are dequantized when looked up."""

    raw: Bytes
    format_name: str

    def rows(self, ids: Sequence[int]) -> Floats:
        """(len(ids), width) float32."""
        return FORMATS[self.format_name].dequantize(self.raw[np.asarray(ids, np.int64)])


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """All of a model's weights."""

    embedding: Embedding
    layers: tuple[Layer, ...]
    output_norm: Floats
    output: Matrix
    rope_divisors: Floats | None


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


class _Loader:
    """Reads tensors of a plan out of the mapped file."""

    def __init__(self, plan: Plan, data: Bytes, store: PanelStore | None) -> None:
        self.plan, self.data, self.store = plan, data, store

    def raw(self, info: TensorInfo) -> Bytes:
        """The tensor's bytes, a view: (rows, row_bytes).  Raises ModelError for weights that are not numbers."""
        return finite_rows(self.data, info)

    def floats(self, info: TensorInfo) -> Floats:
        """The tensor as (rows, n) float32."""
        return FORMATS[info.type_name].dequantize(self.raw(info))

    def vector(self, role: Role, layer: int) -> Floats | None:
        """A one-row tensor as float32, padded with zeros; None where the file has none."""
        info = self.plan.tensors.get((role, layer))
        return None if info is None else _pad(self.floats(info).reshape(-1))

    def norm(self, role: Role, layer: int) -> Floats:
        """A norm's weight, which the plan has checked to be there."""
        weight = self.vector(role, layer)
        assert weight is not None, "the plan admits no file without it"
        return weight

    def matrix(self, layer: int, *roles: Role) -> Matrix:
        """The tensors of the roles side by side."""
        tensors = [self.plan.tensors[role, layer] for role in roles]
        biases = [self.plan.biases.get((role, layer)) for role in roles]
        columns, width = [], 0
        for info in tensors:
            columns.append(width)
            width += padded(info.rows)
        name = f"{layer}.{roles[0].name}"
        parts = tuple(self._part(name, tensors, biases, columns, group) for group in _groups(tensors, biases))
        return Matrix(parts, tuple(columns), width)

    def _part(
        self, name: str, tensors: list[TensorInfo], biases: list[TensorInfo | None], columns: list[int], group: range
    ) -> Part:
        members = [tensors[i] for i in group]
        if self.store is None:
            panels = self._panels(members)
        else:
            panels = self.store.panels(f"{name}.{group.start}", lambda: self._panels(members))
        shifts = [biases[i] for i in group]
        bias = None
        if all(info is not None for info in shifts):
            bias = _pad(np.concatenate([self.floats(info).reshape(-1) for info in shifts if info is not None]))
        return Part(panels, columns[group.start], bias)

    def _panels(self, members: list[TensorInfo]) -> Panels:
        """The tensors' rows, one below the other."""
        if self.plan.exact:
            rows = np.concatenate([self.floats(info) for info in members])
            return repack(rows.view(np.uint8).reshape(len(rows), -1), "F32")
        raw = [self.raw(info) for info in members]
        return repack(raw[0] if len(raw) == 1 else np.concatenate(raw), members[0].type_name)


def _groups(tensors: list[TensorInfo], biases: list[TensorInfo | None]) -> list[range]:
    """Neighbours that one panel can hold: one format, whole row groups, all with a bias or none."""
    groups: list[range] = []
    for i, info in enumerate(tensors):
        if groups and i:
            before = tensors[i - 1]
            whole = before.rows % LANES == 0
            alike = before.type_name == info.type_name and (biases[i] is None) == (biases[i - 1] is None)
            if whole and alike:
                groups[-1] = range(groups[-1].start, i + 1)
                continue
        groups.append(range(i, i + 1))
    return groups


def load(plan: Plan, data: Bytes, *, threads: int | None = None, store: PanelStore | None = None) -> Weights:
    """Weights of an accepted plan.  data: the whole file, (bytes,) uint8, mapped; it stays mapped for embedding look-ups.

    threads: that repack side by side, None for every core available.  store: repacked weights of an earlier start.
    """
    loader = _Loader(plan, data, store)
    embedding = plan.tensors[Role.TOKEN_EMBEDDING, GLOBAL]
    output = Role.OUTPUT if (Role.OUTPUT, GLOBAL) in plan.tensors else Role.TOKEN_EMBEDDING
    divisors = plan.tensors.get((Role.ROPE_FREQS, GLOBAL))
    with ThreadPoolExecutor(threads or available_cores()) as pool:  # numpy gives Python's lock back while it moves bytes
        output_matrix = pool.submit(loader.matrix, GLOBAL, output)  # the largest first
        layers = tuple(pool.map(lambda i: _layer(loader, i), range(plan.spec.layers)))
        weights = Weights(
            Embedding(stored_rows(data, embedding), embedding.type_name),  # not read here: NaN reaches the logits
            layers,
            loader.norm(Role.OUTPUT_NORM, GLOBAL),
            output_matrix.result(),
            None if divisors is None else loader.floats(divisors).reshape(-1),
        )
    if store is not None:
        store.save()
    return weights


def _layer(loader: _Loader, layer: int) -> Layer:
    return Layer(
        loader.norm(Role.ATTN_NORM, layer),
        loader.matrix(layer, Role.ATTN_Q, Role.ATTN_K, Role.ATTN_V),
        loader.vector(Role.ATTN_Q_NORM, layer),
        loader.vector(Role.ATTN_K_NORM, layer),
        loader.matrix(layer, Role.ATTN_OUTPUT),
        loader.norm(Role.FFN_NORM, layer),
        loader.matrix(layer, Role.FFN_GATE, Role.FFN_UP),
        loader.matrix(layer, Role.FFN_DOWN),
    )


def _pad(values: Floats) -> Floats:
    """float32, whole vectors, zeros after the values."""
    out = np.zeros(padded(len(values)), np.float32)
    out[: len(values)] = values
    return out
