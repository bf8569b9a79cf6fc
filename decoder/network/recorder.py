"""Recording a transformer: products of packed rows, attentions, and the blocks that are made of them.

``transformer.Forward`` and the vision encoder are short lists of these.  What changes from step to step stays in
``StepTables``.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from pagemill.decoder.kernels.activations import ActivationKind, Activations, new_activations
from pagemill.decoder.kernels.drivers.step import OUTPUTS, ROWS, SEGMENTS
from pagemill.decoder.kernels.isa import Isa
from pagemill.decoder.kernels.memory import Array, aligned
from pagemill.decoder.kernels.ops.attention import CacheLayer, HeadNorms, Heads, StepTables, attend, rope_store
from pagemill.decoder.kernels.ops.matmul import activation_kind, matmul
from pagemill.decoder.kernels.ops.rows import Source, prepare
from pagemill.decoder.kernels.program import Program
from pagemill.decoder.kernels.team import Team
from pagemill.decoder.network.kv_cache import KvCache
from pagemill.decoder.spec import BlockSpec
from pagemill.decoder.weights.loader import Layer, Matrix, padded


class Recorder:
    """A program of transformer blocks over one cache, and the tables of its steps.

    rows, segments: of a step, at most.  rope_dims: dimensions of a head that turn, 0 for none.  precision: of attention's
    products.  Packed rows are shared between products of one kind and size.
    """

    def __init__(
        self,
        team: Team,
        isa: Isa,
        cache: KvCache,
        precision: Literal["f32", "bf16"],
        *,
        rows: int,
        segments: int,
        rope_dims: int,
    ) -> None:
        self._program, self._cache, self._precision = Program(team, isa), cache, precision
        self.tables = StepTables.new(rows, segments, rope_dims)
        self._packed: dict[tuple[ActivationKind, int, int], Activations] = {}
        self._rows: dict[tuple[str, int, int], Array] = {}

    def block(self, spec: BlockSpec, number: int, layer: Layer, x: Array) -> None:
        """x += attention(norm(x)); x += feed_forward(norm(x)).  number: of the cache's layer."""
        self.transform(spec, layer, self.attend(spec, number, layer, x), x)

    def attend(self, spec: BlockSpec, number: int, layer: Layer, x: Array) -> Array:
        """attention(norm(x)), a buffer that the next block's attention overwrites."""
        facts = spec.attention
        qkv = self._buffer("qkv", len(x), layer.qkv.width)
        attended = self._buffer("attended", len(x), facts.heads * facts.head_dim)
        self.product(Source("rms", x, spec.width, spec.norm.eps, layer.attn_norm), layer.qkv, qkv)
        cached = CacheLayer(self._cache.codec, self._cache.layer_offset(number), self._cache.capacity)
        norms = HeadNorms(layer.q_norm, layer.k_norm, spec.norm.eps)
        self.attention(Heads(qkv, layer.qkv.columns, facts, cached), norms, attended)
        return attended

    def transform(self, spec: BlockSpec, layer: Layer, attended: Array, x: Array, *, outputs: bool = False) -> None:
        """x += output(attended); x += down(activation(gate(norm(x))) * up(norm(x))).  outputs: of a step's outputs only."""
        gate_up = self._buffer("gate_up", len(x), layer.gate_up.width)
        self.product(Source("copy", attended, attended.shape[1]), layer.attn_output, x, outputs=outputs, add=True)
        self.product(Source("rms", x, spec.width, spec.norm.eps, layer.ffn_norm), layer.gate_up, gate_up, outputs=outputs)
        gated = Source(f"{spec.activation}_gated", gate_up, spec.ff_width, up_column=layer.gate_up.columns[1])
        self.product(gated, layer.down, x, outputs=outputs, add=True)

    def product(self, source: Source, matrix: Matrix, out: Array, *, outputs: bool = False, add: bool = False) -> None:
        """out = matrix @ source(row), or out += with add.  Rows are packed once for the parts that read them alike.

        outputs: of as many rows as the step has outputs, instead of all of its rows.
        """
        made: set[ActivationKind] = set()
        rows = OUTPUTS if outputs else ROWS
        for part in matrix.parts:
            kind = activation_kind(part.panels, self._program.isa)
            packed = self._activations(kind, source.width, len(out))
            if kind not in made:
                prepare(self._program, source, packed, rows=rows)
                made.add(kind)
            matmul(self._program, packed, part.panels, out, column=part.column, rows=rows, bias=part.bias, add=add)

    def rows(self, source: Source, out: Array, *, outputs: bool = False) -> None:
        """out = source(row): a norm, an activation or a copy, as float32."""
        prepare(self._program, source, out, rows=OUTPUTS if outputs else ROWS)

    def run(self, rows: int, outputs: int, segments: int) -> None:
        """One step of everything that was recorded, over what the tables say."""
        step = self._program.step
        step[ROWS], step[OUTPUTS], step[SEGMENTS] = rows, outputs, segments
        self._program.run()

    def attention(self, heads: Heads, norms: HeadNorms, out: Array) -> None:
        """out = attention of the queries over the cached keys, after this step's keys and values are stored."""
        rope_store(self._program, heads, norms, self.tables)
        attend(self._program, heads, out, self.tables.segments, self._precision)

    def _buffer(self, name: str, count: int, width: int) -> Array:
        """Rows between the ops of a block: one buffer of each size serves all layers."""
        key = (name, count, width)
        if key not in self._rows:
            self._rows[key] = new_rows(count, width)
        return self._rows[key]

    def _activations(self, kind: ActivationKind, width: int, capacity: int) -> Activations:
        """Packed rows are read before the next are made: one buffer per kind and size serves all layers."""
        key = (kind, width, capacity)
        if key not in self._packed:
            self._packed[key] = new_activations(kind, width, capacity)
        return self._packed[key]


def new_rows(count: int, width: int) -> Array:
    """A float32 row buffer whose padding lanes are zero."""
    buffer = aligned((count, padded(width)), np.float32)
    buffer[:, width:] = 0
    return buffer
