"""The sample model reads the sample pages: alone or among others, a page is the same page to the bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from pagemill.decoder.engine import Engine
from pagemill.decoder.kernels.team import available_cores
from pagemill.decoder.model import Model, open_model
from pagemill.pipeline.documents.content import hash_content
from pagemill.pipeline.documents.documents import inspect
from pagemill.pipeline.page import PageImage, PageRef, PageText
from pagemill.pipeline.reading.reader import PageReader
from pagemill.pipeline.reading.recovery import Recovery
from pagemill.pipeline.reading.settings import ReadSettings
from pagemill.pipeline.render.preprocess import RenderSettings
from pagemill.pipeline.render.producer import Producer
from pagemill.pipeline.render.renderer import RenderRequest
from pagemill.vision.encoder import open_encoder
from tests.answers import ROOT

SAMPLES = ROOT / "samples"
PAGES_AT_ONCE = 32
NO_RETRIES = Recovery(retry_on=frozenset())
Answer = tuple[str, str, int, float | None]


@pytest.fixture(scope="module")
def model() -> Model:
    """The sample text model."""
    return open_model(SAMPLES / "model" / "text-q8_0.gguf")


@pytest.fixture(scope="module")
def images() -> list[PageImage]:
    """Pages of the sample documents."""
    requests = [
        RenderRequest(PageRef(hash_content(path), page, path.name), path, RenderSettings())
        for path in sorted((SAMPLES / "documents").iterdir())
        for page in range(inspect(path).pages)
    ]
    with Producer() as producer:
        pages = [image for image in producer.render(requests) if isinstance(image, PageImage)]
    assert len(pages) == len(requests)
    return pages


def read(
    model: Model,
    images: Sequence[PageImage],
    *,
    slots: int,
    threads: int,
    chunk: int,
    max_tokens: int = 200,
    recovery: Recovery = NO_RETRIES,
) -> list[PageText]:
    """The pages' texts, in the order in which they end."""
    encoder = open_encoder(SAMPLES / "model" / "mmproj-f16.gguf", threads=threads)
    engine = Engine(model, slots=slots, context=2048, threads=threads, chunk=chunk)
    reader = PageReader(
        encoder, engine, model.tokenizer, ReadSettings(max_tokens=max_tokens, recovery=recovery), {"software": "test"}
    )
    waiting, ended = list(images), list[PageText]()
    while len(ended) < len(images):
        while waiting and reader.room:
            reader.submit(waiting.pop(0))
        ended += reader.step()
    encoder.close()
    engine.close()
    return ended


def answers(texts: Sequence[PageText]) -> dict[PageRef, Answer]:
    """What must not change, by page."""
    return {text.ref: (text.text, text.status, text.tokens, text.mean_log_prob) for text in texts}


def test_a_page_reads_the_same_alone_among_32_first_and_last_in_the_queue(model: Model, images: list[PageImage]) -> None:
    threads = min(2, available_cores())
    many = images[:PAGES_AT_ONCE]
    assert len(many) == PAGES_AT_ONCE
    among = answers(read(model, many, slots=PAGES_AT_ONCE, threads=threads, chunk=256))
    backwards = answers(read(model, many[::-1], slots=3, threads=1, chunk=19))
    assert backwards == among
    for image in (many[0], many[-1]):
        alone = answers(read(model, [image], slots=1, threads=threads, chunk=64))
        assert alone.items() <= among.items()


def test_a_page_that_reaches_its_cap_is_truncated_and_says_so(model: Model, images: list[PageImage]) -> None:
    page = next(image for image in images if image.ref.name == "notice.png")
    (text,) = read(model, [page], slots=1, threads=1, chunk=256, max_tokens=5)
    assert (text.status, text.tokens) == ("truncated", 5)
    assert "max_tokens" in text.reason


def test_an_empty_page_is_blank_without_a_token(model: Model, images: list[PageImage]) -> None:
    page = next(image for image in images if image.ref.name == "mill.pdf" and image.ref.page == 4)
    (text,) = read(model, [page], slots=1, threads=1, chunk=256)
    assert (text.status, text.text, text.tokens, text.mean_log_prob) == ("blank", "", 0, None)


@pytest.mark.parametrize("quarters", [1, 2, 3])
def test_a_page_on_its_side_or_head_is_turned_and_read(model: Model, images: list[PageImage], quarters: int) -> None:
    upright = next(image for image in images if image.ref.name == "notice.png")
    lying = replace(upright, pixels=np.ascontiguousarray(np.rot90(upright.pixels, quarters)))
    sure = 0.8  # the sample model: 0.95 upright, 0.64 upside down, less on a side
    turns = Recovery(turns=True, low_confidence=sure, temperatures=(), scales=(), halves=False)
    (found,) = read(model, [lying], slots=1, threads=1, chunk=256, recovery=turns)
    (expected,) = read(model, [upright], slots=1, threads=1, chunk=256)
    assert (found.status, found.text) == ("ok", expected.text)
    assert found.turn == 90 * quarters
    assert [attempt.turn for attempt in found.attempts] == [0, 90, 180, 270]
    assert len(found.word_confidences) == len(found.text.split())


def test_a_page_that_draws_and_shows_no_ink_is_suspect(model: Model, images: list[PageImage]) -> None:
    page = next(image for image in images if image.ref.name == "mill.pdf" and image.ref.page == 4)
    (text,) = read(model, [replace(page, objects=3, mended="rebuilt")], slots=1, threads=1, chunk=256)
    assert text.status == "blank"
    assert text.reason.startswith("suspect blank: the page draws 3 objects, and no ink on the page")
    assert text.provenance["original"] == "rebuilt"
