"""``pagemill encode-image``: the embedding rows of an image, for people who compare encoders."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from pagemill.decoder import ModelError, Refused
from pagemill.jobs.cli.arrays import load_array, save_array
from pagemill.jobs.cli.options import EncoderPrecision, Threads
from pagemill.jobs.errors import InputError
from pagemill.jobs.run.spec import check_threads
from pagemill.pipeline import to_rgb
from pagemill.vision import BadPixels, VisionSpec, open_encoder, prepare, to_patches


@dataclass(frozen=True, slots=True)
class EncodeOptions:
    """How an image is encoded, and where its rows go."""

    out: Annotated[Path, typer.Option(help="Where to write the rows: (rows, width) float32 .npy.")] = Path("embeddings.npy")
    pixels: Annotated[
        Path | None, typer.Option(help="A (3, H, W) float32 .npy that replaces preprocessing.", show_default=False)
    ] = None
    precision: Annotated[EncoderPrecision, typer.Option(help="Of matrix products.")] = EncoderPrecision.AUTO
    multiple_px: Annotated[int, typer.Option(help="Both sides become a multiple of it: 28 or 14.")] = 28
    threads: Threads = None


def command(
    mmproj: Annotated[Path, typer.Argument(metavar="MMPROJ.gguf", help="The vision encoder.", show_default=False)],
    image: Annotated[
        Path | None, typer.Argument(metavar="[IMAGE]", help="Needed unless --pixels is given.", show_default=False)
    ] = None,
    *,
    options: EncodeOptions,
) -> int:
    """``pagemill encode-image``."""
    if (image is None) == (options.pixels is None):
        raise InputError("expected an IMAGE or --pixels FILE.npy, found " + ("neither" if image is None else "both"))
    check_threads(options.threads)
    try:
        encoder = open_encoder(mmproj, precision=options.precision.value, threads=options.threads)
    except Refused as error:
        raise ModelError("\n".join(f"{mmproj}: {reason}" for reason in error.reasons)) from error
    try:
        ready = _prepared(image, encoder.spec, options.multiple_px) if image is not None else _given(options.pixels or Path())
        save_array(options.out, encoder.encode(to_patches(ready, encoder.spec)))
    except BadPixels as error:
        raise InputError(f"{image or options.pixels}: {error}") from error
    finally:
        encoder.close()
    return 0


def _prepared(path: Path, spec: VisionSpec, multiple_px: int) -> NDArray[np.float32]:
    try:
        with Image.open(path) as image:
            return prepare(to_rgb(image), spec, multiple_px)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path of the image") from None
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise InputError(f"{path}: expected an image, found: {error}") from error


def _given(path: Path) -> NDArray[np.float32]:
    pixels = load_array(path)
    if pixels.ndim != 3 or pixels.shape[0] != 3 or pixels.dtype != np.float32:
        raise InputError(f"{path}: expected (3, height, width) float32, found {pixels.dtype} of shape {pixels.shape}")
    return pixels
