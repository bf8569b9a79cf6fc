"""The encoder on the engine's kernels: one program, recorded once per page size class and run per page.

Attention is blocked over queries and keys, so memory grows with the page, never with its square.  Rows stand in block order
(``positions.block_order``), so the merge of patches is a view and costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decoder.errors import ModelError
from decoder.kernels.activations import Activations, new_activations
from decoder.kernels.drivers.step import OUTPUTS, ROWS, SEGMENTS
from decoder.kernels.isa import Isa, detect
from decoder.kernels.memory import Array, aligned
from decoder.kernels.ops_attention import attend, rope_store
from decoder.kernels.ops_matmul import activation_kind, matmul
from decoder.kernels.ops_rows import Source, prepare
from decoder.kernels.program import Program
from decoder.kernels.team import Team
from decoder.kv_cache import KvCache
from decoder.kv_codec import CODECS
from decoder.panels import Panels, repack
from decoder.spec import AttentionSpec
from decoder.weights import padded
from vision.encoder import EncoderSettings
from vision.patches import Patches
from vision.plan import GLOBAL
from vision.positions import rope_tables
from vision.reference import check_patches
from vision.spec import VisionRole, VisionSpec
from vision.weights import StoredWeights

Floats = NDArray[np.float32]
CAPACITY_STEP = 1024
"""Buffers grow by this many patches, so that pages of one kind share a recording."""
BIDIRECTIONAL = 2
"""The kind of segment whose rows see all keys."""


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """One layer: norms padded float32, matrices as panels."""

    attn_norm: Floats
    qkv: Panels
    attn_output: Panels
    ffn_norm: Floats
    gate_up: Panels
    down: Panels


class CpuEncoder:
    """``vision.encoder.Encoder`` on a compute team.  Not safe for use from two threads at once."""

    def __init__(self, weights: StoredWeights, team: Team, isa: Isa, *, bf16: bool) -> None:
        self.spec = weights.spec
        self._team, self._isa, self._bf16 = team, isa, bf16
        load = _Loader(weights, bf16=bf16)
        self._patch = load.panels(GLOBAL, VisionRole.PATCH_EMBEDDING, precise=True)
        self._pre_norm = load.norm(VisionRole.PRE_NORM, GLOBAL)
        self._layers = [load.layer(i) for i in range(self.spec.layers)]
        self._projector_norm = load.norm(VisionRole.PROJECTOR_NORM, GLOBAL)
        projector = (VisionRole.PROJECTOR_MERGE, VisionRole.PROJECTOR_IN, VisionRole.PROJECTOR_OUT)
        self._projector = [load.panels(GLOBAL, role, precise=True) for role in projector]
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
        """End the team."""
        self._team.close()
        self._recording = None


class _Loader:
    """Weights as panels: bfloat16, or as exact as the file."""

    def __init__(self, weights: StoredWeights, *, bf16: bool) -> None:
        self._weights, self._bf16 = weights, bf16

    def norm(self, role: VisionRole, layer: int) -> Floats:
        """A norm's weight, padded with zeros."""
        values = self._weights.matrix(role, layer).reshape(-1)
        out = np.zeros(padded(len(values)), np.float32)
        out[: len(values)] = values
        return out

    def panels(self, layer: int, *roles: VisionRole, precise: bool = False) -> Panels:
        """The roles' matrices, one below the other.  precise: as exact as the file, whatever the precision."""
        rows = np.concatenate([self._weights.matrix(role, layer) for role in roles])
        types = {self._weights.plan.tensors[role, layer].type_name for role in roles}
        if self._bf16 and not precise:
            return repack(_to_bf16(rows).view(np.uint8), "BF16")
        if types == {"F16"}:
            return repack(rows.astype(np.float16).view(np.uint8), "F16")  # exact: they come from float16
        return repack(rows.view(np.uint8), "F32")

    def layer(self, number: int) -> _Layer:
        """All of a layer."""
        return _Layer(
            self.norm(VisionRole.ATTN_NORM, number),
            self.panels(number, VisionRole.ATTN_Q, VisionRole.ATTN_K, VisionRole.ATTN_V),
            self.panels(number, VisionRole.ATTN_OUTPUT),
            self.norm(VisionRole.FFN_NORM, number),
            self.panels(number, VisionRole.FFN_GATE, VisionRole.FFN_UP),
            self.panels(number, VisionRole.FFN_DOWN),
        )


class _Recording:
    """The program and buffers for pages of up to ``capacity`` patches."""

    def __init__(self, encoder: CpuEncoder, capacity: int) -> None:
        spec = encoder.spec
        self.capacity, self._spec, self._encoder = capacity, spec, encoder
        self._program = Program(encoder._team, encoder._isa)
        self._acts: dict[tuple[object, int, int], Activations] = {}
        facts = AttentionSpec(spec.heads, spec.heads, spec.head_dim, spec.head_dim**-0.5)
        self._cache = KvCache([facts], CODECS["bf16" if encoder._bf16 else "f32"], 1, capacity)
        self._position, self._base = np.arange(capacity, dtype=np.int64), np.full(capacity, self._cache.base(0), np.int64)
        self._cos, self._sin = (aligned((capacity, spec.head_dim // 2), np.float32) for _ in range(2))
        self._segments = np.zeros((1, 8), np.int64)
        self._patches, self._x = _rows(capacity, spec.patch_width), _rows(capacity, spec.width)
        self._record_layers(facts)
        self._out = self._record_projector()

    def run(self, patches: Patches) -> Floats:
        """Encode one page."""
        count, blocks, step = patches.grid.patches, patches.grid.blocks(self._spec.merge), self._program.step
        self._patches[:count, : self._spec.patch_width] = patches.rows
        self._cos[:count], self._sin[:count] = rope_tables(patches.grid, self._spec)
        self._segments[0, :6] = (0, count, 0, self._cache.base(0), BIDIRECTIONAL, count)
        step[ROWS], step[OUTPUTS], step[SEGMENTS] = count, blocks, 1
        self._program.run()
        return self._out[:blocks, : self._spec.out_width].copy()

    def _record_layers(self, facts: AttentionSpec) -> None:
        spec, encoder, capacity = self._spec, self._encoder, self.capacity
        embedded = _rows(capacity, spec.width)
        self._product(Source("copy", self._patches, spec.patch_width), encoder._patch, embedded)
        prepare(self._program, Source("rms", embedded, spec.width, spec.eps, encoder._pre_norm), self._x)
        qkv, attended = _rows(capacity, 3 * spec.width), _rows(capacity, spec.width)
        gate_up = _rows(capacity, 2 * spec.ff_width)
        for layer in encoder._layers:
            self._product(Source("rms", self._x, spec.width, spec.eps, layer.attn_norm), layer.qkv, qkv)
            self._attention(facts, qkv, attended)
            self._product(Source("copy", attended, spec.width), layer.attn_output, self._x, add=True)
            self._product(Source("rms", self._x, spec.width, spec.eps, layer.ffn_norm), layer.gate_up, gate_up)
            gated = Source("silu_gated", gate_up, spec.ff_width, up_column=spec.ff_width)
            self._product(gated, layer.down, self._x, add=True)

    def _attention(self, facts: AttentionSpec, qkv: Array, attended: Array) -> None:
        spec = self._spec
        shape = {"heads": facts.heads, "kv_heads": facts.kv_heads, "head_dim": facts.head_dim, "q_column": 0}
        place = {"layer_offset": 0, "codec": self._cache.codec, "capacity": self._cache.capacity}
        rope_store(
            self._program,
            qkv,
            **shape,
            k_column=spec.width,
            v_column=2 * spec.width,
            rope_dims=spec.head_dim,
            pairing=spec.rope_pairing,
            cos=self._cos,
            sin=self._sin,
            q_norm=None,
            k_norm=None,
            eps=spec.eps,
            row_position=self._position,
            row_base=self._base,
            **place,
        )
        precision = "bf16" if self._encoder._bf16 else "f32"
        attend(
            self._program,
            qkv,
            attended,
            **shape,
            scale=facts.scale,
            window=0,
            soft_cap=0.0,
            segments=self._segments,
            precision=precision,
            **place,
        )

    def _record_projector(self) -> Array:
        """Norm, merge (a view of ``merge ** 2`` rows as one), and the two linear maps around the exact GELU."""
        spec, encoder = self._spec, self._encoder
        merge, first, second = encoder._projector
        block = spec.merge**2
        capacity = self.capacity // block
        normed = _rows(self.capacity, spec.width)
        prepare(self._program, Source("rms", self._x, spec.width, spec.projector_eps, encoder._projector_norm), normed)
        merged = normed[: capacity * block].reshape(capacity, -1)
        joined, hidden, out = _rows(capacity, merge.rows), _rows(capacity, first.rows), _rows(capacity, second.rows)
        self._product(Source("copy", merged, block * spec.width), merge, joined, rows=OUTPUTS)
        self._product(Source("copy", joined, merge.rows), first, hidden, rows=OUTPUTS)
        self._product(Source("gelu_erf", hidden, first.rows), second, out, rows=OUTPUTS)
        return out

    def _product(self, source: Source, panels: Panels, out: Array, *, rows: int = ROWS, add: bool = False) -> None:
        """out = panels @ source(row)."""
        kind, capacity = activation_kind(panels, self._program.isa), len(source.rows)
        key = (kind, source.width, capacity)
        if key not in self._acts:
            self._acts[key] = new_activations(kind, source.width, capacity)
        prepare(self._program, source, self._acts[key], rows=rows)
        matmul(self._program, self._acts[key], panels, out, rows=rows, add=add)


def open_cpu(weights: StoredWeights, settings: EncoderSettings) -> CpuEncoder:
    """The encoder on this machine's CPU.  Raises ModelError for a precision that it has not, or shapes the kernels have not."""
    isa, spec = detect(), weights.spec
    if settings.precision == "bf16" and not isa.bf16:
        raise ModelError(f"vision precision bf16 needs a CPU with bf16 products, this one is {isa.name}: use auto or f32")
    uneven = [f"{name} {value}" for name, value in _sizes(spec) if value % 16]
    if uneven:
        raise ModelError(f"the CPU encoder needs sizes in multiples of 16, the file has {', '.join(uneven)}")
    bf16 = isa.bf16 if settings.precision == "auto" else settings.precision == "bf16"
    return CpuEncoder(weights, Team(settings.threads), isa, bf16=bf16)


def _sizes(spec: VisionSpec) -> Sequence[tuple[str, int]]:
    return (("width", spec.width), ("feed-forward width", spec.ff_width), ("head width", spec.head_dim))


def _to_bf16(x: Floats) -> NDArray[np.uint16]:
    """Upper halves of float32, rounded to nearest even."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)


def _rows(count: int, width: int) -> Array:
    """A row buffer whose padding lanes are zero."""
    buffer = aligned((count, padded(width)), np.float32)
    buffer[:, width:] = 0
    return buffer
