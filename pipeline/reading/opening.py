"""A page reader from a pair of model files, without a job: what a server or a script opens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from pagemill.decoder import Engine, Team, load_model, plan_model
from pagemill.pipeline.documents.content import Content, hash_content
from pagemill.pipeline.documents.documents import open_document
from pagemill.pipeline.page import PageImage, PageRef, PageText
from pagemill.pipeline.reading.reader import PageReader
from pagemill.pipeline.reading.settings import ReadSettings
from pagemill.pipeline.render.preprocess import RenderSettings
from pagemill.pipeline.render.renderer import render_page
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


def read_documents(reader: PageReader, documents: Iterable[str | Content]) -> Iterator[PageText]:
    """The pages of image files and PDFs, or of their bytes, as they end: it may be in another order than they came in.

    They are rendered in this process: a document that may be hostile is a job's to read, in child processes.
    Raises PageError for a document or page that cannot be read.
    """
    under_way: set[PageRef] = set()
    images = _images(documents, RenderSettings(reader.longest_edge_px, reader.multiple_px))
    image = next(images, None)
    while image is not None or under_way:
        while image is not None and reader.room:
            under_way.add(reader.submit(image))
            image = next(images, None)
        for text in reader.step():
            under_way.remove(text.ref)
            yield text


def _images(documents: Iterable[str | Content], settings: RenderSettings) -> Iterator[PageImage]:
    for number, one in enumerate(documents, 1):
        content = one if isinstance(one, bytes) else Path(one)
        name = f"document {number}" if isinstance(content, bytes) else content.name
        digest = hash_content(content)
        with closing(open_document(content, None)) as document:
            for page in range(document.pages):
                yield render_page(document, PageRef(digest, page, name), settings)
