"""Do a job's model files run here, and fit each other and the machine?  Answered before any page is looked at, from headers."""

from __future__ import annotations

from pathlib import Path

from pagemill.decoder.errors import ModelError, Refused
from pagemill.decoder.gguf.files import open_file
from pagemill.decoder.kernels.team import available_cores
from pagemill.decoder.model import PlannedModel, plan_model
from pagemill.jobs.errors import ConfigError
from pagemill.jobs.models.files import ModelFiles
from pagemill.vision.plan import VisionPlan
from pagemill.vision.plan import plan as plan_vision


def check_model(model: ModelFiles, *, kv_cache: str, exact: bool) -> None:
    """Raises ModelError with every reason why the pair cannot run, each file named."""
    reasons: list[str] = []
    width = None
    try:
        width = text_plan(model.text, kv_cache=kv_cache, exact=exact).spec.width
    except ModelError as error:
        reasons += str(error).splitlines()
    try:
        plan_encoder(model.mmproj, text_width=width)
    except ModelError as error:
        reasons += str(error).splitlines()
    if reasons:
        raise ModelError("\n".join(reasons))


def text_plan(path: Path, *, kv_cache: str, exact: bool = False) -> PlannedModel:
    """The plan of a text model.  Raises ModelError with every reason on a line, the file named."""
    try:
        return plan_model(path, kv_cache=kv_cache, exact=exact)
    except Refused as error:
        raise ModelError("\n".join(f"{path}: {reason}" for reason in error.reasons)) from error


def plan_encoder(path: Path, *, text_width: int | None = None) -> VisionPlan:
    """The plan of a vision encoder.  Raises ModelError with every reason on a line, the file named."""
    header, _ = open_file(path)
    try:
        return plan_vision(header, text_width=text_width)
    except Refused as error:
        raise ModelError("\n".join(f"{path}: {reason}" for reason in error.reasons)) from error


def check_threads(threads: int | None) -> None:
    """Raises ConfigError for more threads than cores: they would wait for each other at every step."""
    cores = available_cores()
    if threads is not None and threads > cores:
        raise ConfigError([f"engine.threads: expected at most {cores}, the cores available here, found {threads}"])
