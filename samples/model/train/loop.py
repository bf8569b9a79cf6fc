"""Training steps: a step's pages in, one update out, averaged weights beside; resumes where it was stopped."""

from __future__ import annotations

import copy
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from samples.model.train.checkpoint import load_state, load_weights, put_weights, save_state, save_weights
from samples.model.train.crew import Alone, Crew, Report, Team, compile_layers
from samples.model.train.losses import Weights
from samples.model.train.muon import Muon
from samples.model.train.network import Network
from samples.model.train.shelf import Shelf
from samples.model.train.source import Source
from samples.model.train.start import initialise

ADAM_SHARE = 0.1  # AdamW's rate for embedding, norms and heads, as a share of Muon's
AVERAGE_OVER = 120  # steps that the averaged weights reach back, at most


@dataclass(frozen=True, slots=True)
class Options:
    """A run.  The rate rises over `warm_up` steps, stays, and falls along a cosine to nothing from `decay_from` to `steps`."""

    folder: Path
    curriculum: str = "default"
    steps: int = 2000
    decay_from: int = 0
    warm_up: int = 40
    rate: float = 0.008
    seed: int = 0
    start: Path | None = None
    device: str = "cpu"
    workers: int = 2
    threads: int = 1
    renderers: int = 1
    compiled: bool = False
    save_every: int = 25
    keep_every: int = 250
    pointers: float = 1.0
    glyphs: float = 1.0


class Trainer:
    """Weights, averaged weights and optimizers of a run."""

    def __init__(self, options: Options) -> None:
        torch.manual_seed(options.seed)
        self.options = options
        self.network = Network().to(options.device)
        self.step, self.flop = 0, 0.0
        saved = load_state(self.state_path) if self.state_path.exists() else None
        if saved is None and options.start is None:
            initialise(self.network, options.seed)
        elif saved is None and options.start is not None:
            weights, notes = load_weights(options.start)
            put_weights(self.network, weights)
            self.flop = float(notes.get("flop", 0))
        self.average = copy.deepcopy(self.network).requires_grad_(False)
        matrices = [p for name, p in self.network.named_parameters() if is_matrix(name, p)]
        self._others = [p for name, p in self.network.named_parameters() if not is_matrix(name, p)]
        self._muon = Muon(matrices)
        self._adam = torch.optim.AdamW(self._others, lr=0.0, betas=(0.9, 0.97), weight_decay=0.0)
        if saved is not None:
            self._resume(saved)

    @property
    def state_path(self) -> Path:
        """Where the run's state is kept."""
        return self.options.folder / "state.pt"

    def rate(self) -> float:
        """This step's learning rate."""
        options = self.options
        rate = options.rate * min(1.0, (self.step + 1) / options.warm_up)
        if self.step < options.decay_from:
            return rate
        fraction = (self.step - options.decay_from) / max(1, options.steps - options.decay_from)
        return rate * 0.5 * (1 + math.cos(math.pi * min(1.0, fraction)))

    def update(self, reports: list[Report]) -> None:
        """One step from the gradients in place."""
        rate = self.rate()
        nn.utils.clip_grad_norm_(self._others, 1.0)
        self._muon.step(rate)
        for group in self._adam.param_groups:
            group["lr"] = rate * ADAM_SHARE
        self._adam.step()
        self.step += 1
        self.flop += sum(report.flop for report in reports)
        reach = min(AVERAGE_OVER, 10 + self.step / 4)
        with torch.no_grad():
            torch._foreach_lerp_(list(self.average.parameters()), list(self.network.parameters()), 1 / reach)

    def save(self) -> None:
        """State to go on from, and the averaged weights to use."""
        state: dict[str, object] = {
            "network": self.network.state_dict(),
            "average": self.average.state_dict(),
            "muon": self._muon.state(),
            "adam": self._adam.state_dict(),
            "step": self.step,
            "flop": self.flop,
        }
        save_state(self.state_path, state)
        save_weights(self.options.folder / "average.safetensors", self.average.state_dict(), self.notes())

    def notes(self) -> dict[str, str]:
        """What goes with saved weights."""
        return {
            "step": str(self.step),
            "flop": str(self.flop),
            "seed": str(self.options.seed),
            "curriculum": self.options.curriculum,
        }

    def _resume(self, saved: dict[str, Any]) -> None:
        self.network.load_state_dict(saved["network"])
        self.average.load_state_dict(saved["average"])
        self._muon.load(saved["muon"])
        self._adam.load_state_dict(saved["adam"])
        self.step, self.flop = saved["step"], saved["flop"]


def is_matrix(name: str, parameter: nn.Parameter) -> bool:
    """Whether Muon steps it: the matrices that lie between two layers."""
    return parameter.dim() == 2 and not name.startswith(("embed", "heads"))


def train(options: Options) -> Trainer:
    """Run from the folder's state, or from the start weights, to the last step."""
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(options.threads)
    trainer = Trainer(options)
    weights = Weights(glyphs=options.glyphs, pointers=options.pointers)
    crew = hire(trainer.network, weights, options)
    source = Source(options.curriculum, options.seed, trainer.step, options.renderers, options.folder / "corpus.json")
    try:
        run(trainer, crew, source)
    finally:
        source.close()
        crew.close()
    return trainer


def hire(network: Network, weights: Weights, options: Options) -> Crew:
    """Processes where there are several workers, else this one."""
    if options.workers > 1:
        return Team(network, weights, options.workers, options.compiled)
    if options.compiled:
        compile_layers(network)
    return Alone(network, weights)


def run(trainer: Trainer, crew: Crew, source: Source) -> None:
    """Steps with their log line each; saves every few."""
    options, shelf = trainer.options, Shelf()
    while trainer.step < options.steps:
        start = time.monotonic()
        batches = source.step(trainer.step) + shelf.take(trainer.step)
        waited = time.monotonic() - start
        reports = crew.learn(batches)
        shelf.put(trainer.step, batches, reports)
        flop, learned = trainer.flop, time.monotonic()
        trainer.update(reports)
        seconds = time.monotonic() - start
        line = {"step": trainer.step, "flop": trainer.flop, "seconds": seconds, "waited": waited, "rate": trainer.rate()}
        line |= {
            "updating": time.monotonic() - learned,
            "gflops": (trainer.flop - flop) / seconds / 1e9,
            "pages": sum(len(b.texts) for b in batches),
        }
        log(options.folder / "log.jsonl", line | average_parts(reports))
        if trainer.step % options.save_every == 0 or trainer.step == options.steps:
            trainer.save()
        if trainer.step % options.keep_every == 0:
            save_weights(options.folder / f"average-{trainer.step}.safetensors", trainer.average.state_dict(), trainer.notes())


def average_parts(reports: list[Report]) -> dict[str, float]:
    """Each loss's mean over the step's tokens."""
    names = sorted({name for report in reports for name in report.parts})
    means = {}
    for name in names:
        having = [report for report in reports if name in report.parts]
        means[name] = sum(report.parts[name] * report.tokens for report in having) / sum(report.tokens for report in having)
    return means


def log(path: Path, line: dict[str, float]) -> None:
    """Append a line of JSON."""
    with path.open("a") as file:
        file.write(
            json.dumps({name: float(f"{value:.5g}") if name != "flop" else value for name, value in line.items()}) + "\n"
        )
