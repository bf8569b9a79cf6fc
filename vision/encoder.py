"""Opening an encoder: which backends there are, and what each can do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from pagemill.decoder import ModelError, Team, cpu_variant
from pagemill.vision.arithmetic import resolve_arithmetic
from pagemill.vision.backends.cpu import CpuEncoder
from pagemill.vision.protocol import Encoder
from pagemill.vision.reference import ReferenceEncoder
from pagemill.vision.weights import PlannedEncoder, plan_encoder

BACKENDS: Final = ("cpu", "reference")  # reference: numpy, slow; what the others are compared with


def open_encoder(
    path: str | Path,
    *,
    backend: str = "auto",
    precision: str = "auto",
    threads: int | None = None,
    text_width: int | None = None,
) -> Encoder:
    """Plan an mmproj file and load it on a compute team of its own; see ``plan_encoder`` and ``load_encoder``."""
    planned = plan_encoder(path, text_width=text_width)
    return load_encoder(planned, threads, backend=backend, precision=precision)


def load_encoder(
    planned: PlannedEncoder,
    team: Team | int | None,
    *,
    backend: str = "auto",
    precision: str = "auto",
    cpu: str = "auto",
    cached: bool = False,
) -> Encoder:
    """Bring an encoder's weights into memory.  Raises ModelError for a backend, precision or weight that cannot be used.

    team: the compute team of a backend that computes on this machine's cores, or the number of threads of one of its own,
    which is closed with the encoder.  cpu: a CPU variant's name, or auto.
    cached: keep the repacked weights in the cache folder for the next start, where the backend repacks them.
    """
    if resolve_backend(backend) == "reference":
        if precision not in ("auto", "f32"):
            asked = f"precision {precision} was requested"
            raise ModelError(f"vision backend 'reference' computes in f32, {asked}: use precision auto or f32")
        return ReferenceEncoder(planned.spec, planned.weights())
    isa = cpu_variant(cpu)
    arithmetic = resolve_arithmetic(planned.spec, precision, isa)
    if isinstance(team, Team):
        return CpuEncoder(planned, team, isa, arithmetic, owns_team=False, cached=cached)
    return CpuEncoder(planned, Team(team), isa, arithmetic, owns_team=True, cached=cached)


def resolve_backend(backend: str) -> str:
    """The backend that a name means here.  Raises ModelError for one that is not there."""
    if backend == "auto":
        return "cpu"
    if backend not in BACKENDS:
        known = ", ".join(["auto", *BACKENDS])
        raise ModelError(f"vision backend should be one of {known}, found {backend!r} (on {sys.platform})")
    return backend
