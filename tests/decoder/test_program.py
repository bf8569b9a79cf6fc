"""Programs: a timed run does what a run does, and says what each worker spent on each op."""

from __future__ import annotations

import numpy as np

from pagemill.decoder.kernels.drivers.step import ROWS
from pagemill.decoder.kernels.isa import detect
from pagemill.decoder.kernels.memory import aligned, aligned_copy
from pagemill.decoder.kernels.ops.rows import Source, prepare
from pagemill.decoder.kernels.program import Program
from pagemill.decoder.kernels.team import Team


def test_a_timed_run_gives_the_same_rows_and_every_workers_times(team: Team) -> None:
    x = aligned_copy(np.random.default_rng(0).standard_normal((7, 48)).astype(np.float32))
    middle, out = (aligned((7, 48), np.float32) for _ in range(2))
    program = Program(team, detect())
    prepare(program, Source("silu", x, 48), middle)
    prepare(program, Source("copy", middle, 48), out)
    program.step[ROWS] = 7
    program.run()
    expected = out.copy()
    out.fill(0)
    times = program.run_timed()
    np.testing.assert_array_equal(out, expected)
    begins, ends, spent = np.moveaxis(times, 2, 0)
    assert times.shape == (team.threads, 2, 3)
    assert (begins <= ends).all()
    assert (spent >= 0).all()
    assert (begins[:, 1].min() >= ends[:, 0]).all()  # a barrier stands between two ops
