"""Fixed sets of pages with text that was never trained on; what the evaluation, the card and the recorded answers draw."""

from __future__ import annotations

from pathlib import Path
from random import Random

from samples.model.train.batches import Group, render_pages
from samples.model.train.corpus import load_corpus
from samples.model.train.recipe import RECIPES
from samples.model.train.sheet import Page
from samples.model.train.wording import Wording

SEED = 20260


def held_out_pages(name: str, count: int, corpus_cache: Path | None = None) -> list[Page]:
    """The set `recipe:HEIGHTxWIDTH`; the same pages every time, the first of more for a smaller count."""
    recipe, _, size = name.partition(":")
    height, width = map(int, size.split("x"))
    corpus = load_corpus(corpus_cache)
    group = Group(height, width, count, 1, True, RECIPES[recipe])
    return render_pages(group, Wording(corpus.held_out, corpus.words), Random(f"{SEED} {name}"))
