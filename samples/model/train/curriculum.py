"""Which pages a step learns from: short strips first, then pages; plain print first, then all of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from samples.model.train.batches import Group
from samples.model.train.labels import PATCH
from samples.model.train.recipe import EVERYDAY, FULL, MIXED, Recipe

Size = tuple[int, int]  # height, width; px, multiples of 28
STRIPS: tuple[Size, ...] = ((112, 336), (168, 336), (112, 448), (168, 448), (224, 336), (224, 448), (280, 336))
PAGES: tuple[Size, ...] = ((336, 448), (448, 336), (448, 448), (448, 448), (560, 448), (644, 448))
LARGE: tuple[Size, ...] = ((644, 448), (644, 448), (560, 448), (448, 448), (644, 504), (448, 644))


@dataclass(frozen=True, slots=True)
class Part:
    """A share of a step: pages of one of these sizes, together of about so many patches.

    is_frozen: the decoder alone learns from them; each comes again in later steps (shelf.py).
    """

    sizes: tuple[Size, ...]
    patches: int
    is_frozen: bool = False


@dataclass(frozen=True, slots=True)
class Lesson:
    """What steps hold from `step` on."""

    step: int
    recipe: Recipe
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Curriculum:
    """Lessons in the order of their steps, the first from step 0."""

    lessons: tuple[Lesson, ...]
    batch_patches: int = 1536  # about this many in one forward pass

    def groups(self, seed: int, step: int) -> Sequence[Group]:
        """What to render for a step; depends on nothing else."""
        rng = Random(f"groups {seed} {step}")
        lesson = [lesson for lesson in self.lessons if lesson.step <= step][-1]
        return [self._group(rng.choice(part.sizes), part, lesson.recipe) for part in lesson.parts]

    def _group(self, size: Size, part: Part, recipe: Recipe) -> Group:
        height, width = size
        a_page = height // PATCH * (width // PATCH)
        pages = max(1, round(part.patches / a_page))
        batches = min(pages, max(1, round(pages * a_page / self.batch_patches)))
        return Group(height, width, pages, batches, part.is_frozen, recipe)


DEFAULT = Curriculum(  # two cores: about 250 GFLOP a step
    (
        Lesson(0, EVERYDAY, (Part(STRIPS, 3072), Part(PAGES, 2048, is_frozen=True))),
        Lesson(400, EVERYDAY, (Part(STRIPS + PAGES[:3], 3072), Part(LARGE, 2048, is_frozen=True))),
    )
)
MIX = Curriculum(  # two cores, after DEFAULT: columns and blank pages too
    (Lesson(0, MIXED, (Part(STRIPS + STRIPS + PAGES[:4], 6144), Part(LARGE, 4096, is_frozen=True))),)
)
WIDE = Curriculum(  # two cores, after MIX: all fonts, tables
    (Lesson(0, FULL, (Part(STRIPS + PAGES, 6144), Part(LARGE, 4096, is_frozen=True))),)
)
GPU = Curriculum(  # one GPU, from nothing or from a checkpoint: some 10 TFLOP a step
    (
        Lesson(0, EVERYDAY, (Part(STRIPS, 65536),)),
        Lesson(500, EVERYDAY, (Part(STRIPS, 32768), Part(PAGES, 65536))),
        Lesson(1000, FULL, (Part(STRIPS, 32768), Part(PAGES, 32768), Part(LARGE, 65536))),
    ),
    batch_patches=49152,
)
SMOKE = Curriculum((Lesson(0, EVERYDAY, (Part(((56, 224),), 512),)),), batch_patches=256)
CURRICULA = {"default": DEFAULT, "mix": MIX, "wide": WIDE, "gpu": GPU, "smoke": SMOKE}
