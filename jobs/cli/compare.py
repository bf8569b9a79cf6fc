"""Numbers out of the engine, for people who compare it with others: logits, embedding rows, token ids."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pagemill.decoder import ModelError, Refused, Tokenizer, open_file
from pagemill.jobs.errors import InputError, OutputError

if TYPE_CHECKING:
    from pagemill.vision import Precision, VisionSpec


def write_logits(model: Path, tokens: Path, out: Path, *, kv_cache: str, exact: bool, threads: int | None) -> int:
    """Writes (tokens, vocabulary) float32."""
    ids = _load(tokens)
    if ids.ndim != 1 or ids.size == 0 or not np.issubdtype(ids.dtype, np.integer):
        raise InputError(f"{tokens}: expected one dimension of integers, found {ids.dtype} of shape {ids.shape}")
    from pagemill.decoder import logits, open_model
    from pagemill.jobs.run.spec import check_threads

    check_threads(threads)
    opened = open_model(model, kv_cache=kv_cache, exact=exact)
    _save(out, logits(opened, ids.tolist(), kv_cache=kv_cache, threads=threads))
    return 0


def write_embeddings(
    mmproj: Path,
    image: Path | None,
    pixels: Path | None,
    out: Path,
    *,
    precision: Precision,
    multiple_px: int,
    threads: int | None,
) -> int:
    """Writes (rows, width) float32 of an image file, or of pixels that need no preprocessing."""
    if (image is None) == (pixels is None):
        raise InputError("expected an IMAGE or --pixels FILE.npy, found " + ("neither" if image is None else "both"))
    from pagemill.jobs.run.spec import check_threads
    from pagemill.vision import BadPixels, open_encoder, to_patches

    check_threads(threads)
    try:
        encoder = open_encoder(mmproj, precision=precision, threads=threads)
    except Refused as error:
        raise ModelError("\n".join(f"{mmproj}: {reason}" for reason in error.reasons)) from error
    try:
        ready = _prepared(image, encoder.spec, multiple_px) if image is not None else _given(pixels or Path())
        _save(out, encoder.encode(to_patches(ready, encoder.spec)))
    except BadPixels as error:
        raise InputError(f"{image or pixels}: {error}") from error
    finally:
        encoder.close()
    return 0


def print_tokens(model: Path, *, parse_special: bool, as_json: bool) -> int:
    """Prints the ids of standard input."""
    header, _ = open_file(model)
    tokenizer = Tokenizer.from_header(header)
    data = sys.stdin.buffer.read()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"standard input: expected UTF-8, found byte {data[error.start]:#04x} at {error.start}") from error
    ids = tokenizer.encode(text, parse_special=parse_special)
    print(json.dumps(ids) if as_json else "\n".join(map(str, ids)))
    return 0


def _prepared(path: Path, spec: VisionSpec, multiple_px: int) -> NDArray[np.float32]:
    from PIL import Image, UnidentifiedImageError

    from pagemill.pipeline import to_rgb
    from pagemill.vision import prepare

    try:
        with Image.open(path) as image:
            return prepare(to_rgb(image), spec, multiple_px)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path of the image") from None
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise InputError(f"{path}: expected an image, found: {error}") from error


def _given(path: Path) -> NDArray[np.float32]:
    pixels = _load(path)
    if pixels.ndim != 3 or pixels.shape[0] != 3 or pixels.dtype != np.float32:
        raise InputError(f"{path}: expected (3, height, width) float32, found {pixels.dtype} of shape {pixels.shape}")
    return pixels


def _load(path: Path) -> NDArray[Any]:
    try:
        array = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path") from None
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path}: expected a .npy file, found: {error}") from error
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path}: expected a .npy file of one array, found an archive of arrays")
    return array


def _save(path: Path, array: NDArray[np.float32]) -> None:
    try:
        with path.open("wb") as file:  # np.save would add a suffix to the name
            np.save(file, array)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror or error}; choose another file with --out") from error
