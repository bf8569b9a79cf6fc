"""The one forward pass: recorded once as a program, run once per step.

``Forward`` owns the row buffers and the step's tables.  What a step's rows are (prompt chunks, decoded rows, of which
sequences) is data in these tables; the recorded ops never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from decoder.batch import Segment
from decoder.kernels.activations import ActivationKind, Activations, new_activations
from decoder.kernels.drivers.step import OUTPUTS, ROWS, SEGMENTS
from decoder.kernels.isa import Isa
from decoder.kernels.memory import Array, aligned
from decoder.kernels.ops_attention import attend, rope_store
from decoder.kernels.ops_matmul import activation_kind, matmul
from decoder.kernels.ops_rows import Source, prepare
from decoder.kernels.program import Program
from decoder.kernels.team import Team
from decoder.kv_cache import KvCache
from decoder.positions import rope_tables
from decoder.spec import AttentionSpec, ModelSpec
from decoder.weights import Layer, Matrix, Weights, padded

Floats = NDArray[np.float32]
PROMPT_ROWS, DECODED_ROW = 0, 1
"""Kinds of segments, as the attention op reads them."""


class Forward:
    """Every architecture's pass over ragged steps of up to ``rows`` rows, ``outputs`` of them with logits."""

    def __init__(
        self, spec: ModelSpec, weights: Weights, cache: KvCache, team: Team, isa: Isa, *, rows: int, outputs: int, exact: bool
    ) -> None:
        self.spec, self.cache, self._weights = spec, cache, weights
        self._program = Program(team, isa)
        self._precision: Literal["f32", "bf16"] = "bf16" if isa.bf16 and not exact else "f32"
        self._tables = _Tables(spec, cache, weights, rows, outputs)
        self._x = _rows(rows, spec.width)
        self._acts: dict[tuple[ActivationKind, int, int], Activations] = {}
        self._outputs = outputs
        for number, layer in enumerate(weights.layers):
            self._attention(spec.attention[number], layer, number)
            self._feed_forward(layer)
        self._logits = self._record_logits()

    def run(self, segments: Sequence[Segment]) -> Floats:
        """One step.  Returns the outputs' logits in the segments' order: (outputs, vocab) float32, valid until the next run."""
        self._tables.fill(segments, self._program.step, self._x)
        self._program.run()
        logits: Floats = self._logits[: self._program.step[OUTPUTS], : self.spec.vocab]
        return logits

    def _attention(self, facts: AttentionSpec, layer: Layer, number: int) -> None:
        """x += output(attention(norm(x)))."""
        tables, spec = self._tables, self.spec
        qkv, attended = self._buffer("qkv", layer.qkv.width), self._buffer("attended", facts.heads * facts.head_dim)
        q, k, v = layer.qkv.columns
        self._product(Source("rms", self._x, spec.width, spec.norm.eps, layer.attn_norm), layer.qkv, qkv)
        shape = {"heads": facts.heads, "kv_heads": facts.kv_heads, "head_dim": facts.head_dim, "q_column": q}
        place = {"layer_offset": self.cache.layer_offset(number), "codec": self.cache.codec, "capacity": self.cache.capacity}
        rope_store(
            self._program,
            qkv,
            **shape,
            k_column=k,
            v_column=v,
            rope_dims=facts.rope.dims if facts.rope else 0,
            pairing=facts.rope.pairing if facts.rope else "halves",
            cos=tables.cos,
            sin=tables.sin,
            q_norm=layer.q_norm,
            k_norm=layer.k_norm,
            eps=spec.norm.eps,
            row_position=tables.position,
            row_base=tables.base,
            **place,
        )
        attend(
            self._program,
            qkv,
            attended,
            **shape,
            scale=facts.scale,
            window=facts.window,
            soft_cap=facts.soft_cap,
            segments=tables.segments,
            precision=self._precision,
            **place,
        )
        self._product(Source("copy", attended, facts.heads * facts.head_dim), layer.attn_output, self._x, add=True)

    def _feed_forward(self, layer: Layer) -> None:
        """x += down(activation(gate(norm(x))) * up(norm(x)))."""
        spec = self.spec
        gate_up = self._buffer("gate_up", layer.gate_up.width)
        self._product(Source("rms", self._x, spec.width, spec.norm.eps, layer.ffn_norm), layer.gate_up, gate_up)
        gated = Source(f"{spec.activation}_gated", gate_up, spec.ff_width, up_column=layer.gate_up.columns[1])
        self._product(gated, layer.down, self._x, add=True)

    def _record_logits(self) -> Array:
        spec, weights = self.spec, self._weights
        logits = _rows(self._outputs, spec.vocab)
        source = Source("rms", self._x, spec.width, spec.norm.eps, weights.output_norm, index=self._tables.output)
        self._product(source, weights.output, logits, rows=OUTPUTS)
        return logits

    def _product(self, source: Source, matrix: Matrix, out: Array, *, rows: int = ROWS, add: bool = False) -> None:
        """out = matrix @ source(row), each kind of packed activations made once for the parts that read it."""
        made: dict[ActivationKind, Activations] = {}
        for part in matrix.parts:
            kind = activation_kind(part.panels, self._program.isa)
            if kind not in made:
                made[kind] = self._activations(kind, source.width, len(out))
                prepare(self._program, source, made[kind], rows=rows)
            matmul(self._program, made[kind], part.panels, out, column=part.column, rows=rows, bias=part.bias, add=add)

    def _activations(self, kind: ActivationKind, width: int, capacity: int) -> Activations:
        """Packed rows are read before the next are made: one buffer per kind and size serves all layers."""
        key = (kind, width, capacity)
        if key not in self._acts:
            self._acts[key] = new_activations(kind, width, capacity)
        return self._acts[key]

    def _buffer(self, name: str, width: int) -> Array:
        """The row buffer of a name, shared by all layers (which may differ in width)."""
        return self._tables.buffer(name, width)


class _Tables:
    """What changes from step to step, at fixed addresses."""

    def __init__(self, spec: ModelSpec, cache: KvCache, weights: Weights, rows: int, outputs: int) -> None:
        self._spec, self._cache, self._rows = spec, cache, rows
        self.position, self.base = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        self.segments = np.zeros((rows, 8), np.int64)
        self.output = np.zeros(outputs, np.int64)
        self.cos: Array | None = None
        self.sin: Array | None = None
        rope = spec.attention[0].rope
        if rope is not None:
            self._cos, self._sin = rope_tables(rope, weights.rope_divisors, cache.capacity)
            self.cos, self.sin = (aligned((rows, rope.dims // 2), np.float32) for _ in range(2))
        self._buffers: dict[tuple[str, int], Array] = {}

    def buffer(self, name: str, width: int) -> Array:
        """Row buffer of a name and width."""
        if (name, width) not in self._buffers:
            self._buffers[name, width] = _rows(self._rows, width)
        return self._buffers[name, width]

    def fill(self, segments: Sequence[Segment], step: NDArray[np.int64], x: Array) -> None:
        """Lay the segments' rows one after the other."""
        row, outputs = 0, 0
        for number, segment in enumerate(segments):
            count = len(segment.rows)
            base = self._cache.base(segment.slot)
            x[row : row + count, : self._spec.width] = segment.rows
            self.position[row : row + count] = np.arange(segment.start, segment.start + count)
            self.base[row : row + count] = base
            kind = DECODED_ROW if segment.decoding else PROMPT_ROWS
            self.segments[number, :6] = (row, count, segment.start, base, kind, segment.start + count)
            self.output[outputs : outputs + segment.outputs] = np.arange(row + count - segment.outputs, row + count)
            row, outputs = row + count, outputs + segment.outputs
        if self.cos is not None and self.sin is not None:
            np.take(self._cos, self.position[:row], axis=0, out=self.cos[:row])
            np.take(self._sin, self.position[:row], axis=0, out=self.sin[:row])
        step[ROWS], step[OUTPUTS], step[SEGMENTS] = row, outputs, len(segments)


def _rows(count: int, width: int) -> Array:
    """A row buffer whose padding lanes are zero."""
    buffer = aligned((count, padded(width)), np.float32)
    buffer[:, width:] = 0
    return buffer
