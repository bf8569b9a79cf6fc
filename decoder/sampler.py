"""The next token from a row of logits.

Called by the engine once a row.  The result depends on the row, the history and the seed only, never on what else is in the
batch.  The chain is llama.cpp's default one: repetition penalty, top-k, top-p, min-p, temperature.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pagemill.decoder.errors import ModelError

Logits = NDArray[np.float32]
Ids = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to choose.  temperature 0 takes the best token; top_k 0, top_p 1, min_p 0 and repetition_penalty 1 are off.

    repetition_window: how many of the last tokens the penalty looks at.  seed: of this request's own random numbers.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    repetition_window: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError naming every setting out of range."""
        limits: dict[str, tuple[float, float]] = {
            "temperature": (0, 1e6), "top_k": (0, 1 << 62), "top_p": (0, 1), "min_p": (0, 1),
            "repetition_penalty": (1e-6, 1e6), "repetition_window": (0, 1 << 62), "seed": (0, (1 << 128) - 1),
        }  # fmt: skip
        faults = [
            f"{name} should be from {low:g} to {high:g}, it is {getattr(self, name)}"
            for name, (low, high) in limits.items()
            if not low <= getattr(self, name) <= high
        ]
        if faults:
            raise ValueError("sampling: " + "; ".join(faults))


class Sampler:
    """One request's choices; holds its random numbers and a scratch row, so it is not to be shared."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._random = np.random.Generator(np.random.PCG64(sampling.seed))
        self._scratch = np.empty(0, np.float32)

    def sample(self, logits: Logits, history: Sequence[int]) -> tuple[int, float]:
        """The chosen token and its log-probability under the softmax of the logits as given.

        logits: (vocab,) float32, not changed; -inf is a token that cannot come.  history: the tokens before, oldest first.
        Raises ModelError if a logit is NaN or +inf, or none is finite.
        """
        best = int(logits.argmax())  # the first NaN if there is one
        top = float(logits[best])
        if not math.isfinite(top):
            raise ModelError(
                f"logit of token {best}: expected a finite best logit, found {top}; the weights or the input are broken"
            )
        log_total = self._log_total(logits, top)
        judged = self._penalised(logits, history)
        if judged is not logits:
            best = int(judged.argmax())
        chosen = self._draw(judged) if self._sampling.temperature > 0 else best
        return chosen, float(logits[chosen]) - log_total

    def _draw(self, logits: Logits) -> int:
        ids = survivors(logits, self._sampling)
        kept = logits if ids is None else logits[ids]
        bounds = np.cumsum(_weights(kept, kept.max(), self._sampling.temperature), dtype=np.float64)
        # float64 sums: in float32 the tail of a large vocabulary would lose its share
        place = int(np.searchsorted(bounds, self._random.random() * bounds[-1], side="right"))
        return place if ids is None else int(ids[place])

    def _log_total(self, logits: Logits, top: float) -> float:
        """log(sum(exp(logits))); numpy adds a contiguous row pairwise, in an order that depends on its length only."""
        if self._scratch.shape != logits.shape:
            self._scratch = np.empty(logits.shape, np.float32)
        np.subtract(logits, np.float32(top), out=self._scratch)
        np.exp(self._scratch, out=self._scratch)
        return top + math.log(float(self._scratch.sum()))

    def _penalised(self, logits: Logits, history: Sequence[int]) -> Logits:
        """The logits, or a copy in which every token of the window is less likely: positive ones divided, others multiplied."""
        window = min(self._sampling.repetition_window, len(history))
        if self._sampling.repetition_penalty == 1 or window == 0:
            return logits
        recent = np.unique(np.asarray(history[len(history) - window :], np.int64))
        recent = recent[(recent >= 0) & (recent < len(logits))]  # a history may hold rows that are no tokens
        penalty = np.float32(self._sampling.repetition_penalty)
        changed, values = logits.copy(), logits[recent]
        changed[recent] = np.where(values > 0, values / penalty, values * penalty)
        return changed


def survivors(logits: Logits, sampling: Sampling) -> Ids | None:
    """Ids that top-k, top-p and min-p leave; None is all.  Of equal logits the lowest ids are kept."""
    ids: Ids | None = None
    if 0 < sampling.top_k < len(logits):
        near = next(near for near in _nearest(logits) if len(near) >= sampling.top_k)
        ids = _best_first(logits, near)[: sampling.top_k]
    if sampling.top_p < 1:
        ids = _top_p(logits, ids, sampling.top_p)
    if sampling.min_p > 0:
        kept = logits if ids is None else logits[ids]
        above = np.flatnonzero(kept >= kept.max() + math.log(sampling.min_p))
        ids = above if ids is None else ids[above]
    return ids


def _top_p(logits: Logits, ids: Ids | None, top_p: float) -> Ids:
    """The fewest of the best ids that hold at least top_p of the probability of all, one at least."""
    top = logits.max()
    needed = top_p * float(_weights(logits if ids is None else logits[ids], top).sum(dtype=np.float64))
    for near in _nearest(logits) if ids is None else [ids]:
        ranked = _best_first(logits, near)
        held = np.cumsum(_weights(logits[ranked], top), dtype=np.float64)
        if held[-1] >= needed:
            break
    return ranked[: int(np.searchsorted(held, needed)) + 1]


def _nearest(logits: Logits) -> Iterator[Ids]:
    """Ascending ids of the logits near the best one, ever more, at last all: ranking a few is far cheaper than ranking all."""
    top = logits.max()
    for reach in (4, 8, 16):  # e^-4 is 2 %: the first reach is enough for most rows
        yield np.flatnonzero(logits >= top - reach)
    yield np.arange(len(logits))


def _best_first(logits: Logits, ids: Ids) -> Ids:
    """The ids by falling logit, of equal logits the lowest id first: one sort of integers that hold both, which is fast."""
    falling = (np.float32(0) - logits[ids]).view(np.int32)  # 0 - x rather than -x, so that no zero is negative
    ordered = (falling ^ ((falling >> 31) | np.int32(-(1 << 31)))).view(np.uint32)  # float order as unsigned order
    keys = np.sort((ordered.astype(np.uint64) << np.uint64(32)) | ids.astype(np.uint64))
    return (keys & np.uint64(0xFFFFFFFF)).astype(np.intp)


def _weights(logits: Logits, top: np.float32, temperature: float = 1.0) -> Logits:
    """Probabilities over the temperature up to a factor; top: the largest logit of all that are compared."""
    with np.errstate(over="ignore"):  # at a temperature near zero all but the best go to exp(-inf)
        return np.asarray(np.exp((logits - top) / np.float32(temperature)), np.float32)
