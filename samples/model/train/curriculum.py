"""Which pages a step learns from: short strips first, then pages; plain print first, then all of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from samples.model.train.batches import Group
from samples.model.train.labels import PATCH
from samples.model.train.recipe import EVERYDAY, FULL, Recipe

Size = tuple[int, int]  # height, width; px, multiples of 28
STRIPS: tuple[Size, ...] = ((112, 336), (168, 336), (112, 448), (168, 448), (224, 336), (224, 448), (280, 336))
PAGES: tuple[Size, ...] = ((336, 448), (448, 336), (448, 448), (448, 448), (560, 448), (644, 448))
LARGE: tuple[Size, ...] = ((644, 448), (644, 448), (560, 448), (448, 448), (644, 504), (448, 644))


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a step holds from `step` on: patches of pages that all of the network learns from, and of
    those for the decoder alone (new ones; each comes again, see shelf.py)."""

    step: int
    whole: tuple[Size, ...]
    whole_patches: int
    frozen: tuple[Size, ...]
    frozen_patches: int
    recipe: Recipe


@dataclass(frozen=True, slots=True)
class Curriculum:
    """Lessons in the order of their steps, the first from step 0."""

    lessons: tuple[Lesson, ...]
    batch_patches: int = 1536  # about this many in one forward pass

    def groups(self, seed: int, step: int) -> Sequence[Group]:
        """What to render for a step; depends on nothing else."""
        rng = Random(f"groups {seed} {step}")
        lesson = [lesson for lesson in self.lessons if lesson.step <= step][-1]
        kinds = ((lesson.whole, lesson.whole_patches, False), (lesson.frozen, lesson.frozen_patches, True))
        return [
            self._group(rng.choice(sizes), patches, is_frozen, lesson.recipe) for sizes, patches, is_frozen in kinds if patches
        ]

    def _group(self, size: Size, patches: int, is_frozen: bool, recipe: Recipe) -> Group:
        a_page = size[0] // PATCH * (size[1] // PATCH)
        pages = max(1, round(patches / a_page))
        return Group(size[0], size[1], pages, min(pages, max(1, round(pages * a_page / self.batch_patches))), is_frozen, recipe)


DEFAULT = Curriculum(
    (
        Lesson(0, STRIPS, 3072, PAGES, 2048, EVERYDAY),
        Lesson(400, STRIPS + PAGES[:3], 3072, LARGE, 2048, EVERYDAY),
    )
)
WIDE = Curriculum((Lesson(0, STRIPS + PAGES, 6144, LARGE, 6144, FULL),))
SMOKE = Curriculum((Lesson(0, ((56, 224),), 512, (), 0, EVERYDAY),), batch_patches=256)
CURRICULA = {"default": DEFAULT, "wide": WIDE, "smoke": SMOKE}
