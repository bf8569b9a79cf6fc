"""A program: ops recorded once, run many times, each run one call without Python's lock.

Recording fixes addresses and shapes; what changes from step to step (how many rows, which sequences) is read from the step
header and the tables that ops point to.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pagemill.decoder.kernels.drivers.run import run, run_timed
from pagemill.decoder.kernels.drivers.step import SLOTS
from pagemill.decoder.kernels.isa import Isa
from pagemill.decoder.kernels.memory import Array, address, aligned
from pagemill.decoder.kernels.team import Team

OP_INTS, OP_REALS = 32, 8  # four cache lines and half of one: an op is read whole


class Program:
    """A list of ops for one team and one CPU variant.  Not safe for use from two threads at once."""

    def __init__(self, team: Team, isa: Isa) -> None:
        self.team, self.isa = team, isa
        self.step = np.zeros(SLOTS, np.int64)
        self._ints: list[list[int]] = []
        self._reals: list[list[float]] = []
        self._keep: list[Array] = []
        self._scratch_bytes = 64
        self._tables: tuple[Array, Array, Array, Array] | None = None

    def add(
        self, code: int, ints: Sequence[int], reals: Sequence[float] = (), keep: Sequence[Array] = (), scratch_bytes: int = 0
    ) -> None:
        """Record one op.  keep: arrays whose addresses are in ints; they live as long as the program."""
        assert len(ints) < OP_INTS, "an op's integers outgrew their row"
        assert len(reals) <= OP_REALS, "an op's reals outgrew their row"
        self._ints.append([code, *ints] + [0] * (OP_INTS - 1 - len(ints)))
        self._reals.append([*reals] + [0.0] * (OP_REALS - len(reals)))
        self._keep.extend(keep)
        self._scratch_bytes = max(self._scratch_bytes, -(-scratch_bytes // 64) * 64)
        self._tables = None

    def run(self) -> None:
        """Execute every op.  The step header must be filled (``program.step``)."""
        ops, reals, counters, scratch = self._tables or self._lay_out()
        counters.fill(0)
        self.team.run(run, ops, address(reals), self.step, address(counters), address(scratch), self._scratch_bytes)

    def run_timed(self) -> Array:
        """As ``run``.  Returns (workers, ops, 3) int64 nanoseconds: an op's begin and end by the wall, and its CPU time."""
        ops, reals, counters, scratch = self._tables or self._lay_out()
        counters.fill(0)
        times = np.zeros((self.team.threads, len(ops), 3), np.int64)
        self.team.run(
            run_timed, ops, address(reals), self.step, address(counters), address(scratch), self._scratch_bytes, times
        )
        return times

    def _lay_out(self) -> tuple[Array, Array, Array, Array]:
        count = len(self._ints)
        reals = aligned((count, OP_REALS), np.float32)
        reals[...] = self._reals
        self._tables = (
            np.array(self._ints, np.int64).reshape(count, OP_INTS),
            reals,
            aligned((count, 8), np.int64),  # a counter a cache line: workers of one op do not slow another's
            aligned(self._scratch_bytes * self.team.threads, np.uint8),
        )
        return self._tables
