"""Field complaints 34 and 45 to 50: image files, each with the end that its frames must come to."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from pagemill.pipeline.render.preprocess import RenderSettings
from tests.field.files import bad_first_strip, encoded, frames, png_header_bomb, scan
from tests.field.rendered import Case, Ended, check, is_print, render_all

PAGE = scan(200, 300)
GREY = Image.fromarray(PAGE)
DEEP = Image.fromarray(PAGE.astype(np.uint16) * 257)
LETTERS_ON_NOTHING = Image.merge(
    "RGBA", [*[Image.new("L", GREY.size, 0)] * 3, Image.fromarray(255 - PAGE).point(lambda v: v * (v > 60))]
)
BILEVEL = GREY.convert("1", dither=Image.Dither.NONE)
MOVED = GREY.convert("RGB").rotate(90, expand=False)
NOISE = Image.fromarray(np.random.default_rng(0).integers(0, 255, (300, 300), np.uint8))


def turned(orientation: int) -> bytes:
    """A JPEG of a page that is higher than wide, with this orientation."""
    exif = Image.Exif()
    exif[274] = orientation
    return encoded(GREY, "JPEG", exif=exif, quality=95)


def link(frame: int, target: int) -> Callable[[bytearray, list[int], list[int]], None]:
    """Lets a frame's directory name another as its next."""
    return lambda content, starts, links: struct.pack_into("<I", content, links[frame], target)


def round_and_round(content: bytearray, starts: list[int], links: list[int]) -> None:
    """Lets the last directory name the first as its next."""
    struct.pack_into("<I", content, links[-1], starts[0])


def itself(content: bytearray, starts: list[int], links: list[int]) -> None:
    """Lets the first directory name itself as its next."""
    struct.pack_into("<I", content, links[0], starts[0])


def is_upright(pixels: NDArray[np.uint8]) -> bool:
    return pixels.shape[0] > pixels.shape[1]


def lies(pixels: NDArray[np.uint8]) -> bool:
    return pixels.shape[0] < pixels.shape[1]


def of(width: int, height: int) -> Callable[[NDArray[np.uint8]], bool]:
    return lambda pixels: pixels.shape == (height, width, 3)


CASES: dict[str, Case] = {
    "1 x 1": Case(34, encoded(Image.new("L", (1, 1)), "PNG"), ["Degenerate"], "too small for a letter"),
    "13 x 1540": Case(34, encoded(Image.new("L", (13, 1540), 200), "PNG"), ["blank"], holds=of(28, 1540)),
    "1540 x 1540": Case(34, encoded(Image.fromarray(scan(1540, 1540)), "PNG"), ["ink"], holds=of(1540, 1540)),
    "one below the block": Case(34, encoded(Image.fromarray(scan(279, 279)), "PNG"), ["ink"], holds=of(280, 280)),
    "one above the block": Case(34, encoded(Image.fromarray(scan(281, 281)), "PNG"), ["ink"], holds=of(308, 308)),
    **{
        f"orientation {value}": Case(45, turned(value), ["ink"], holds=lies if value in range(5, 9) else is_upright)
        for value in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 255)
    },
    "16-bit PNG": Case(46, encoded(DEEP, "PNG"), ["ink"], holds=is_print),
    "16-bit TIFF": Case(46, encoded(DEEP, "TIFF"), ["ink"], holds=is_print),
    "16-bit TIFF, white is zero": Case(
        46, encoded(Image.fromarray(65535 - PAGE.astype(np.uint16) * 257), "TIFF", tiffinfo={262: 0}), ["ink"], holds=is_print
    ),
    "32-bit TIFF": Case(46, encoded(Image.fromarray(PAGE.astype(np.int32) * 257), "TIFF"), ["ink"], holds=is_print),
    "float TIFF to 1": Case(47, encoded(Image.fromarray(PAGE.astype(np.float32) / 255), "TIFF"), ["ink"], holds=is_print),
    "float TIFF to 255": Case(47, encoded(Image.fromarray(PAGE.astype(np.float32)), "TIFF"), ["ink"], holds=is_print),
    "letters on nothing": Case(47, encoded(LETTERS_ON_NOTHING, "PNG"), ["ink"], holds=is_print),
    "nothing at all": Case(47, encoded(Image.new("RGBA", (200, 300), (0, 0, 0, 0)), "PNG"), ["blank"]),
    "key colour": Case(47, encoded(Image.new("L", (200, 300), 0), "PNG", transparency=0), ["blank"]),
    "palette": Case(47, encoded(GREY.convert("P"), "PNG"), ["ink"], holds=is_print),
    "CMYK JPEG": Case(47, encoded(GREY.convert("RGB").convert("CMYK"), "JPEG", quality=95), ["ink"], holds=is_print),
    "CMYK TIFF": Case(47, encoded(GREY.convert("RGB").convert("CMYK"), "TIFF"), ["ink"], holds=is_print),
    "Lab TIFF": Case(47, encoded(Image.merge("LAB", [GREY, *[Image.new("L", GREY.size, 128)] * 2]), "TIFF"), ["ink"]),
    "one bit": Case(47, encoded(BILEVEL, "TIFF", compression="group4"), ["ink"], holds=is_print),
    "three frames": Case(48, frames(), ["ink", "Degenerate", "ink"], "1 x 1"),
    "bad frame among good ones": Case(48, frames(bad_first_strip), ["Unreadable", "Degenerate", "ink"], "damaged or truncated"),
    "directory that names itself": Case(48, frames(itself), ["ink"]),
    "directories in a loop": Case(48, frames(round_and_round), ["ink", "Degenerate", "ink"]),
    "directory beyond the end": Case(48, frames(link(0, 0x7FFFFFFF)), ["ink", "Unreadable"]),
    "directory within pixels": Case(48, frames(link(0, 40)), ["ink", "Unreadable"]),
    "TIFF cut at half": Case(48, frames()[: len(frames()) // 2], ["Unreadable"]),
    "blank frame first": Case(
        48, encoded(Image.new("L", (200, 300), 255), "TIFF", save_all=True, append_images=[GREY.copy()]), ["blank", "ink"]
    ),
    "bomb of 196 million": Case(49, lambda path: Image.new("1", (14_000, 14_000), 1).save(path, "PNG"), ["blank"]),
    "bomb of 900 million": Case(49, png_header_bomb(30_000, 30_000), ["TooLarge"], "30000 x 30000 px"),
    "bomb of 2**62": Case(49, png_header_bomb(0x7FFFFFFF, 0x7FFFFFFF), ["TooLarge"], "expected at most"),
    "PNG called jpg": Case(50, encoded(GREY, "PNG"), ["ink"], holds=is_print, file_name="a.jpg"),
    "JPEG called pdf": Case(50, encoded(GREY, "JPEG"), ["ink"], holds=is_print, file_name="b.pdf"),
    "PDF called png": Case(50, b"%PDF-1.4 but no more", ["Unreadable"], file_name="c.png"),
    "PNG of no bytes": Case(50, b"", ["Unreadable"], "found 0 bytes"),
    "PNG cut": Case(50, encoded(NOISE, "PNG")[:5000], ["Unreadable"], "damaged or truncated"),
    "JPEG cut": Case(50, encoded(NOISE, "JPEG")[:5000], ["Unreadable"], "damaged or truncated"),
    "TIFF cut": Case(50, encoded(NOISE, "TIFF")[:5000], ["Unreadable"], "damaged or truncated"),
    "WebP cut": Case(50, encoded(NOISE, "WEBP")[:5000], ["Unreadable"], "damaged or truncated"),
    "animated GIF": Case(50, encoded(GREY, "GIF", save_all=True, append_images=[NOISE]), ["Unreadable"], "not a document"),
    "animated WebP": Case(50, encoded(GREY.convert("RGB"), "WEBP", save_all=True, append_images=[MOVED]), ["ink"]),
}  # fmt: skip


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    return render_all(tmp_path_factory.mktemp("images"), CASES, RenderSettings())


@pytest.mark.parametrize("name", CASES)
def test_strange_image_ends_as_it_must(ended: dict[str, Ended], name: str) -> None:
    check(CASES[name], ended[name])
