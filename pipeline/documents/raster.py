"""Image files: each frame becomes RGB as a person would see it.  Runs in a child process, for hostile files.

Refuses what Pillow cannot decode whole, and what exceeds the pixel limit before it is decoded.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from pagemill.pipeline.errors import PageError, TooLarge, Unreadable
from pagemill.pipeline.render.preprocess import RenderSettings, image_size
from pagemill.pipeline.render.rendering import Rendering

ALPHA_MODES = frozenset({"LA", "PA", "La", "RGBA", "RGBa"})
PHOTOMETRIC, WHITE_IS_ZERO = 262, 0
ORIENTATION = 274

_WHITES = {"I": (255.0, 65535.0), "F": (1.0, 255.0, 65535.0)}
_SIXTEEN_BITS = ((np.arange(65536) * 255 + 32767) // 65535).astype(np.uint8)  # rounded; 65535 is white


class Images:
    """An open image file: ``pages``, ``render`` and ``close``.  Only a TIFF has more than one page.

    file: closed with the document.  A name would not do: Pillow 13 maps uncompressed grey TIFFs that it opens by name, and
    garbles those with an orientation.
    """

    def __init__(self, file: BinaryIO, *, multipage: bool) -> None:
        self._file = file
        self._image: Image.Image | None = None
        try:
            with self._reading("the image"):
                self.pages = _count_frames(Image.open(self._file)) if multipage else 1
                self._image = Image.open(self._file)
        except BaseException:
            self._file.close()
            raise

    def render(self, page: int, settings: RenderSettings) -> Rendering:
        """Decode one frame, at its final size."""
        with self._reading(f"image {page + 1} of the file"):
            image = self._image or Image.open(self._file)
            self._image = None  # a failed seek leaves the frame before it in place, so after a failure it is opened anew
            image.seek(page)
            rendered = _read_frame(image, settings)
            self._image = image
        return rendered

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        """Turn whatever Pillow raises on damaged files, of any type, into a PageError; keep its warnings quiet."""
        with warnings.catch_warnings(action="ignore"):
            try:
                yield
            except (PageError, MemoryError):
                raise
            except Image.DecompressionBombError as error:
                raise TooLarge(f"{what} is a decompression bomb: {error}") from error
            except Exception as error:
                raise Unreadable(f"{what} cannot be decoded, it is damaged or truncated: {_cause(error)}") from error


def to_rgb(image: Image.Image) -> Image.Image:
    """RGB of any mode: deep greys scaled and not clipped, transparency composited on white, orientation applied."""
    rgb = _flatten(image)
    orientation = image.getexif().get(ORIENTATION, 1) if hasattr(image, "getexif") else 1
    if orientation in range(2, 9):
        rgb.getexif()[ORIENTATION] = orientation
        rgb = ImageOps.exif_transpose(rgb)
    return rgb


def _read_frame(image: Image.Image, settings: RenderSettings) -> Rendering:
    """The frame at the position of ``image``, shrunk by the resampling that the vision stage uses."""
    image_size(*image.size, settings)  # refuses before anything is decoded
    image.load()
    rgb = to_rgb(image)
    size = image_size(*rgb.size, settings)
    dpi = _dpi(image, max(size) / max(rgb.size))
    if size != rgb.size:
        rgb = rgb.resize(size, Image.Resampling.BICUBIC)
    return Rendering(np.array(rgb), dpi)


def _flatten(image: Image.Image) -> Image.Image:
    """``image`` as a new RGB image, upright or not."""
    if image.mode.startswith("I;16") or image.mode in _WHITES:
        return Image.fromarray(_eight_bits(image)).convert("RGB")
    if image.mode in ALPHA_MODES or "transparency" in image.info:
        rgba = image.convert("RGBA")
        paper = Image.new("RGBA", rgba.size, "white")
        return Image.alpha_composite(paper, rgba).convert("RGB")
    return image.copy() if image.mode == "RGB" else image.convert("RGB")


def _eight_bits(image: Image.Image) -> NDArray[np.uint8]:
    """Scale a deep grey image to 0..255; plain conversion clips it to white.

    16-bit images have a defined white.  32-bit integers and floats have none in practice, so the smallest usual range
    that holds the largest value is taken.
    """
    if image.mode.startswith("I;16"):
        levels: NDArray[np.uint8] = _SIXTEEN_BITS[np.asarray(image)]
    else:
        grey = np.nan_to_num(np.asarray(image, np.float32), nan=0.0, posinf=0.0, neginf=0.0)
        top = float(grey.max(initial=0.0))
        white = next((limit for limit in _WHITES[image.mode] if top <= limit), top)
        grey *= np.float32(255 / white)
        levels = np.clip(np.rint(grey), 0, 255).astype(np.uint8)
    return np.invert(levels) if _is_inverted(image) else levels


def _is_inverted(image: Image.Image) -> bool:
    """Does zero mean white?  Pillow heeds the TIFF tag for 1 and 8 bits, not for deeper images."""
    tags = getattr(image, "tag_v2", None)
    return tags is not None and tags.get(PHOTOMETRIC) == WHITE_IS_ZERO


def _cause(error: Exception) -> str:
    """Pillow's words, but for those that name a memory address."""
    return "no such format" if isinstance(error, UnidentifiedImageError) else f"{type(error).__name__}: {error}"


def _dpi(image: Image.Image, shrunk: float) -> float | None:
    """Pixels per inch after shrinking, None where the file says nothing or nonsense."""
    try:
        dpi = float(max(image.info["dpi"]))
    except (KeyError, TypeError, ValueError):
        return None
    return dpi * shrunk if 1 < dpi < 10_000 else None


def _count_frames(image: Image.Image) -> int:
    """How many frames can be reached; a damaged directory counts as one more, a page that fails when it is read."""
    frames = 1
    while True:
        try:
            image.seek(frames)
        except EOFError:
            return frames
        except Exception:  # Pillow raises any type here; the frames before this one are still good
            return frames + 1
        frames += 1
