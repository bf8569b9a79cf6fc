"""The encoder on the engine's kernels: one program, recorded once per page size class and run per page.

Attention is blocked over queries and keys, so memory grows with the page, never with its square.  Rows stand in block order
(``positions.block_order``), so the merge of patches is a view and costs nothing.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pagemill.decoder import (
    GLOBAL,
    Array,
    Isa,
    KvCache,
    Layer,
    Loader,
    Matrix,
    PanelStore,
    Recorder,
    Source,
    Team,
    new_rows,
    open_panel_store,
)
from pagemill.vision.arithmetic import Arithmetic
from pagemill.vision.backends.cost import CAPACITY_STEP
from pagemill.vision.patches import Patches
from pagemill.vision.positions import rope_tables
from pagemill.vision.reference import check_patches, checked_rows
from pagemill.vision.spec import VisionRole, VisionSpec
from pagemill.vision.weights import PlannedEncoder, arrange

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class EncoderWeights:
    """All of the encoder's weights."""

    patch: Matrix
    pre_norm: Floats
    layers: tuple[Layer, ...]
    projector_norm: Floats
    merge: Matrix
    first: Matrix
    second: Matrix


class CpuEncoder:
    """``vision.protocol.Encoder`` on a compute team, which it closes if it owns it.  For one thread at a time."""

    shares_cores = True

    def __init__(
        self,
        planned: PlannedEncoder,
        team: Team,
        isa: Isa,
        arithmetic: Arithmetic,
        *,
        owns_team: bool = False,
        cached: bool = False,
    ) -> None:
        self._owns_team = owns_team
        self.spec, self.team, self.isa, self.arithmetic = planned.spec, team, isa, arithmetic
        store = open_panel_store(planned.path, f"vision {arithmetic.products}") if cached else None
        self.weights = _load(planned, arithmetic, team.threads, store)
        self._recording: _Recording | None = None

    def encode(self, patches: Patches) -> Floats:
        """One page's embedding rows: (blocks, out_width) float32, in reading order."""
        check_patches(patches, self.spec)
        count = patches.grid.patches
        if self._recording is None or self._recording.capacity < count:
            self._recording = None  # free the smaller buffers first
            self._recording = _Recording(self, -(-count // CAPACITY_STEP) * CAPACITY_STEP)
        return checked_rows(self._recording.run(patches))

    def close(self) -> None:
        """End a team of its own; give the buffers back."""
        if self._owns_team:
            self.team.close()
        self._recording = None


def _load(planned: PlannedEncoder, arithmetic: Arithmetic, threads: int, store: PanelStore | None) -> EncoderWeights:
    """Weights as panels, the layers' rounded.

    Patch embedding and projector keep the file's precision: they are two hundredths of the work and a third of bfloat16's
    error.
    """
    loader = planned.loader("float" if arithmetic.products == "f32" else arithmetic.products, store)
    with ThreadPoolExecutor(threads) as pool:
        layers = tuple(pool.map(loader.layer, range(planned.spec.layers)))
    patch, *projector = (
        _unrounded(loader, role, planned.spec)
        for role in (
            *(VisionRole.PATCH_EMBEDDING, VisionRole.PROJECTOR_MERGE),
            *(VisionRole.PROJECTOR_IN, VisionRole.PROJECTOR_OUT),
        )
    )
    pre_norm, projector_norm = (loader.norm(role, GLOBAL) for role in (VisionRole.PRE_NORM, VisionRole.PROJECTOR_NORM))
    if store is not None:
        store.save()
    return EncoderWeights(patch, pre_norm, layers, projector_norm, *projector)


def _unrounded(loader: Loader, role: VisionRole, spec: VisionSpec) -> Matrix:
    return loader.matrix(GLOBAL, role, rounding="float", arrange=lambda rows: arrange(role, rows, spec))


class _Recording:
    """The program and buffers for pages of up to ``capacity`` patches."""

    def __init__(self, encoder: CpuEncoder, capacity: int) -> None:
        self.capacity, self._spec, self._encoder = capacity, encoder.spec, encoder
        arithmetic = encoder.arithmetic
        self._cache = KvCache([encoder.spec.block.attention], arithmetic.codec, 1, capacity)
        sizes = {"rows": capacity, "segments": 1, "rope_dims": encoder.spec.head_dim}
        self._record = Recorder(encoder.team, encoder.isa, self._cache, arithmetic.attention, **sizes)
        self._patches, self._x = new_rows(capacity, encoder.spec.patch_width), new_rows(capacity, encoder.spec.width)
        self._record_embedding()
        for layer in encoder.weights.layers:
            self._record.block(encoder.spec.block, 0, layer, self._x)
        self._out = self._record_projector()

    def run(self, patches: Patches) -> Floats:
        """Encode one page."""
        count, blocks, tables = patches.grid.patches, patches.grid.blocks(self._spec.merge), self._record.tables
        self._patches[:count, : self._spec.patch_width] = patches.rows
        tables.set_angles(*rope_tables(patches.grid, self._spec))
        tables.set_page(count, self._cache.base(0))
        self._record.run(count, blocks, 1)
        return self._out[:blocks, : self._spec.out_width].copy()

    def _record_embedding(self) -> None:
        """x = norm(patch embedding)."""
        spec, weights = self._spec, self._encoder.weights
        embedded = new_rows(self.capacity, spec.width)
        self._record.product(Source("copy", self._patches, spec.patch_width), weights.patch, embedded)
        self._record.rows(Source("rms", embedded, spec.width, spec.eps, weights.pre_norm), self._x)

    def _record_projector(self) -> Array:
        """Norm, merge (a view of ``merge ** 2`` rows as one), and the two linear maps around the exact GELU."""
        spec, record, weights = self._spec, self._record, self._encoder.weights
        block = spec.merge**2
        capacity = self.capacity // block
        normed = new_rows(self.capacity, spec.width)
        self._record.rows(Source("rms", self._x, spec.width, spec.projector_eps, weights.projector_norm), normed)
        merged = normed[: capacity * block].reshape(capacity, -1)
        sizes = [matrix.width for matrix in (weights.merge, weights.first, weights.second)]
        joined, hidden, out = (new_rows(capacity, size) for size in sizes)
        record.product(Source("copy", merged, block * spec.width), weights.merge, joined, outputs=True)
        record.product(Source("copy", joined, sizes[0]), weights.first, hidden, outputs=True)
        record.product(Source("gelu_erf", hidden, sizes[1]), weights.second, out, outputs=True)
        return out
