"""From a job's settings to a reader of pages: both model files opened and fitted to each other before any page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager

from decoder.engine import Engine
from decoder.kernels.team import Team
from decoder.model import open_model
from decoder.sampler import Sampling
from jobs.config import Config
from jobs.job import OpenReader
from jobs.spec import JobSpec
from pipeline.reader import PageReader, ReadSettings
from vision.encoder import open_encoder


@contextmanager
def open_reader(job: JobSpec, provenance: Mapping[str, str]) -> Iterator[OpenReader]:
    """The engine and the encoder of a job.  Raises ModelError for files that are refused or do not fit each other."""
    config = job.config
    model = open_model(
        job.model.text,
        kv_cache=config.engine.kv_cache,
        exact=config.engine.exact_activations,
        cached=config.engine.repack_cache,
    )
    with ExitStack() as stack:
        team = stack.enter_context(closing(Team(config.engine.threads)))  # encoder and engine take turns on it
        encoder = stack.enter_context(
            closing(
                open_encoder(
                    job.model.mmproj,
                    backend=config.vision.backend,
                    precision=config.vision.precision,
                    team=team,
                    text_width=model.spec.width,
                )
            )
        )
        engine = Engine(
            model,
            slots=config.engine.slots,
            context=min(config.engine.context, model.spec.context),
            team=team,
            kv_cache=config.engine.kv_cache,
            chunk=config.engine.chunk,
        )
        stack.enter_context(closing(engine))
        reader = PageReader(encoder, engine, model.tokenizer, _read_settings(config), provenance)
        longest = min(config.vision.longest_edge_px or encoder.spec.longest_edge_px, encoder.spec.longest_edge_px)
        yield OpenReader(reader, longest)


def _read_settings(config: Config) -> ReadSettings:
    return ReadSettings(
        max_tokens=config.engine.max_tokens,
        sampling=Sampling(**config.sampling.model_dump()),
        prompt_text=config.prompt.text,
        multiple_px=config.vision.multiple_px,
        skip_blank=config.quality.skip_blank,
    )
