"""What kinds of pages are drawn, and how often: the knobs of the renderer as named recipes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from samples.model.train.faces import COMMON, RARE, Family


@dataclass(frozen=True, slots=True)
class Recipe:
    """Shares are of all pages or blocks, 0 to 1; sizes are letter sizes in px with their weights."""

    families: tuple[Family, ...] = COMMON
    cut_weights: tuple[float, float, float] = (0.85, 0.15, 0.0)  # regular, bold, slanted
    sizes_px: tuple[tuple[float, float], ...] = tuple((size, 1) for size in range(14, 29))
    damaged: float = 0.0  # of pages: each damage below strikes a damaged page independently
    headings: float = 0.13
    lists: float = 0.12
    tables: float = 0.0
    two_columns: float = 0.0
    blank: float = 0.0
    short: float = 0.15  # of pages: fewer lines than fit


CLEAN = Recipe()
EVERYDAY = Recipe(damaged=0.3, blank=0.004)
MIXED = replace(EVERYDAY, two_columns=0.15, blank=0.01)
FULL = Recipe(families=COMMON + RARE, cut_weights=(0.78, 0.12, 0.10), damaged=0.5, tables=0.04, two_columns=0.2, blank=0.01)
LIGHT = Recipe(damaged=1.0)
COLUMNS = Recipe(two_columns=1.0)
BLANK = Recipe(blank=1.0, damaged=0.5)
RECIPES = {
    "clean": CLEAN,
    "everyday": EVERYDAY,
    "mixed": MIXED,
    "full": FULL,
    "light": LIGHT,
    "columns": COLUMNS,
    "blank": BLANK,
}
