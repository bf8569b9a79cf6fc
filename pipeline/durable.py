"""A file that is whole or absent, and on the disk when the call returns: write to temp, fsync, rename, fsync the folder."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

if sys.platform == "darwin":
    from fcntl import F_FULLFSYNC, fcntl

TEMP_SUFFIX = ".pagemill-temp"


def write_durably(path: Path, content: bytes) -> None:
    """Replace or create ``path``.  Makes missing folders.  One writer a path at a time: the temp name is fixed, so that a
    killed writer leaves at most one temp file, which the next one replaces."""
    _make_folder(path.parent)
    temp = temp_path(path)
    with temp.open("wb") as file:
        file.write(content)
        file.flush()
        _sync(file.fileno())
    temp.replace(path)
    _sync_folder(path.parent)


def temp_path(path: Path) -> Path:
    """The temporary name beside ``path``; hidden, and short however long the name is."""
    return path.with_name("." + hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16] + TEMP_SUFFIX)


def _make_folder(folder: Path) -> None:
    """Make a folder and its parents, each durable in its own parent."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync(descriptor: int) -> None:
    """On macOS, fsync leaves the data in the drive's cache; its own call does not."""
    if sys.platform == "darwin":
        fcntl(descriptor, F_FULLFSYNC)
    else:
        os.fsync(descriptor)
