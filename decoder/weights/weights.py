"""All weights of a text model, from an accepted plan and its mapped file."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pagemill.decoder.formats import FORMATS
from pagemill.decoder.kernels.team import available_cores
from pagemill.decoder.plan import Plan
from pagemill.decoder.spec import Role
from pagemill.decoder.tensors import GLOBAL
from pagemill.decoder.weights.loader import Layer, Loader, Matrix, stored_rows
from pagemill.decoder.weights.panel_store import PanelStore

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Embedding:
    """Token embeddings as the file stores them; rows are dequantized when looked up."""

    raw: Bytes
    format_name: str

    def rows(self, ids: Sequence[int]) -> Floats:
        """(len(ids), width) float32."""
        return FORMATS[self.format_name].dequantize(self.raw[np.asarray(ids, np.int64)])


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """All of a model's weights.  output: the token embedding where the file has no output matrix."""

    embedding: Embedding
    layers: tuple[Layer, ...]
    output_norm: Floats
    output: Matrix
    rope_divisors: Floats | None


def load(plan: Plan, data: Bytes, *, threads: int | None = None, store: PanelStore | None = None) -> Weights:
    """Weights of an accepted plan.  data: the whole file, (bytes,) uint8, mapped; it stays mapped for embedding look-ups.

    threads: that repack side by side, None for every core available.  store: repacked weights of an earlier start.
    Raises ModelError for weights that are not numbers.
    """
    loader = Loader(data, plan.tensors, plan.biases, "exact" if plan.exact else "stored", store)
    embedding = plan.tensors[Role.TOKEN_EMBEDDING, GLOBAL]
    output = Role.TOKEN_EMBEDDING if plan.tied_output else Role.OUTPUT
    divisors = plan.tensors.get((Role.ROPE_FREQS, GLOBAL))
    with ThreadPoolExecutor(threads or available_cores()) as pool:  # numpy gives Python's lock back while it moves bytes
        output_matrix = pool.submit(loader.matrix, GLOBAL, output)  # the largest first
        layers = tuple(pool.map(loader.layer, range(plan.spec.layers)))
        weights = Weights(
            Embedding(stored_rows(data, embedding), embedding.type_name),  # not read here: NaN reaches the logits
            layers,
            loader.norm(Role.OUTPUT_NORM, GLOBAL),
            output_matrix.result(),
            None if divisors is None else loader.floats(divisors).reshape(-1),
        )
    if store is not None:
        store.save()
    return weights
