"""The encoder's weights as float32 arrays, in the form that the passes use: rows are outputs, merge columns in block order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pagemill.decoder.formats import FORMATS
from pagemill.decoder.gguf.files import open_file
from pagemill.decoder.gguf.header import TensorInfo
from pagemill.decoder.tensors import GLOBAL
from pagemill.decoder.weights.weights import finite_rows
from pagemill.vision.plan import Key, VisionPlan, plan
from pagemill.vision.spec import VisionRole, VisionSpec


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """A planned file, mapped: each tensor is read when asked for and nothing is kept."""

    plan: VisionPlan
    file: NDArray[np.uint8]

    @property
    def spec(self) -> VisionSpec:
        """The encoder's facts."""
        return self.plan.spec

    def matrix(self, role: VisionRole, layer: int = GLOBAL) -> NDArray[np.float32]:
        """A role's weights: (outputs, inputs) float32, or (1, width) for a norm."""
        weights = read_rows(self.file, self.plan.tensors[role, layer])
        if role is VisionRole.PATCH_EMBEDDING:
            return weights.reshape(self.spec.width, self.spec.patch_width)
        if role is VisionRole.PROJECTOR_MERGE:
            return to_block_columns(weights, self.spec)
        return weights

    def all(self) -> Mapping[Key, NDArray[np.float32]]:
        """Every tensor, dequantized."""
        return {(role, layer): self.matrix(role, layer) for role, layer in self.plan.tensors}


def open_weights(path: Path, *, text_width: int | None = None) -> StoredWeights:
    """Map an mmproj file and plan it; NotGguf or Refused if it cannot run."""
    header, file = open_file(path)
    return StoredWeights(plan(header, text_width=text_width), file)


def read_rows(file: NDArray[np.uint8], info: TensorInfo) -> NDArray[np.float32]:
    """Dequantize a tensor of ``file``: (rows, row length) float32, the later dimensions folded into rows.

    Raises ModelError for weights that are not numbers.
    """
    return FORMATS[info.type_name].dequantize(finite_rows(file, info))


def to_block_columns(weights: NDArray[np.float32], spec: VisionSpec) -> NDArray[np.float32]:
    """Reorder the merge matrix's columns from (channel, dy, dx), as files have them, to (dy, dx, channel).

    A block's patches stand together in block order, so its merged row is then just their rows one after the other.
    """
    by_channel = weights.reshape(-1, spec.width, spec.merge**2)
    return np.ascontiguousarray(by_channel.transpose(0, 2, 1)).reshape(len(weights), -1)
