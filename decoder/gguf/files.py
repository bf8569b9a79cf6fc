"""Opens GGUF files: the only place where decoder reads a model from disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pagemill.decoder.errors import ModelError, NotGguf
from pagemill.decoder.gguf.parse import Header, parse_header


def open_file(path: str | Path) -> tuple[Header, NDArray[np.uint8]]:
    """Maps a GGUF file and parses its header.

    Returns the header and the whole file as a read-only memory map, (file_bytes,) uint8; pages are read when touched, and the
    map lives as long as a view of it.  The file must not shrink meanwhile.

    Raises ModelError when the file cannot be read and NotGguf when it is no GGUF file; both name the path.
    """
    path = Path(path)
    try:
        empty = path.stat().st_size == 0
        data = np.zeros(0, np.uint8) if empty else np.memmap(path, np.uint8, mode="r")
    except IsADirectoryError:
        raise ModelError(f"{path}: expected a .gguf file, found a folder; give the file in it") from None
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file; check the path of the model") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror or error}); check its permissions") from error
    try:
        return parse_header(data), data
    except NotGguf as error:
        raise NotGguf(f"{path}: {error}") from None
