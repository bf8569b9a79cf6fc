"""A job's two model files, opened and planned once, before any page is looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pagemill.decoder import Isa, ModelError, PlannedModel, Refused, cpu_variant, numeric_class, plan_model
from pagemill.jobs.settings.config import Config
from pagemill.jobs.settings.registry import ModelFiles
from pagemill.vision import Arithmetic, PlannedEncoder, resolve_arithmetic, resolve_backend
from pagemill.vision import plan_encoder as plan_vision

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class PlannedPair:
    """A text model and its encoder, with the CPU variant and the arithmetic that they run in."""

    text: PlannedModel
    encoder: PlannedEncoder
    arithmetic: Arithmetic
    isa: Isa


@dataclass(frozen=True, slots=True)
class Resolved:
    """What settings come to on this machine with these models, as far as it shapes a text.

    encoder, decoder: numeric classes; machines of one class give the same bits.  context: tokens.  longest_edge_px: pixels.
    """

    encoder: str
    decoder: str
    context: int
    longest_edge_px: int


def plan_pair(files: ModelFiles, config: Config, isa: Isa | None = None) -> PlannedPair:
    """Raises ModelError with every reason why the pair cannot run here, each file named."""
    reasons: list[str] = []
    text = _collect(lambda: plan_text(files.text, config.engine.kv_cache, exact=config.engine.exact_activations), reasons)
    encoder = _collect(lambda: plan_encoder(files.mmproj, text_width=text.spec.width if text else None), reasons)
    _collect(lambda: resolve_backend(config.vision.backend), reasons)
    variant = isa or _collect(lambda: cpu_variant(config.engine.cpu), reasons)
    arithmetic = None
    if encoder is not None and variant is not None:
        arithmetic = _collect(lambda: resolve_arithmetic(encoder.spec, config.vision.precision, variant), reasons)
    if text is None or encoder is None or arithmetic is None or variant is None or reasons:
        raise ModelError("\n".join(reasons))
    return PlannedPair(text, encoder, arithmetic, variant)


def resolve_settings(config: Config, pair: PlannedPair) -> Resolved:
    """The settings as they take effect: capped by the models, chosen for the CPU variant."""
    largest = pair.encoder.spec.longest_edge_px
    return Resolved(
        encoder=pair.arithmetic.numeric_class,
        decoder=numeric_class(pair.text.plan, pair.isa),
        context=min(config.engine.context, pair.text.spec.context),
        longest_edge_px=min(config.vision.longest_edge_px or largest, largest),
    )


def plan_text(path: Path, kv_cache: str, *, exact: bool = False) -> PlannedModel:
    """The plan of a text model.  Raises ModelError with every reason on a line, the file named."""
    try:
        return plan_model(path, kv_cache=kv_cache, exact=exact)
    except Refused as error:
        raise _named(path, error) from error


def plan_encoder(path: Path, *, text_width: int | None = None) -> PlannedEncoder:
    """The plan of a vision encoder.  Raises ModelError with every reason on a line, the file named."""
    try:
        return plan_vision(path, text_width=text_width)
    except Refused as error:
        raise _named(path, error) from error


def _named(path: Path, error: Refused) -> ModelError:
    return ModelError("\n".join(f"{path}: {reason}" for reason in error.reasons))


def _collect(make: Callable[[], T], reasons: list[str]) -> T | None:
    """What is made, or None and the reasons why it cannot be."""
    try:
        return make()
    except ModelError as error:
        reasons += str(error).splitlines()
        return None
