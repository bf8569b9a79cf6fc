"""A page reader from a pair of model files, without a job: what a server or a script opens."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from pagemill.decoder import Engine, Team, load_model, plan_model
from pagemill.pipeline.documents.documents import open_document
from pagemill.pipeline.page import PageImage, PageRef, PageText
from pagemill.pipeline.reading.reader import PageReader, ReadSettings
from pagemill.pipeline.render.preprocess import RenderSettings
from pagemill.vision import load_encoder, plan_encoder


@contextmanager
def open_page_reader(
    text: str | Path, mmproj: str | Path, settings: ReadSettings | None = None, *, slots: int = 4, context: int = 4096
) -> Iterator[PageReader]:
    """A reader of pages by a text model and its vision encoder, which is closed with the block.

    slots: pages decoded at once.  context: tokens that one page may take.  Raises ModelError for files that cannot run.
    """
    planned = plan_model(text)
    encoder_plan = plan_encoder(mmproj, text_width=planned.spec.width)
    with ExitStack() as stack:
        model = load_model(planned)
        team = stack.enter_context(closing(Team(None)))
        encoder = stack.enter_context(closing(load_encoder(encoder_plan, team)))
        engine = stack.enter_context(closing(Engine(model, slots=slots, context=min(context, model.spec.context), team=team)))
        reader = PageReader(encoder, engine, model.tokenizer, settings or ReadSettings(), {})
        yield stack.enter_context(closing(reader))


def read_documents(reader: PageReader, paths: Iterable[str | Path]) -> Iterator[PageText]:
    """The pages of image files and PDFs as they end, which may be another order than they came in.

    They are rendered in this process: a document that may be hostile is a job's to read, in child processes.
    Raises PageError for a document or page that cannot be read.
    """
    reading = 0
    for image in _images(paths, RenderSettings(reader.longest_edge_px, reader.multiple_px)):
        while not reader.free_slots:
            ended = reader.step()
            reading -= len(ended)
            yield from ended
        reader.submit(image)
        reading += 1
    while reading:
        ended = reader.step()
        reading -= len(ended)
        yield from ended


def _images(paths: Iterable[str | Path], settings: RenderSettings) -> Iterator[PageImage]:
    for path in map(Path, paths):
        document_hash = hashlib.sha256(path.read_bytes()).hexdigest()
        with closing(open_document(path, None)) as document:
            for number in range(document.pages):
                page = document.render(number, settings)
                ref = PageRef(path, document_hash, number)
                image_hash = hashlib.sha256(repr(page.pixels.shape).encode() + b"\n" + page.pixels.tobytes()).hexdigest()
                yield PageImage(ref, page.pixels, image_hash, page.dpi, 0.0, page.geometry, page.objects, page.mended)
