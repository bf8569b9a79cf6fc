"""An encoder planned from its header, and its tensors in the order in which the passes use them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pagemill.decoder import Loader, PanelStore, Rounding, open_file
from pagemill.vision.plan import Key, VisionPlan, plan
from pagemill.vision.spec import VisionRole, VisionSpec

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class PlannedEncoder:
    """An encoder that can run, before its weights are read.  file: the whole file, mapped."""

    path: Path
    plan: VisionPlan
    file: NDArray[np.uint8]

    @property
    def spec(self) -> VisionSpec:
        """The encoder's facts."""
        return self.plan.spec

    def loader(self, rounding: Rounding, store: PanelStore | None = None) -> Loader:
        """Reads its tensors.  rounding: of the layers' matrices."""
        return Loader(self.file, self.plan.tensors, {}, rounding, store)

    def weights(self) -> Mapping[Key, Floats]:
        """Every tensor as float32: (outputs, inputs), or (1, width) for a norm.  Raises ModelError for NaN and infinity."""
        loader = self.loader("float")
        return {key: arrange(key[0], loader.floats(info), self.spec) for key, info in self.plan.tensors.items()}


def plan_encoder(path: str | Path, *, text_width: int | None = None) -> PlannedEncoder:
    """Map an mmproj file and plan it; NotGguf or Refused (with every reason) if it cannot run.

    text_width: width of the text model that reads the rows.
    """
    header, file = open_file(path)
    return PlannedEncoder(Path(path), plan(header, text_width=text_width), file)


def arrange(role: object, rows: Floats, spec: VisionSpec) -> Floats:
    """A tensor's rows as a product uses them.  rows: (later dimensions, first dimension) as the file has them."""
    if role is VisionRole.PATCH_EMBEDDING:
        return rows.reshape(spec.width, spec.patch_width)
    return to_block_columns(rows, spec) if role is VisionRole.PROJECTOR_MERGE else rows


def to_block_columns(weights: Floats, spec: VisionSpec) -> Floats:
    """Reorder the merge matrix's columns from (channel, dy, dx), as files have them, to (dy, dx, channel).

    A block's patches stand together in block order, so its merged row is then just their rows one after the other.
    """
    by_channel = weights.reshape(-1, spec.width, spec.merge**2)
    return np.ascontiguousarray(by_channel.transpose(0, 2, 1)).reshape(len(weights), -1)
