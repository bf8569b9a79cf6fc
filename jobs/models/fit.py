"""Do a job's model files run here, and fit each other and the machine?  Answered before any page is looked at, from headers."""

from __future__ import annotations

from pathlib import Path

from pagemill.decoder.errors import ModelError, Refused
from pagemill.decoder.gguf.files import open_file
from pagemill.decoder.kernels.team import available_cores
from pagemill.decoder.plan import Plan
from pagemill.decoder.plan import plan as plan_text
from pagemill.jobs.errors import ConfigError
from pagemill.jobs.models.files import ModelFiles
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
        header, _ = open_file(model.mmproj)
        plan_vision(header, text_width=width)
    except Refused as error:
        reasons += [f"{model.mmproj}: {reason}" for reason in error.reasons]
    except ModelError as error:
        reasons.append(str(error))
    if reasons:
        raise ModelError("\n".join(reasons))


def text_plan(path: Path, *, kv_cache: str, exact: bool = False) -> Plan:
    """The plan of a text model.  Raises ModelError with every reason on a line, the file named."""
    header, _ = open_file(path)
    try:
        return plan_text(header, kv_cache=kv_cache, exact=exact)
    except Refused as error:
        raise ModelError("\n".join(f"{path}: {reason}" for reason in error.reasons)) from error


def check_threads(threads: int | None) -> None:
    """Raises ConfigError for more threads than cores: they would wait for each other at every step."""
    cores = available_cores()
    if threads is not None and threads > cores:
        raise ConfigError([f"engine.threads: expected at most {cores}, the cores available here, found {threads}"])
