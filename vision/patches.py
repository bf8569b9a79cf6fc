"""A page image becomes normalised pixels and then patch rows: the preprocessing of the reference processor, to the bit.

Never enlarges a page beyond the rounding of its sides; never resamples one that already fits.  A page of any size, down
to one pixel, gives at least one embedding row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pagemill.vision.errors import BadPixels
from pagemill.vision.fitting import fitted_size
from pagemill.vision.positions import Grid, block_order
from pagemill.vision.spec import VisionSpec

MULTIPLE_PX = 28  # what the reference's token count, and other engines, round sides to; its processor rounds to 14


@dataclass(frozen=True, slots=True)
class Patches:
    """One page for the encoder.

    rows: (patches, 3 * patch_px**2) float32, a row ordered by channel, y, x (x fastest), as the patch matrix expects.
    The rows stand in block order (see ``positions.block_order``), so that a merge is a reshape.
    """

    rows: NDArray[np.float32]
    grid: Grid


def fit(width_px: int, height_px: int, spec: VisionSpec, multiple: int = MULTIPLE_PX) -> tuple[int, int]:
    """The (width, height) in pixels that a page of this size is resized to.

    The longest side shrinks to ``spec.longest_edge_px`` where it is larger; then each side is raised to a multiple of
    ``multiple``, and to one whole merge block at least.
    """
    if width_px < 1 or height_px < 1:
        raise BadPixels(f"a page needs at least 1 x 1 px, found {width_px} x {height_px}")
    if multiple % spec.patch_px:
        raise BadPixels(f"sides must be multiples of the patch of {spec.patch_px} px, found a multiple of {multiple}")
    width, height = fitted_size(width_px, height_px, spec.longest_edge_px, multiple)
    return max(width, spec.block_px), max(height, spec.block_px)


def prepare(image: Image.Image, spec: VisionSpec, multiple: int = MULTIPLE_PX) -> NDArray[np.float32]:
    """Fit and normalise a page.  Returns pixels: (3, height, width) float32, (u8 / 255 - mean) / std."""
    return normalise(resize(image, spec, multiple), spec)


def resize(image: Image.Image, spec: VisionSpec, multiple: int = MULTIPLE_PX) -> NDArray[np.uint8]:
    """The page in RGB at the size of ``fit``, by antialiased bicubic resampling.  Returns (height, width, 3) uint8."""
    rgb = image if image.mode == "RGB" else image.convert("RGB")
    size = fit(rgb.width, rgb.height, spec, multiple)
    if size != rgb.size:
        rgb = rgb.resize(size, Image.Resampling.BICUBIC)
    return np.asarray(rgb)


def normalise(image: NDArray[np.uint8], spec: VisionSpec) -> NDArray[np.float32]:
    """image: (height, width, 3) uint8.  Returns (3, height, width) float32."""
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        raise BadPixels(f"expected (height, width, 3) uint8, found {image.shape} {image.dtype}")
    levels = np.arange(256, dtype=np.float32) / np.float32(255)  # 256 divisions instead of one a pixel, the same bits
    pixels = np.empty((3, *image.shape[:2]), np.float32)
    for channel, (mean, std) in enumerate(zip(spec.mean, spec.std, strict=True)):
        pixels[channel] = ((levels - np.float32(mean)) / np.float32(std))[image[:, :, channel]]
    return pixels


def to_patches(pixels: NDArray[np.float32], spec: VisionSpec) -> Patches:
    """Cut normalised pixels (3, height, width) into patch rows; both sides must be multiples of the patch."""
    patch = spec.patch_px
    if pixels.ndim != 3 or pixels.shape[0] != 3 or any(side % patch or side < spec.block_px for side in pixels.shape[1:]):
        raise BadPixels(
            f"expected pixels of shape (3, height, width), sides multiples of {patch} and at least {spec.block_px}, "
            f"found {pixels.shape}"
        )
    grid = Grid(pixels.shape[1] // patch, pixels.shape[2] // patch)
    tiles = pixels.reshape(3, grid.rows, patch, grid.columns, patch).transpose(1, 3, 0, 2, 4)  # a view
    rows = tiles[block_order(grid, spec.merge)].reshape(grid.patches, spec.patch_width)
    return Patches(rows.astype(np.float32, copy=False), grid)
