"""A model ready to run: facts, tokenizer, weights.  Opened once, shared by engines."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pagemill.decoder.errors import ModelError
from pagemill.decoder.gguf.files import open_file
from pagemill.decoder.gguf.header import Header
from pagemill.decoder.kernels.compile import cache_folder
from pagemill.decoder.kernels.isa import Isa, named
from pagemill.decoder.plan import Plan, plan
from pagemill.decoder.spec import ModelSpec
from pagemill.decoder.tokenizer.template import ChatTemplate
from pagemill.decoder.tokenizer.tokenizer import Tokenizer
from pagemill.decoder.weights.panel_store import PanelStore, store_path
from pagemill.decoder.weights.weights import Weights, load


@dataclass(frozen=True, eq=False)
class Model:
    """An open text model.  isa: the CPU variant that its kernels are compiled for."""

    path: Path
    header: Header
    plan: Plan
    weights: Weights
    isa: Isa

    @property
    def spec(self) -> ModelSpec:
        """The model's facts."""
        return self.plan.spec

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Text to ids and back."""
        return Tokenizer.from_header(self.header)

    @cached_property
    def template(self) -> ChatTemplate | None:
        """How a conversation becomes a prompt, where the file says it."""
        return ChatTemplate.from_header(self.header, self.tokenizer)

    def embed(self, ids: tuple[int, ...]) -> NDArray[np.float32]:
        """Token embeddings, scaled: (len(ids), width) float32.  Raises ModelError for an id outside the vocabulary."""
        wrong = [i for i in ids if not 0 <= i < self.spec.vocab]
        if wrong:
            raise ModelError(f"token ids should be from 0 to {self.spec.vocab - 1}, found {wrong[0]}")
        rows = self.weights.embedding.rows(ids)
        return rows if self.spec.embedding_scale == 1.0 else rows * np.float32(self.spec.embedding_scale)


def open_model(
    path: str | Path, *, kv_cache: str = "f16", exact: bool = False, cpu: str = "auto", cached: bool = False
) -> Model:
    """Open a GGUF text model and bring its weights into memory.

    exact: expand weights to float32 and keep activations in float32 (for comparing engines; four bytes a weight).
    cpu: a CPU variant's name, or auto.  cached: keep the repacked weights in the cache folder for the next start.
    Raises NotGguf, Refused (every reason) or ModelError.
    """
    header, data = open_file(path)
    accepted = plan(header, kv_cache=kv_cache, exact=exact, name=str(path))
    store = PanelStore(store_path(Path(path), cache_folder(), "exact" if exact else "")) if cached else None
    return Model(Path(path), header, accepted, load(accepted, data, store=store), named(cpu))
