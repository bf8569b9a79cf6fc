"""Pages as image files, one function a kind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from drawing.typeset import Page, open_font
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

EXIF_ORIENTATION = 0x0112
INK, CREAM, BROWN = (25, 22, 30), (244, 236, 210), (228, 212, 172)
BLACK_BELOW = 150  # levels of 255, where ink is black or nothing


def draw(page: Page) -> Image.Image:
    """Black on white, 8-bit grey."""
    image = Image.new("L", (page.width, page.height), 255)
    pen = ImageDraw.Draw(image)
    for line in page.lines:
        pen.text((line.x, line.y), line.text, font=open_font(line.face, line.size), fill=0, anchor="ls")
    for rule in page.rules:
        pen.line((rule.left, rule.y, rule.right, rule.y), fill=0)
    return image


def scan(page: Page, noise: np.random.Generator) -> Image.Image:
    """As a scanner sees it: grey paper, light noise, soft letters."""
    soft = _soften(page)
    return _image(20 + soft * ((245 - 20) / 255) + noise.normal(0, 3, soft.shape))


def write_png(pages: list[Page], path: Path) -> None:
    """A plain image."""
    draw(pages[0]).convert("RGB").save(path, optimize=True)


def write_transparent_png(pages: list[Page], path: Path) -> None:
    """Black letters on nothing."""
    image = Image.new("LA", (pages[0].width, pages[0].height))
    image.putalpha(Image.eval(draw(pages[0]), lambda level: 255 - level))
    image.save(path, optimize=True)


def write_palette_png(pages: list[Page], path: Path) -> None:
    """Sixteen colours, from ink to cream paper."""
    image = draw(pages[0]).point(lambda level: level * 15 // 255)
    image.putpalette(np.linspace(INK, CREAM, 16).astype(np.uint8).tobytes())
    image.save(path, optimize=True)


def write_deep_png(pages: list[Page], path: Path) -> None:
    """16-bit grey that reaches neither black nor white."""
    levels = np.asarray(draw(pages[0]), np.float32) / 255
    Image.fromarray((9000 + levels * (60000 - 9000)).astype(np.uint16)).save(path, optimize=True)


def write_webp(pages: list[Page], path: Path) -> None:
    """Lossless, so that letters keep their edges."""
    draw(pages[0]).convert("RGB").save(path, lossless=True)


def write_turned_jpeg(pages: list[Page], path: Path) -> None:
    """Stored on its side, with the mark that tells viewers to turn it."""
    exif = Image.Exif()
    exif[EXIF_ORIENTATION] = 6
    draw(pages[0]).transpose(Image.Transpose.ROTATE_90).save(path, quality=95, exif=exif)


def write_cmyk_jpeg(pages: list[Page], path: Path) -> None:
    """As a printer keeps it: letters in black ink alone."""
    black = Image.eval(draw(pages[0]), lambda level: 255 - level)
    none = Image.new("L", black.size)
    Image.merge("CMYK", (none, none, none, black)).save(path, quality=92)


def write_yellowed_jpeg(pages: list[Page], path: Path) -> None:
    """Old paper, darker towards one corner, with its grain."""
    coverage = _soften(pages[0])[:, :, None] / 255
    height, width = coverage.shape[:2]
    age = np.add.outer(np.linspace(0, 0.5, height), np.linspace(0, 0.5, width))[:, :, None]
    grain = np.random.default_rng(0).normal(0, 3, (height, width, 1))
    paper = CREAM + age * np.subtract(BROWN, CREAM)
    _image(INK + coverage * (paper - INK) + grain).save(path, quality=88)


def write_tiff(pages: list[Page], path: Path) -> None:
    """All pages as frames of one file."""
    _write_frames([draw(page) for page in pages], path, "tiff_lzw")


def write_fax(pages: list[Page], path: Path) -> None:
    """Frames of black or white, as fax machines pack them."""
    _write_frames([draw(page).point(lambda level: 255 * (level > BLACK_BELOW), "1") for page in pages], path, "group4")


def _write_frames(frames: list[Image.Image], path: Path, compression: str) -> None:
    first, *others = frames
    first.save(path, save_all=True, append_images=others, compression=compression)


def _soften(page: Page) -> NDArray[np.float32]:
    return np.asarray(draw(page).filter(ImageFilter.GaussianBlur(0.4)), np.float32)


def _image(levels: NDArray[np.floating]) -> Image.Image:
    return Image.fromarray(np.clip(levels, 0, 255).astype(np.uint8))
