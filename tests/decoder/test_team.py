"""How many threads a team has: one for each physical core that this process may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pagemill.decoder.kernels import team
from pagemill.decoder.kernels.team import Team, available_cores, default_threads


@pytest.mark.parametrize(
    ("siblings", "threads"),
    [
        ({0: "0,4", 1: "1,5", 4: "0,4", 5: "1,5"}, 2),
        ({0: "0-1", 1: "0-1"}, 1),
        ({0: "0", 1: "1", 2: "2"}, 3),
        ({}, 4),  # the system does not say
    ],
    ids=["two of each core", "one core", "no siblings", "unknown"],
)
def test_threads_are_the_physical_cores(
    siblings: dict[int, str], threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(team.sys, "platform", "linux")
    for number, text in siblings.items():
        folder = tmp_path / f"cpu{number}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(text + "\n")
    allowed = set(siblings) or {0, 1, 2, 3}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: allowed, raising=False)
    monkeypatch.setattr(team, "_cgroup_cores", lambda: 1 << 30)
    assert available_cores() == len(allowed)
    assert default_threads(tmp_path) == threads


def test_a_quota_below_the_physical_cores_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(team, "_cgroup_cores", lambda: 1)
    assert default_threads(tmp_path) == 1


def test_a_team_has_the_default_threads() -> None:
    team_ = Team()
    assert team_.threads == default_threads()
    team_.close()
