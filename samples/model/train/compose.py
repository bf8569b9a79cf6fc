"""Makes one page: letters and habits, one or two columns, then the wear of a scan."""

from __future__ import annotations

from random import Random

import numpy as np

from samples.model.train import damage
from samples.model.train.faces import draw_family, open_face
from samples.model.train.recipe import Recipe
from samples.model.train.setting import Column, Setter, Style
from samples.model.train.sheet import Page, Sheet
from samples.model.train.wording import Wording

DAMAGE_SHARE = 0.5  # each kind of damage on a damaged page


def compose_page(width: int, height: int, recipe: Recipe, wording: Wording, rng: Random) -> Page:
    """Draw a page of width x height px."""
    sheet = Sheet(width, height)
    if rng.random() >= recipe.blank:
        style = choose_style(recipe, rng)
        for column in choose_columns(width, height, style, recipe, rng):
            Setter(sheet, column, style, wording, rng).fill(recipe)
    text, centres, lines = sheet.finish()
    image = sheet.image
    worn = rng.random() < recipe.damaged
    if worn and rng.random() < DAMAGE_SHARE:
        image, centres = damage.rotate(image, centres, rng)
    if worn and rng.random() < DAMAGE_SHARE:
        image = damage.blur(image, rng)
    colours = damage.colour(image, rng, worn and rng.random() < DAMAGE_SHARE)
    if worn and rng.random() < DAMAGE_SHARE:
        colours = damage.noise(colours, rng)
    pixels = damage.to_bytes(colours)
    if worn and rng.random() < DAMAGE_SHARE:
        pixels = damage.jpeg(pixels, rng)
    return Page(pixels, text, centres, lines)


def choose_style(recipe: Recipe, rng: Random) -> Style:
    """Letters and habits for one page."""
    family = draw_family(rng, recipe.families)
    cut = rng.choices((0, 1, 2), recipe.cut_weights)[0]
    sizes, weights = zip(*recipe.sizes_px, strict=True)
    size = rng.choices(sizes, weights)[0] + rng.choice((0, 0, 0.5))
    return Style(
        family=family,
        cut=cut,
        face=open_face(family.cuts[cut], size),
        pitch=size * rng.uniform(1.12, 1.6),
        is_justified=rng.random() < 0.3,
        indent=size * rng.uniform(1, 2.5) if rng.random() < 0.25 else 0.0,
    )


def choose_columns(width: int, height: int, style: Style, recipe: Recipe, rng: Random) -> list[Column]:
    """One column or, where 2 x 12 letters fit, two; with margins."""
    left, right = rng.uniform(3, min(50, width * 0.12)), width - rng.uniform(3, min(50, width * 0.12))
    top, bottom = rng.uniform(2, min(50, height * 0.15)), height - 2.0
    gap = style.face.size_px * rng.uniform(1.2, 2.2)
    half = (right - left - gap) / 2
    if rng.random() < recipe.two_columns and half > 12 * style.face.size_px * 0.5:
        return [Column(left, left + half, top, bottom), Column(right - half, right, top, bottom)]
    return [Column(left, right, top, bottom)]


def is_on_page(page: Page) -> bool:
    """Whether no printed letter fell over the edge, as rotation may make it."""
    height, width = page.pixels.shape[:2]
    centres = page.centres[~np.isnan(page.centres[:, 0])]
    return bool(((centres >= 0) & (centres < (width, height))).all())
