"""Pages to arrays: rendering a step's pages from its number, and sorting them by length so that little is padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from samples.model.train.compose import compose_page, is_on_page
from samples.model.train.labels import Labels, label_page
from samples.model.train.recipe import Recipe
from samples.model.train.sheet import Page
from samples.model.train.vocabulary import TURN_WEIGHTS, end_id, open_tokenizer
from samples.model.train.wording import Wording

PAD = -1


@dataclass(frozen=True, slots=True)
class Group:
    """Some of a step's pages: all of one size, in batches of about equal cost.

    is_frozen: only the decoder learns from them, which costs a third where pages are large.
    """

    height: int
    width: int
    pages: int
    batches: int
    is_frozen: bool
    recipe: Recipe


@dataclass(frozen=True, slots=True)
class Batch:
    """Pages of one size.

    pixels: (pages, height, width, 3) uint8; tokens: (pages, longest) int64, the end token included, -1 after it;
    spans: (pages, longest, 2) int64, first and last cell of each token, -1 where it is not printed;
    levels_of: (pages, longest) int64, of each token's first cell, -1 where it is not printed;
    patches, cells, before, levels: as in Labels, with pages in front; seed: for what the learner draws itself;
    seen: (pages, cells, width) float16, what the encoder made of the pages some steps ago, or None.
    """

    pixels: NDArray[np.uint8]
    tokens: NDArray[np.int64]
    spans: NDArray[np.int64]
    levels_of: NDArray[np.int64]
    patches: NDArray[np.uint8]
    cells: NDArray[np.uint8]
    before: NDArray[np.uint8]
    levels: NDArray[np.uint8]
    texts: tuple[str, ...]
    is_frozen: bool
    turn: int
    seed: int
    seen: NDArray[np.float16] | None = None


def render_step(groups: Sequence[Group], wording: Wording, seed: int, step: int) -> list[Batch]:
    """All batches of one optimizer step; the same seed and step give the same pages whatever was rendered before."""
    rng = Random(f"{seed} {step}")
    return [batch for group in groups for batch in render_group(group, wording, rng)]


def render_group(group: Group, wording: Wording, rng: Random) -> Iterator[Batch]:
    """Pages sorted by length and cut into batches, longest pages in the smallest batch."""
    pages = sorted(render_pages(group, wording, rng), key=lambda page: len(page.text))
    for part in np.array_split(np.arange(len(pages)), group.batches):
        yield collate([pages[index] for index in part], group.is_frozen, rng)


def render_pages(group: Group, wording: Wording, rng: Random) -> list[Page]:
    """Pages with every letter on the paper."""
    pages: list[Page] = []
    while len(pages) < group.pages:
        page = compose_page(group.width, group.height, group.recipe, wording, rng)
        if is_on_page(page):
            pages.append(page)
    return pages


def collate(pages: Sequence[Page], is_frozen: bool, rng: Random) -> Batch:
    """Tokens, pointers and labels of some pages of one size."""
    labels = [label_page(page) for page in pages]
    encoded = [encode(page, label) for page, label in zip(pages, labels, strict=True)]
    longest = max(len(ids) for ids, _, _ in encoded)
    tokens = np.full((len(pages), longest), PAD, np.int64)
    spans = np.full((len(pages), longest, 2), PAD, np.int64)
    levels_of = np.full((len(pages), longest), PAD, np.int64)
    for row, (ids, cells, levels) in enumerate(encoded):
        tokens[row, : len(ids)] = ids
        spans[row, : len(ids)] = cells
        levels_of[row, : len(ids)] = levels
    return Batch(
        pixels=np.stack([page.pixels for page in pages]),
        tokens=tokens,
        spans=spans,
        levels_of=levels_of,
        patches=np.stack([label.patches for label in labels]),
        cells=np.stack([label.cells for label in labels]),
        before=np.stack([label.before for label in labels]),
        levels=np.stack([label.levels for label in labels]),
        texts=tuple(page.text for page in pages),
        is_frozen=is_frozen,
        turn=rng.choices(range(len(TURN_WEIGHTS)), TURN_WEIGHTS)[0],
        seed=rng.getrandbits(62),
    )


def encode(page: Page, labels: Labels) -> tuple[list[int], NDArray[np.int64], NDArray[np.int64]]:
    """Token ids with the end token, the first and last cell that each token is printed in, and its level in the first."""
    encoding = open_tokenizer().encode(page.text)
    spans, levels = np.full((len(encoding.ids) + 1, 2), PAD, np.int64), np.full(len(encoding.ids) + 1, PAD, np.int64)
    for index, (first, end) in enumerate(encoding.offsets):
        printed = [at for at in range(first, end) if labels.cell_of[at] >= 0]
        inked = [at for at in printed if page.text[at] != " "] or printed
        if inked:
            spans[index] = labels.cell_of[inked[0]], labels.cell_of[inked[-1]]
            levels[index] = labels.level_of[inked[0]]
    return [*encoding.ids, end_id()], spans, levels
