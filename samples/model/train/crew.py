"""Who computes gradients: this process (a GPU, or all threads of it), or several one-thread processes that share the weights.

Shared batches go to whoever is free, so a core that is busy elsewhere holds nobody up; sums do not depend on who did what but
for rounding.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from queue import Empty
from typing import Any, Protocol

import numpy as np
import torch
import torch.multiprocessing as processes
from numpy.typing import NDArray
from torch import Tensor

from samples.model.train.batches import PAD, Batch
from samples.model.train.losses import Weights, batch_flop, batch_loss
from samples.model.train.network import Network

WAIT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Report:
    """One batch's losses, how many tokens it had, and what was seen of pages that may come again."""

    seed: int
    parts: dict[str, float]
    tokens: int
    flop: float
    seen: NDArray[np.float16] | None


class Crew(Protocol):
    """Leaves the gradient of a step's batches, weighted by their tokens, in the parameters' `grad`."""

    def learn(self, batches: list[Batch]) -> list[Report]:
        """Compute one step's gradient."""
        ...

    def close(self) -> None:
        """Let go of processes."""
        ...


def accumulate(network: Network, batch: Batch, weights: Weights, tokens_in_step: int) -> Report:
    """Add a batch's share of the step's gradient."""
    tokens = int((batch.tokens != PAD).sum())
    device = network.embed.weight.device
    with torch.autocast(device.type, torch.bfloat16):
        outcome = batch_loss(network, batch, weights)
    (outcome.loss * (tokens / tokens_in_step)).backward()  # type: ignore[no-untyped-call]
    return Report(batch.seed, outcome.parts, tokens, batch_flop(network.shape, batch), outcome.seen)


class Alone:
    """Batches one after another in this process."""

    def __init__(self, network: Network, weights: Weights) -> None:
        self._network, self._weights = network, weights

    def learn(self, batches: list[Batch]) -> list[Report]:
        """Compute one step's gradient."""
        for parameter in self._network.parameters():
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.zero_()
        tokens = count_tokens(batches)
        return [accumulate(self._network, batch, self._weights, tokens) for batch in batches]

    def close(self) -> None:
        """Nothing to let go of."""


class Team:
    """Processes of one thread each that take batches from one queue."""

    def __init__(self, network: Network, weights: Weights, workers: int, is_compiled: bool) -> None:
        context = processes.get_context("spawn")
        network.share_memory()
        self._network = network
        self._tasks: Any = context.Queue()
        self._reports: Any = context.Queue()
        self._sums = [shared_zeros(sum(p.numel() for p in network.parameters())) for _ in range(workers)]
        self._workers = [
            context.Process(target=work, args=(network, weights, total, self._tasks, self._reports, is_compiled), daemon=True)
            for total in self._sums
        ]
        for worker in self._workers:
            worker.start()

    def learn(self, batches: list[Batch]) -> list[Report]:
        """Compute one step's gradient; big batches first, so that all end at about the same time."""
        for total in self._sums:
            total.zero_()
        tokens = count_tokens(batches)
        for batch in sorted(batches, key=lambda batch: -batch_flop(self._network.shape, batch)):
            self._tasks.put((batch, tokens))
        reports = [self._report() for _ in batches]
        total = torch.stack(self._sums).sum(0)
        for parameter, gradient in zip(self._network.parameters(), views(self._network, total), strict=True):
            parameter.grad = gradient
        return reports

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.terminate()
            worker.join()

    def _report(self) -> Report:
        while True:
            try:
                report = self._reports.get(timeout=WAIT_SECONDS)
            except Empty:
                dead = [worker.pid for worker in self._workers if not worker.is_alive()]
                if dead:
                    raise RuntimeError(
                        f"training processes {dead} died: see above, then start again from the last state"
                    ) from None
                continue
            assert isinstance(report, Report)
            return report


def work(network: Network, weights: Weights, total: Tensor, tasks: Any, reports: Any, is_compiled: bool) -> None:
    """A worker's life: gradients go into `total`, which the parent empties between steps; it ends with its parent."""
    torch.set_num_threads(1)
    parent = os.getppid()
    for parameter, gradient in zip(network.parameters(), views(network, total), strict=True):
        parameter.grad = gradient
    if is_compiled:
        compile_layers(network)
    while os.getppid() == parent:
        try:
            batch, tokens = tasks.get(timeout=WAIT_SECONDS)
        except Empty:
            continue
        reports.put(accumulate(network, batch, weights, tokens))


def compile_layers(network: Network) -> None:
    """Fuse what lies between the matrix products; for any size of page."""
    for layer in (*network.vision.layers, *network.layers):
        layer.forward = torch.compile(layer.forward, dynamic=True)


def views(network: Network, flat: Tensor) -> list[Tensor]:
    """The parameters' shapes, one after another in a flat tensor."""
    parameters = list(network.parameters())
    pieces = torch.split(flat, [parameter.numel() for parameter in parameters])
    return [piece.view(parameter.shape) for piece, parameter in zip(pieces, parameters, strict=True)]


def shared_zeros(count: int) -> Tensor:
    """Memory that child processes see as well."""
    zeros: Tensor = torch.zeros(count).share_memory_()  # type: ignore[no-untyped-call]
    return zeros


def count_tokens(batches: list[Batch]) -> int:
    """Tokens that a step learns to write."""
    return sum(int((batch.tokens != PAD).sum()) for batch in batches)
