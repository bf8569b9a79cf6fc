"""Fixtures of the engine's tests: a compute team, and buffers that start as NaN."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pagemill.decoder.kernels.memory import poison_new_buffers
from pagemill.decoder.kernels.team import Team, available_cores


@pytest.fixture(scope="session")
def team() -> Iterator[Team]:
    """A team of two threads where the machine has two cores."""
    team = Team(min(2, available_cores()))
    yield team
    team.close()


@pytest.fixture(autouse=True)
def _poisoned_buffers() -> Iterator[None]:
    """New buffers hold NaN: whoever reads what was never written gets caught."""
    poison_new_buffers(True)
    yield
    poison_new_buffers(False)
