"""A text model, planned from its header and then open: facts, tokenizer, template, weights.  Shared by engines."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pagemill.decoder.errors import ModelError, Refused
from pagemill.decoder.gguf.files import open_file
from pagemill.decoder.gguf.header import Header
from pagemill.decoder.kernels.isa import Isa, named
from pagemill.decoder.plan import Plan, plan
from pagemill.decoder.spec import ModelSpec
from pagemill.decoder.tokenizer.template import ChatTemplate
from pagemill.decoder.tokenizer.tokenizer import Tokenizer
from pagemill.decoder.weights.panel_store import open_panel_store
from pagemill.decoder.weights.weights import Weights, load

T = TypeVar("T")
_log = logging.getLogger("pagemill")


@dataclass(frozen=True, slots=True, eq=False)
class PlannedModel:
    """A text model that can run, before its weights are read.

    data: the file, mapped.  tokenizer: text to ids and back.  template: how a conversation becomes a prompt, where the file
    has a usable one.  warnings: what about the file is doubtful.
    """

    path: Path
    header: Header
    data: NDArray[np.uint8]
    plan: Plan
    tokenizer: Tokenizer
    template: ChatTemplate | None
    warnings: tuple[str, ...] = ()

    @property
    def spec(self) -> ModelSpec:
        """The model's facts."""
        return self.plan.spec


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """An open text model.  isa: the CPU variant that its kernels are compiled for."""

    planned: PlannedModel
    weights: Weights
    isa: Isa

    @property
    def plan(self) -> Plan:
        """How it runs."""
        return self.planned.plan

    @property
    def spec(self) -> ModelSpec:
        """The model's facts."""
        return self.planned.spec

    @property
    def tokenizer(self) -> Tokenizer:
        """Text to ids and back."""
        return self.planned.tokenizer

    @property
    def template(self) -> ChatTemplate | None:
        """How a conversation becomes a prompt, where the file says it."""
        return self.planned.template

    def embed(self, ids: tuple[int, ...]) -> NDArray[np.float32]:
        """Token embeddings, scaled: (len(ids), width) float32.  Raises ModelError for an id outside the vocabulary."""
        wrong = [i for i in ids if not 0 <= i < self.spec.vocab]
        if wrong:
            raise ModelError(f"token ids should be from 0 to {self.spec.vocab - 1}, found {wrong[0]}")
        rows = self.weights.embedding.rows(ids)
        return rows if self.spec.embedding_scale == 1.0 else rows * np.float32(self.spec.embedding_scale)


def plan_model(path: str | Path, *, kv_cache: str = "f16", exact: bool = False) -> PlannedModel:
    """Plan a GGUF text model and build its tokenizer and chat template; reads no weight.

    exact: weights expanded to float32, activations kept in float32 (for comparing engines; four bytes a weight).
    Raises NotGguf, Refused (with every reason, the tokenizer's among them) or ModelError; all name the path.
    """
    path = Path(path)
    header, data = open_file(path)
    reasons: list[str] = []
    accepted = _collect(lambda: plan(header, kv_cache=kv_cache, exact=exact), reasons)
    tokenizer = _collect(lambda: Tokenizer.from_header(header), reasons)
    if accepted is None or tokenizer is None:
        raise Refused(f"{path} cannot run", list(dict.fromkeys(reasons)))
    doubts = list(tokenizer.warnings)
    template = _collect(lambda: ChatTemplate.from_header(header, tokenizer), doubts)
    for doubt in doubts:
        _log.warning("%s: %s", path, doubt)
    return PlannedModel(path, header, data, accepted, tokenizer, template, tuple(doubts))


def _collect(make: Callable[[], T], reasons: list[str]) -> T | None:
    """What is made, or None and the reasons why it cannot be."""
    try:
        return make()
    except Refused as error:
        reasons += error.reasons
    except ModelError as error:
        reasons.append(str(error))
    return None


def load_model(planned: PlannedModel, *, cpu: str = "auto", cached: bool = False) -> Model:
    """Bring a planned model's weights into memory.

    cpu: a CPU variant's name, or auto.  cached: keep the repacked weights in the cache folder for the next start.
    Raises ModelError for a weight that is not a number, or a variant that cannot run here.
    """
    store = open_panel_store(planned.path, "exact" if planned.plan.exact else "") if cached else None
    return Model(planned, load(planned.plan, planned.data, store=store), cpu_variant(cpu))


def cpu_variant(name: str) -> Isa:
    """The CPU variant of a name; ``auto``: the best.  Raises ModelError for one that is not known or cannot run here."""
    try:
        return named(name)
    except ValueError as error:
        raise ModelError(str(error)) from error


def open_model(
    path: str | Path, *, kv_cache: str = "f16", exact: bool = False, cpu: str = "auto", cached: bool = False
) -> Model:
    """Plan a GGUF text model and load it; see ``plan_model`` and ``load_model``."""
    return load_model(plan_model(path, kv_cache=kv_cache, exact=exact), cpu=cpu, cached=cached)
