"""Repacked weights on disk, so that a warm start maps them instead of repacking: one file a model, written once.

A store is bound to the model file's path, size and time of change and to the layout of panels; whatever does not fit is as if
it were not there.  Several processes may write the same store: each writes a file of its own and renames it.  A folder that
cannot be written costs time, never correctness.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np

from pagemill.decoder.kernels.compile import cache_folder
from pagemill.decoder.kernels.layouts import LAYOUTS
from pagemill.decoder.kernels.memory import ALIGNMENT_BYTES, Array
from pagemill.decoder.weights.panels import Panels

VERSION = 2  # raised whenever ``decoder.weights.panels`` orders weights anew; the sizes of layouts are part of a store's name
MAGIC = b"pagemill panels\n"
SUFFIX = ".panels"


class PanelStore:
    """Panels by name.  ``panels`` gives a stored one or makes it; ``save`` writes them all where any was made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stored = _read(path)
        self._made: dict[str, Panels] = {}

    def panels(self, name: str, make: Callable[[], Panels]) -> Panels:
        """The panels called ``name``.  Safe to call from several threads for different names."""
        found = self._stored.get(name)
        if found is None:
            found = self._made[name] = make()
        return found

    def save(self) -> None:
        """Write what is not there yet, and drop stores of earlier states of the same model file; failing is harmless."""
        if not self._made:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.path.parent, prefix="writing-")
        except OSError:
            return
        try:
            with os.fdopen(handle, "wb") as file:
                _write(file, dict(sorted({**self._stored, **self._made}.items())))
            os.replace(temporary, self.path)
            for old in self.path.parent.glob(f"{self.path.name.split('-')[0]}-*{SUFFIX}"):
                if old != self.path:
                    old.unlink()
        except OSError:
            Path(temporary).unlink(missing_ok=True)


def open_panel_store(model: Path, variant: str) -> PanelStore:
    """The store of a model file in the cache folder; see ``store_path``."""
    return PanelStore(store_path(model, cache_folder(), variant))


def store_path(model: Path, folder: Path, variant: str) -> Path:
    """The path of a model file's store.  variant: what else decides the panels, such as exactness."""
    place, facts = model.resolve(), model.stat()
    layouts = [(name, layout.group_bytes(1 << 12)) for name, layout in sorted(LAYOUTS.items())]
    identity = repr((VERSION, str(place), facts.st_size, facts.st_mtime_ns, variant, layouts))
    digests = [hashlib.sha256(text.encode()).hexdigest()[:24] for text in (f"{place} {variant}", identity)]
    return folder / "panels" / f"{'-'.join(digests)}{SUFFIX}"


def _write(file: IO[bytes], panels: dict[str, Panels]) -> None:
    """Magic, the length of the index, the index, then each panel's bytes at an aligned offset behind it."""
    index, offset = {}, 0
    for name, panel in panels.items():
        index[name] = (panel.format, panel.rows, panel.width, panel.groups, panel.group_bytes, offset)
        offset += -(-panel.data.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    text = json.dumps({"bytes": offset, "panels": index}).encode()
    text += b" " * (-(len(MAGIC) + 8 + len(text)) % ALIGNMENT_BYTES)
    file.write(MAGIC + len(text).to_bytes(8, "little") + text)
    for panel in panels.values():
        file.write(panel.data.data)
        file.write(b"\0" * (-panel.data.nbytes % ALIGNMENT_BYTES))


def _read(path: Path) -> dict[str, Panels]:
    """The store's panels, mapped; empty where there is none or it is not whole."""
    try:
        data: Array = np.memmap(path, np.uint8, "r")
        start = len(MAGIC) + 8
        if bytes(data[: len(MAGIC)]) != MAGIC:
            return {}
        length = int.from_bytes(bytes(data[len(MAGIC) : start]), "little")
        index = json.loads(bytes(data[start : start + length]))
        body = data[start + length :]
        if len(body) != index["bytes"]:
            return {}
        return {name: _panel(body, *facts) for name, facts in index["panels"].items()}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _panel(body: Array, format: str, rows: int, width: int, groups: int, group_bytes: int, offset: int) -> Panels:
    data = np.asarray(body[offset : offset + groups * group_bytes]).reshape(groups, group_bytes)
    return Panels(format, rows, width, data)
