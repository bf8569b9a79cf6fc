"""The encoder on the engine's kernels: one program, recorded once per page size class and run per page.

Attention is blocked over queries and keys, so memory grows with the page, never with its square.  Rows stand in block order
(``positions.block_order``), so the merge of patches is a view and costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pagemill.decoder.errors import ModelError
from pagemill.decoder.kernels.compile import cache_folder
from pagemill.decoder.kernels.drivers.segments import BIDIRECTIONAL
from pagemill.decoder.kernels.drivers.step import OUTPUTS, ROWS, SEGMENTS
from pagemill.decoder.kernels.isa import LANES, Isa, detect
from pagemill.decoder.kernels.memory import Array
from pagemill.decoder.kernels.ops.rows import Source, prepare
from pagemill.decoder.kernels.program import Program
from pagemill.decoder.kernels.team import Team
from pagemill.decoder.kernels.tiles.softmax import Precision
from pagemill.decoder.network.kv_cache import KvCache
from pagemill.decoder.network.kv_codec import CODECS
from pagemill.decoder.network.recorder import HeadNorms, Recorder, StepTables, new_rows
from pagemill.decoder.spec import AttentionSpec, RopeSpec
from pagemill.decoder.tensors import GLOBAL
from pagemill.decoder.weights.panel_store import PanelStore, store_path
from pagemill.decoder.weights.panels import Panels, repack
from pagemill.decoder.weights.weights import Matrix, Part, padded
from pagemill.vision.encoder import EncoderSettings
from pagemill.vision.patches import Patches
from pagemill.vision.positions import rope_tables
from pagemill.vision.reference import check_patches, checked_rows
from pagemill.vision.rounding import BLOCKS, to_bf16, to_codes
from pagemill.vision.spec import VisionRole, VisionSpec
from pagemill.vision.weights import StoredWeights

Floats = NDArray[np.float32]
Products = Literal["bf16", "int8", "f32"]
"""How the layers multiply; f32: as exactly as the file's weights."""
BYTE_KEYS = CODECS["int8_bf16"]
"""Of int8 attention: a fifth faster than bf16's."""
CAPACITY_STEP = 1024
"""Buffers grow by this many patches, so that pages of one kind share a recording."""
ROWS_AT_ONCE = 128
"""Weights rounded at a time, so that what lies between stays in a core's cache."""


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """One layer: norms padded float32, matrices as panels."""

    attn_norm: Floats
    qkv: Matrix
    attn_output: Matrix
    ffn_norm: Floats
    gate_up: Matrix
    down: Matrix


@dataclass(frozen=True, slots=True, eq=False)
class _Weights:
    """All of the encoder's weights."""

    patch: Matrix
    pre_norm: Floats
    layers: tuple[_Layer, ...]
    projector_norm: Floats
    merge: Matrix
    first: Matrix
    second: Matrix


class CpuEncoder:
    """``vision.encoder.Encoder`` on a compute team, which it closes if it owns it.  For one thread at a time."""

    shares_cores = True

    def __init__(
        self,
        stored: StoredWeights,
        team: Team,
        isa: Isa,
        products: Products,
        *,
        owns_team: bool = True,
        store: PanelStore | None = None,
    ) -> None:
        self._owns_team = owns_team
        self.spec, self.team, self.isa = stored.spec, team, isa
        self.attention: Precision = "bf16" if isa.bf16 and products != "f32" else "f32"
        has_byte_keys = self.attention == "bf16" and products == "int8" and not BYTE_KEYS.refusal(stored.spec.head_dim)
        self.codec = BYTE_KEYS if has_byte_keys else CODECS[self.attention]
        self.weights = _Loader(stored, team.threads, products, store).load()
        self._recording: _Recording | None = None

    def encode(self, patches: Patches) -> Floats:
        """One page's embedding rows: (blocks, out_width) float32, in reading order."""
        check_patches(patches, self.spec)
        count = patches.grid.patches
        if self._recording is None or self._recording.capacity < count:
            self._recording = None  # free the smaller buffers first
            self._recording = _Recording(self, -(-count // CAPACITY_STEP) * CAPACITY_STEP)
        return self._recording.run(patches)

    def close(self) -> None:
        """End a team of its own; give the buffers back."""
        if self._owns_team:
            self.team.close()
        self._recording = None


class _Loader:
    """Weights as panels: rounded in the layers, or as exact as the file.

    Patch embedding and projector are always as exact as the file: they are two hundredths of the work and a third of
    bfloat16's error.
    """

    def __init__(self, stored: StoredWeights, threads: int, products: Products, store: PanelStore | None) -> None:
        self._stored, self._threads, self._products, self._store = stored, threads, products, store

    def load(self) -> _Weights:
        """Everything."""
        with ThreadPoolExecutor(self._threads) as pool:
            layers = tuple(pool.map(self._layer, range(self._stored.spec.layers)))
        weights = _Weights(
            self._exact(VisionRole.PATCH_EMBEDDING),
            self._norm(VisionRole.PRE_NORM),
            layers,
            self._norm(VisionRole.PROJECTOR_NORM),
            self._exact(VisionRole.PROJECTOR_MERGE),
            self._exact(VisionRole.PROJECTOR_IN),
            self._exact(VisionRole.PROJECTOR_OUT),
        )
        if self._store is not None:
            self._store.save()
        return weights

    def _layer(self, number: int) -> _Layer:
        return _Layer(
            self._norm(VisionRole.ATTN_NORM, number),
            self._matrix(number, VisionRole.ATTN_Q, VisionRole.ATTN_K, VisionRole.ATTN_V),
            self._matrix(number, VisionRole.ATTN_OUTPUT),
            self._norm(VisionRole.FFN_NORM, number),
            self._matrix(number, VisionRole.FFN_GATE, VisionRole.FFN_UP),
            self._matrix(number, VisionRole.FFN_DOWN),
        )

    def _norm(self, role: VisionRole, layer: int = GLOBAL) -> Floats:
        return self._stored.matrix(role, layer).reshape(-1)

    def _exact(self, role: VisionRole) -> Matrix:
        return self._panels(GLOBAL, (role,), "f32")

    def _matrix(self, layer: int, *roles: VisionRole) -> Matrix:
        return self._panels(layer, roles, self._products)

    def _panels(self, layer: int, roles: tuple[VisionRole, ...], products: Products) -> Matrix:
        """The roles' matrices, one below the other."""
        if self._store is None:
            panels = self._repacked(layer, roles, products)
        else:
            panels = self._store.panels(f"{layer}.{roles[0].name}", lambda: self._repacked(layer, roles, products))
        return Matrix((Part(panels, 0, None),), (0,), panels.rows)

    def _repacked(self, layer: int, roles: tuple[VisionRole, ...], products: Products) -> Panels:
        rows = np.concatenate([self._stored.matrix(role, layer) for role in roles])
        types = {self._stored.plan.tensors[role, layer].type_name for role in roles}
        if products == "bf16":
            rounded = np.empty(rows.shape, np.uint16)
            for first in range(0, len(rows), ROWS_AT_ONCE):
                rounded[first : first + ROWS_AT_ONCE] = to_bf16(rows[first : first + ROWS_AT_ONCE])
            return repack(rounded.view(np.uint8), "BF16")
        if products == "int8":
            name, block = next((name, block) for name, block in BLOCKS.items() if rows.shape[1] % block == 0)
            return repack(to_codes(rows, block), name)
        if types == {"F16"}:
            return repack(rows.astype(np.float16).view(np.uint8), "F16")  # exact: they come from float16
        return repack(rows.view(np.uint8), "F32")


class _Recording:
    """The program and buffers for pages of up to ``capacity`` patches."""

    def __init__(self, encoder: CpuEncoder, capacity: int) -> None:
        self.capacity, self._spec, self._encoder = capacity, encoder.spec, encoder
        self._facts = _attention_facts(encoder.spec)
        self._cache = KvCache([self._facts], encoder.codec, 1, capacity)
        self._tables = StepTables.new(capacity, 1, encoder.spec.head_dim)
        self._tables.position[:], self._tables.base[:] = np.arange(capacity), self._cache.base(0)
        self._program = Program(encoder.team, encoder.isa)
        self._record = Recorder(self._program, self._cache, self._tables, encoder.attention)
        self._patches, self._x = new_rows(capacity, encoder.spec.patch_width), new_rows(capacity, encoder.spec.width)
        self._record_layers()
        self._out = self._record_projector()

    def run(self, patches: Patches) -> Floats:
        """Encode one page."""
        count, blocks, step = patches.grid.patches, patches.grid.blocks(self._spec.merge), self._program.step
        tables = self._tables
        assert tables.cos is not None, "a head has at least one pair"
        assert tables.sin is not None, "a head has at least one pair"
        self._patches[:count, : self._spec.patch_width] = patches.rows
        tables.cos[:count], tables.sin[:count] = rope_tables(patches.grid, self._spec)
        tables.segments[0, :6] = (0, count, 0, self._cache.base(0), BIDIRECTIONAL, count)
        step[ROWS], step[OUTPUTS], step[SEGMENTS] = count, blocks, 1
        self._program.run()
        return checked_rows(self._out[:blocks, : self._spec.out_width].copy())

    def _record_layers(self) -> None:
        spec, record, weights, capacity = self._spec, self._record, self._encoder.weights, self.capacity
        embedded = new_rows(capacity, spec.width)
        record.product(Source("copy", self._patches, spec.patch_width), weights.patch, embedded)
        prepare(self._program, Source("rms", embedded, spec.width, spec.eps, weights.pre_norm), self._x)
        qkv, attended = new_rows(capacity, 3 * spec.width), new_rows(capacity, spec.width)
        gate_up = new_rows(capacity, 2 * spec.ff_width)
        for layer in weights.layers:
            record.product(Source("rms", self._x, spec.width, spec.eps, layer.attn_norm), layer.qkv, qkv)
            record.attention(self._facts, 0, qkv, (0, spec.width, 2 * spec.width), HeadNorms(), attended)
            record.product(Source("copy", attended, spec.width), layer.attn_output, self._x, add=True)
            record.product(Source("rms", self._x, spec.width, spec.eps, layer.ffn_norm), layer.gate_up, gate_up)
            gated = Source("silu_gated", gate_up, spec.ff_width, up_column=spec.ff_width)
            record.product(gated, layer.down, self._x, add=True)

    def _record_projector(self) -> Array:
        """Norm, merge (a view of ``merge ** 2`` rows as one), and the two linear maps around the exact GELU."""
        spec, record, weights = self._spec, self._record, self._encoder.weights
        block = spec.merge**2
        capacity = self.capacity // block
        normed = new_rows(self.capacity, spec.width)
        prepare(self._program, Source("rms", self._x, spec.width, spec.projector_eps, weights.projector_norm), normed)
        merged = normed[: capacity * block].reshape(capacity, -1)
        sizes = [matrix.width for matrix in (weights.merge, weights.first, weights.second)]
        joined, hidden, out = (new_rows(capacity, size) for size in sizes)
        record.product(Source("copy", merged, block * spec.width), weights.merge, joined, rows=OUTPUTS)
        record.product(Source("copy", joined, sizes[0]), weights.first, hidden, rows=OUTPUTS)
        record.product(Source("gelu_erf", hidden, sizes[1]), weights.second, out, rows=OUTPUTS)
        return out


def _attention_facts(spec: VisionSpec) -> AttentionSpec:
    """The encoder's attention in the decoder's words; its angles come from the page's grid, not from a base."""
    rope = RopeSpec(spec.rope_base, spec.head_dim, spec.rope_pairing)
    return AttentionSpec(spec.heads, spec.heads, spec.head_dim, spec.head_dim**-0.5, rope=rope)


def open_cpu(weights: StoredWeights, settings: EncoderSettings) -> CpuEncoder:
    """The encoder on this machine's CPU.  Raises ModelError for a precision that it has not, or shapes the kernels have not."""
    isa, spec = detect(), weights.spec
    if settings.precision == "bf16" and not isa.bf16:
        raise ModelError(f"vision precision bf16 needs a CPU with bf16 products, this one is {isa.name}: use auto or f32")
    step = min(BLOCKS.values()) if settings.precision == "int8" else LANES
    uneven = [f"{name} {value}" for name, value in _sizes(spec) if value % step]
    if uneven:
        what = f"with precision {settings.precision} needs sizes in multiples of {step}"
        raise ModelError(f"the CPU encoder {what}, the file has {', '.join(uneven)}")
    fastest: Products = "bf16" if isa.bf16 else "f32"
    products = fastest if settings.precision == "auto" else settings.precision
    team, owns_team = settings.team or Team(settings.threads), settings.team is None
    store = PanelStore(store_path(settings.path, cache_folder(), f"vision {products}")) if settings.path else None
    return CpuEncoder(weights, team, isa, products, owns_team=owns_team, store=store)


def _sizes(spec: VisionSpec) -> Sequence[tuple[str, int]]:
    return (("width", spec.width), ("feed-forward width", spec.ff_width), ("head width", spec.head_dim))


def working_bytes(spec: VisionSpec, patches: int, *, bf16: bool) -> int:
    """Bytes of the buffers for pages of up to so many patches, weights aside; what a recording takes, and little more."""
    capacity = -(-patches // CAPACITY_STEP) * CAPACITY_STEP
    value = 2 if bf16 else 4
    rows = padded(spec.patch_width) + 7 * spec.width + 2 * spec.ff_width + spec.head_dim + 4
    packed = value * (spec.width + spec.ff_width) + 4 * (padded(spec.patch_width) + 32 + spec.width)
    cached = 2 * value * spec.width
    merged = 4 * (2 * spec.width + 3 * spec.out_width) // spec.merge**2
    return capacity * (4 * rows + packed + cached + merged)
