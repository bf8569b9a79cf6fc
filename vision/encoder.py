"""The Encoder protocol and how to open one: page patches in, embedding rows for the text model out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from pagemill.decoder.errors import ModelError
from pagemill.decoder.kernels.team import Team
from pagemill.vision.patches import Patches
from pagemill.vision.reference import ReferenceEncoder
from pagemill.vision.spec import VisionSpec
from pagemill.vision.weights import StoredWeights, open_weights

Precision = Literal["auto", "bf16", "int8", "f32"]


class Encoder(Protocol):
    """One page at a time through the encoder and its projector; a backend implements this.

    shares_cores: whether it computes on the cores that the text model needs, so that they take turns.
    """

    spec: VisionSpec
    shares_cores: bool

    def encode(self, patches: Patches) -> NDArray[np.float32]:
        """Embedding rows of one page: (blocks, out_width) float32, in reading order; the caller's to keep."""
        ...

    def close(self) -> None:
        """Release threads and memory; the encoder cannot be used after."""
        ...


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """How to run.  threads: of the compute team, None for all of the machine's; team: one to share instead.

    path: of the file, where its repacked weights are to be kept in the cache folder for the next start.
    """

    precision: Precision = "auto"
    threads: int | None = None
    team: Team | None = None
    path: Path | None = None


Opener = Callable[[StoredWeights, EncoderSettings], Encoder]


def open_encoder(
    path: Path,
    *,
    backend: str = "auto",
    precision: Precision = "auto",
    threads: int | None = None,
    text_width: int | None = None,
    team: Team | None = None,
    cached: bool = False,
) -> Encoder:
    """Open an mmproj file.  Raises NotGguf or Refused for the file, ModelError for a backend or precision that is not there.

    text_width: width of the text model that reads the rows, checked before a weight is read.  team: a compute team to share
    where the backend computes on this machine's cores; who made it closes it.  cached: keep the repacked weights in the cache
    folder for the next start, where the backend repacks them.
    """
    opener = _opener(backend)
    if precision not in get_args(Precision):
        raise ModelError(f"vision precision should be {', '.join(get_args(Precision))}, found {precision!r}")
    return opener(
        open_weights(Path(path), text_width=text_width),
        EncoderSettings(precision, threads, team, Path(path) if cached else None),
    )


def _open_reference(weights: StoredWeights, settings: EncoderSettings) -> Encoder:
    if settings.precision not in ("auto", "f32"):
        asked = f"{settings.precision} was asked for"
        raise ModelError(f"vision backend 'reference' computes in f32, {asked}: use precision auto or f32")
    return ReferenceEncoder(weights.spec, weights.all())


def _open_cpu(weights: StoredWeights, settings: EncoderSettings) -> Encoder:
    opener: Opener = import_module("pagemill.vision.backends.cpu").open_cpu
    return opener(weights, settings)


BACKENDS: dict[str, Opener] = {
    "cpu": _open_cpu,
    "reference": _open_reference,  # numpy, slow: what the others are compared with
}


def _opener(backend: str) -> Opener:
    if backend == "auto":
        return BACKENDS["cpu"]
    if backend not in BACKENDS:
        known = ", ".join(["auto", *BACKENDS])
        raise ModelError(f"vision backend should be one of {known}, found {backend!r} (on {sys.platform})")
    return BACKENDS[backend]
