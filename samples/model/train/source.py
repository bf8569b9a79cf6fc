"""Renders steps ahead in child processes, so that the learner never waits for pages."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Full

from samples.model.train.batches import Batch, render_step
from samples.model.train.corpus import load_corpus
from samples.model.train.curriculum import CURRICULA
from samples.model.train.wording import Wording

AHEAD = 2  # steps that each renderer keeps ready
PATIENCE_SECONDS = 5.0


class Source:
    """Steps in order.  Renderer r makes the steps first + r, first + r + renderers, ..."""

    def __init__(self, curriculum: str, seed: int, first: int, renderers: int, corpus_cache: Path) -> None:
        load_corpus(corpus_cache)  # written once, before several children would
        context = multiprocessing.get_context("spawn")
        self._queues: list[Queue[list[Batch]]] = [context.Queue(AHEAD) for _ in range(renderers)]
        self._first = first
        self._children = [
            context.Process(
                target=render,
                args=(queue, curriculum, seed, first + index, renderers, corpus_cache),
                daemon=True,
                name=f"renderer-{index}",
            )
            for index, queue in enumerate(self._queues)
        ]
        for child in self._children:
            child.start()

    def step(self, number: int) -> list[Batch]:
        """The batches of a step; call with first, first + 1, ..."""
        return self._queues[(number - self._first) % len(self._queues)].get(timeout=600)

    def close(self) -> None:
        """End the renderers."""
        for child in self._children:
            child.terminate()
            child.join()


def render(queue: Queue[list[Batch]], curriculum: str, seed: int, first: int, stride: int, corpus_cache: Path) -> None:
    """A renderer's life; it ends with its parent."""
    corpus, parent = load_corpus(corpus_cache), os.getppid()
    wording, lessons, step = Wording(corpus.train, corpus.words), CURRICULA[curriculum], first
    while True:
        batches = render_step(lessons.groups(seed, step), wording, seed, step)
        while not _is_taken(queue, batches):
            if os.getppid() != parent:
                return
        step += stride


def _is_taken(queue: Queue[list[Batch]], batches: list[Batch]) -> bool:
    try:
        queue.put(batches, timeout=PATIENCE_SECONDS)
    except Full:
        return False
    return True
