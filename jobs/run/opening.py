"""From a job's settings to a reader of pages: both model files opened and fitted to each other before any page."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from pagemill.decoder import PORTABLE, Engine, Sampling, Team, load_model
from pagemill.jobs.errors import OutputError
from pagemill.jobs.models.memory import pages_at_once
from pagemill.jobs.run.job import OpenReader
from pagemill.jobs.run.spec import JobSpec
from pagemill.jobs.settings.config import Config
from pagemill.pipeline import PageReader, ReadSettings, Recovery, Trace, open_trace
from pagemill.vision import load_encoder

OPENING = "opening"  # track of a trace

_log = logging.getLogger("pagemill")


@contextmanager
def open_reader(job: JobSpec, provenance: Mapping[str, str]) -> Iterator[OpenReader]:
    """The engine and the encoder of a job.  Raises ModelError for files that are refused or do not fit each other."""
    config, planned, resolved = job.config, job.planned, job.resolved
    assert planned is not None, "resolve_job plans the models"
    assert resolved is not None, "resolve_job resolves the settings"
    slots = pages_at_once(config, planned)
    with ExitStack() as stack:
        trace = stack.enter_context(closing(_open_trace(config.run.trace)))
        cached = config.engine.repack_cache
        with trace.span(OPENING, "text model"):
            model = load_model(planned.text, cpu=config.engine.cpu, cached=cached)
        if model.isa.name == PORTABLE.name:
            _log.warning("cpu: Pagemill has no kernels for this CPU in particular; the portable ones are slow")
        team = stack.enter_context(closing(Team(config.engine.threads)))  # encoder and engine take turns on it
        with trace.span(OPENING, "encoder"):
            vision = config.vision
            encoder = load_encoder(
                planned.encoder, team, backend=vision.backend, precision=vision.precision, cpu=config.engine.cpu, cached=cached
            )
        stack.enter_context(closing(encoder))
        kv_cache, chunk = config.engine.kv_cache, config.engine.chunk
        engine = Engine(model, slots=slots, context=resolved.context, team=team, kv_cache=kv_cache, chunk=chunk)
        stack.enter_context(closing(engine))
        reader = PageReader(encoder, engine, model.tokenizer, _read_settings(config), provenance, trace=trace)
        stack.enter_context(closing(reader))
        yield OpenReader(reader, resolved.longest_edge_px, trace)


def _open_trace(path: str | None) -> Trace:
    try:
        return open_trace(None if path is None else Path(path))
    except OSError as error:
        raise OutputError(f"run.trace: expected a file that can be written, found {path}: {error.strerror}") from error


def _read_settings(config: Config) -> ReadSettings:
    recovery = config.recovery
    return ReadSettings(
        max_tokens=config.engine.max_tokens,
        sampling=Sampling(**config.sampling.model_dump()),
        prompt_text=config.prompt.text,
        multiple_px=config.vision.multiple_px,
        skip_blank=config.quality.skip_blank,
        skip_bleed=config.quality.skip_bleed,
        recovery=Recovery(
            retry_on=frozenset(recovery.retry_on),
            temperatures=recovery.temperatures,
            scales=recovery.scales,
            halves=recovery.halves,
            low_confidence=recovery.low_confidence,
            turns=recovery.orientation == "auto",
        ),
    )
