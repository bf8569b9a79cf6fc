"""The compute team: this thread and long-lived others that run one program step together, outside Python's lock.

Between steps the others sleep; within a step they meet at a barrier after every op, spinning briefly and then yielding their
core.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pagemill.decoder.kernels.memory import address, aligned


def available_cores() -> int:
    """Cores that this process may use: its affinity, within the cgroup's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, _cgroup_cores()))


def default_threads(topology: Path = Path("/sys/devices/system/cpu")) -> int:
    """The default number of threads of a team: one for each physical core within ``available_cores``.

    Two threads of one core share its vector units: a second one adds nothing to a product and slows the barriers.
    """
    return max(1, min(available_cores(), _physical_cores(topology)))


def _physical_cores(topology: Path) -> int:
    """Physical cores of those that this process may use; a large number where the system does not say."""
    if sys.platform == "darwin":
        found = subprocess.run(["sysctl", "-n", "hw.physicalcpu"], capture_output=True, text=True, check=False).stdout
        return int(found) if found.strip().isdecimal() else 1 << 30
    try:
        allowed = os.sched_getaffinity(0)
        return len({(topology / f"cpu{number}" / "topology" / "thread_siblings_list").read_text() for number in allowed})
    except (AttributeError, OSError):
        return 1 << 30


def _cgroup_cores() -> int:
    """Whole cores of the cgroup's CPU quota (v2); a large number where there is none."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return math.floor(int(quota) / int(period)) or 1
    except (OSError, ValueError):
        return 1 << 30


class Team:
    """``threads`` threads, the caller's among them; None is ``default_threads``.

    Raises ValueError when more threads are asked than there are cores: a spinning barrier collapses then.  crowded: allow it,
    for tests of what does not depend on the number of threads.
    """

    def __init__(self, threads: int | None = None, *, crowded: bool = False) -> None:
        cores = available_cores()
        self.threads = default_threads() if threads is None else threads
        if not 1 <= self.threads <= (max(cores, self.threads) if crowded else cores):
            raise ValueError(f"threads must be between 1 and the {cores} cores available here, found {self.threads}")
        self._gate = aligned(16, np.int64)  # two cache lines: arrivals do not disturb those who watch the generation
        self._gate.fill(0)
        self._job: tuple[Any, ...] | None = None
        self._starts = [threading.Semaphore(0) for _ in range(self.threads - 1)]
        for index, start in enumerate(self._starts, 1):
            # daemons: a program that forgets to close its team must still end
            threading.Thread(target=self._work, args=(index, start), daemon=True, name=f"pagemill-{index}").start()

    def run(self, entry: Callable[..., None], *args: Any) -> None:
        """entry(*args, gate, worker, workers) on every thread; returns when the last op's barrier is passed."""
        self._job = (entry, args)
        for start in self._starts:
            start.release()
        entry(*args, address(self._gate), 0, self.threads)

    def close(self) -> None:
        """End the other threads."""
        self._job = None
        for start in self._starts:
            start.release()
        self._starts = []

    def _work(self, index: int, start: threading.Semaphore) -> None:
        while True:
            start.acquire()
            job = self._job
            if job is None:
                return
            entry, args = job
            entry(*args, address(self._gate), index, self.threads)
