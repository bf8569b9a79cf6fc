"""Arrays in .npy files, with errors that say what was expected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pagemill.jobs.errors import InputError, OutputError


def load_array(path: Path) -> NDArray[Any]:
    """The one array of a file.  Raises InputError."""
    try:
        array = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path") from None
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path}: expected a .npy file, found: {error}") from error
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path}: expected a .npy file of one array, found an archive of arrays")
    return array


def save_array(path: Path, array: NDArray[np.float32]) -> None:
    """Write an array under exactly this name.  Raises OutputError."""
    try:
        with path.open("wb") as file:  # np.save would add a suffix to the name
            np.save(file, array)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror or error}; choose another file with --out") from error
