"""The one forward pass: recorded once as a program, run once per step.

``Forward`` owns the row buffers and the step's tables.  What a step's rows are (prompt chunks, decoded rows, of which
sequences) is data in these tables; the recorded ops never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pagemill.decoder.batch import Segment
from pagemill.decoder.kernels.drivers.segments import DECODE_ROWS, PROMPT_CHUNK
from pagemill.decoder.kernels.memory import Array
from pagemill.decoder.kernels.ops.rows import Source
from pagemill.decoder.kernels.team import Team
from pagemill.decoder.model import Model
from pagemill.decoder.network.kv_cache import KvCache
from pagemill.decoder.network.positions import rope_tables
from pagemill.decoder.network.recorder import Recorder, new_rows
from pagemill.decoder.weights.loader import Layer

Floats = NDArray[np.float32]


class Forward:
    """Every architecture's pass over ragged steps of up to ``rows`` rows, ``outputs`` of them with logits."""

    def __init__(self, model: Model, cache: KvCache, team: Team, *, rows: int, outputs: int, exact: bool) -> None:
        spec, weights, isa = model.spec, model.weights, model.isa
        self.spec, self.cache = spec, cache
        rope = spec.attention[0].rope
        self._angles = rope_tables(rope, weights.rope_divisors, cache.capacity) if rope else None
        precision: Literal["bf16", "f32"] = "bf16" if isa.bf16 and not exact else "f32"
        sizes = {"rows": rows, "segments": rows, "rope_dims": rope.dims if rope else 0}
        self._record = Recorder(team, isa, cache, precision, **sizes)
        self._x, self._output_rows = new_rows(rows, spec.width), np.zeros(outputs, np.int64)
        last = self._record_layers(weights.layers, outputs)
        self._logits = new_rows(outputs, spec.vocab)
        final = Source("rms", last, spec.width, spec.norm.eps, weights.output_norm)
        self._record.product(final, weights.output, self._logits, outputs=True)

    def run(self, segments: Sequence[Segment]) -> Floats:
        """One step.  Returns the outputs' logits in the segments' order: (outputs, vocab) float32, valid until the next run."""
        rows, outputs = self._lay_out(segments)
        self._record.run(rows, outputs, len(segments))
        logits: Floats = self._logits[:outputs, : self.spec.vocab]
        return logits

    def _record_layers(self, layers: Sequence[Layer], outputs: int) -> Array:
        """Every block; after the last attention only the rows that need logits go on.  Returns their buffer."""
        record, spec, last = self._record, self.spec, len(layers) - 1
        for number, layer in enumerate(layers[:last]):
            record.block(spec.block(number), number, layer, self._x)
        attended = record.attend(spec.block(last), last, layers[last], self._x)
        x, chosen = new_rows(outputs, spec.width), new_rows(outputs, attended.shape[1])
        for source, target in ((self._x, x), (attended, chosen)):
            record.rows(Source("copy", source, target.shape[1], index=self._output_rows), target, outputs=True)
        record.transform(spec.block(last), layers[last], chosen, x, outputs=True)
        return x

    def _lay_out(self, segments: Sequence[Segment]) -> tuple[int, int]:
        """Lay the segments' rows one after the other, and note in the tables whose they are.  Returns rows and outputs."""
        row, outputs, tables = 0, 0, self._record.tables
        for number, segment in enumerate(segments):
            rows = range(row, row + len(segment.rows))
            self._x[row : rows.stop, : self.spec.width] = segment.rows
            kind = DECODE_ROWS if segment.decoding else PROMPT_CHUNK
            tables.set_segment(number, rows, segment.start, self.cache.base(segment.slot), kind)
            row = rows.stop
            self._output_rows[outputs : outputs + segment.outputs] = np.arange(row - segment.outputs, row)
            outputs += segment.outputs
        if self._angles is not None:
            cos, sin = (np.take(angles, tables.position[:row], axis=0) for angles in self._angles)
            tables.set_angles(cos, sin)
        return row, outputs
