"""What becomes of a hostile file between the disk and the model: one row a file, all of them through the real children."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pagemill.pipeline.documents.documents import Inspector
from pagemill.pipeline.errors import PageError
from pagemill.pipeline.page import PageFailure, PageImage, PageRef
from pagemill.pipeline.reading.quality import measure_ink, why_blank
from pagemill.pipeline.render.preprocess import RenderSettings
from pagemill.pipeline.render.producer import Producer
from pagemill.pipeline.render.renderer import RenderRequest

Make = bytes | Callable[[Path], object]


@dataclass(frozen=True, slots=True)
class Case:
    """A file and what must become of it.

    item: its number in the field's list of complaints.  make: the content, or a function that writes the file at a path.
    ends: of each page "ink" (it goes to the model), "blank", "suspect" (blank although it draws something) or the name of
    the error that it fails with; one for a document that does not open.  says: a pattern found in the errors' words.
    holds: of the first page's pixels.
    """

    item: int
    make: Make
    ends: Sequence[str]
    says: str = ""
    password: str | None = None
    file_name: str = ""
    holds: Callable[[NDArray[np.uint8]], bool] = lambda pixels: True


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a file's pages.  first: the first page's pixels."""

    ends: list[str]
    words: str
    first: NDArray[np.uint8] | None


def render_all(folder: Path, cases: Mapping[str, Case], settings: RenderSettings) -> dict[str, Ended]:
    """Every case through one inspector and one producer, as in a run: no file may harm the next."""
    paths = {name: _write(folder, number, name, case) for number, (name, case) in enumerate(cases.items())}
    results: dict[str, list[PageImage | PageError]] = {name: [] for name in cases}
    requests = []
    with Inspector() as inspector:
        for name, case in cases.items():
            try:
                pages = inspector.inspect(paths[name], password=case.password).pages
            except PageError as error:
                results[name].append(error)
            else:
                refs = [PageRef(name, page) for page in range(pages)]
                requests += [RenderRequest(ref, paths[name], settings, case.password) for ref in refs]
    with Producer(workers=2) as producer:
        for page in producer.render(requests):
            results[page.ref.document_hash].append(page.error if isinstance(page, PageFailure) else page)
    return {name: _ended(pages) for name, pages in results.items()}


def check(case: Case, ended: Ended) -> None:
    """Assert that the file ended as its case says."""
    assert ended.ends == list(case.ends), ended.words
    assert re.search(case.says, ended.words), ended.words
    if ended.first is not None:
        assert case.holds(ended.first), (ended.first.shape, ended.first.min(), ended.first.mean(), ended.first.max())


def is_print(pixels: NDArray[np.uint8]) -> bool:
    """Dark letters on light paper, whatever became of the file on its way."""
    return bool(pixels.mean() > 150 and pixels.min() < 80 and (pixels[-len(pixels) // 4 :].min() < 120))


def is_dark(pixels: NDArray[np.uint8]) -> bool:
    """Some ink."""
    return bool(pixels.min() < 50)


def _write(folder: Path, number: int, name: str, case: Case) -> Path:
    path = folder / f"{number}-{case.file_name or name}"
    if isinstance(case.make, bytes):
        path.write_bytes(case.make)
    else:
        case.make(path)
    return path


def _ended(pages: Sequence[PageImage | PageError]) -> Ended:
    first = next((page.pixels for page in pages if isinstance(page, PageImage)), None)
    words = "; ".join(str(page) for page in pages if isinstance(page, PageError))
    return Ended([_end(page) for page in pages], words, first)


def _end(page: PageImage | PageError) -> str:
    if isinstance(page, PageError):
        return type(page).__name__
    if not why_blank(measure_ink(page.pixels)):
        return "ink"
    return "suspect" if page.objects else "blank"
