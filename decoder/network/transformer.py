"""The one forward pass: recorded once as a program, run once per step.

``Forward`` owns the row buffers and the step's tables.  What a step's rows are (prompt chunks, decoded rows, of which
sequences) is data in these tables; the recorded ops never change.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pagemill.decoder.batch import Segment
from pagemill.decoder.kernels.drivers.segments import DECODE_ROWS, PROMPT_CHUNK
from pagemill.decoder.kernels.drivers.step import OUTPUTS, ROWS, SEGMENTS
from pagemill.decoder.kernels.memory import Array
from pagemill.decoder.kernels.ops.attention import StepTables
from pagemill.decoder.kernels.ops.rows import Source, prepare
from pagemill.decoder.kernels.program import Program
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
        self._program = Program(team, isa)
        rope = spec.attention[0].rope
        self._tables = StepTables.new(rows, rows, rope.dims if rope else 0)
        self._angles = rope_tables(rope, weights.rope_divisors, cache.capacity) if rope else None
        self._record = Recorder(self._program, cache, self._tables, "bf16" if isa.bf16 and not exact else "f32")
        self._x, self._output_rows = new_rows(rows, spec.width), np.zeros(outputs, np.int64)
        last = self._record_layers(weights.layers, outputs)
        self._logits = new_rows(outputs, spec.vocab)
        final = Source("rms", last, spec.width, spec.norm.eps, weights.output_norm)
        self._record.product(final, weights.output, self._logits, rows=OUTPUTS)

    def run(self, segments: Sequence[Segment]) -> Floats:
        """One step.  Returns the outputs' logits in the segments' order: (outputs, vocab) float32, valid until the next run."""
        self._lay_out(segments)
        self._program.run()
        logits: Floats = self._logits[: self._program.step[OUTPUTS], : self.spec.vocab]
        return logits

    def _record_layers(self, layers: Sequence[Layer], outputs: int) -> Array:
        """Every block; after the last attention only the rows that need logits go on.  Returns their buffer."""
        record, spec, last = self._record, self.spec, len(layers) - 1
        for number, layer in enumerate(layers[:last]):
            record.block(spec.block(number), number, layer, self._x)
        attended = record.attend(spec.block(last), last, layers[last], self._x)
        x, chosen = new_rows(outputs, spec.width), new_rows(outputs, attended.shape[1])
        for source, target in ((self._x, x), (attended, chosen)):
            prepare(self._program, Source("copy", source, target.shape[1], index=self._output_rows), target, rows=OUTPUTS)
        record.transform(spec.block(last), layers[last], chosen, x, rows=OUTPUTS)
        return x

    def _lay_out(self, segments: Sequence[Segment]) -> None:
        """Lay the segments' rows one after the other, and say in the tables whose they are."""
        row, outputs, tables = 0, 0, self._tables
        for number, segment in enumerate(segments):
            count = len(segment.rows)
            base, end = self.cache.base(segment.slot), segment.start + count
            self._x[row : row + count, : self.spec.width] = segment.rows
            tables.position[row : row + count] = np.arange(segment.start, end)
            tables.base[row : row + count] = base
            kind = DECODE_ROWS if segment.decoding else PROMPT_CHUNK
            tables.segments[number, :6] = (row, count, segment.start, base, kind, end)
            row += count
            self._output_rows[outputs : outputs + segment.outputs] = np.arange(row - segment.outputs, row)
            outputs += segment.outputs
        self._turn(row)
        step = self._program.step
        step[ROWS], step[OUTPUTS], step[SEGMENTS] = row, outputs, len(segments)

    def _turn(self, rows: int) -> None:
        """Each row's angles, from its position."""
        tables = self._tables
        if self._angles is not None and tables.cos is not None and tables.sin is not None:
            np.take(self._angles[0], tables.position[:rows], axis=0, out=tables.cos[:rows])
            np.take(self._angles[1], tables.position[:rows], axis=0, out=tables.sin[:rows])
