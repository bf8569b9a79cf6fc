"""What each input's outputs are called: mirrored names, and no two alike on any file system.

Pure: the names follow from the inputs alone, not from their order or from what lies in the output folder.
"""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import PurePath
from typing import TypeVar

NAME_BYTES = 200  # of the 255 that file systems allow; the rest is for suffixes
HASH_DIGITS = 8
OWN_FOLDER = ".pagemill"  # below the output folder, no output: its owner keeps its state there
EXTENSIONS = frozenset({".pdf", ".png", ".jpg", ".jpeg", ".jpe", ".webp", ".tif", ".tiff"})

Source = TypeVar("Source", bound=str | os.PathLike[str])


def output_names(inputs: Mapping[Source, PurePath], suffixes: Collection[str]) -> dict[Source, str]:
    """input -> its output's name without the sink's suffix, relative to the output folder, with "/" between folders.

    inputs: each input's path or address -> where it lies in the mirrored tree (its bare name for a single file).
    suffixes: that an output may have.
    ``a/scan.pdf`` becomes ``a/scan``.  All inputs that would share a name, also by letter case or by composed and decomposed
    accents, keep their extension (``scan.pdf``, ``scan.png``); those still alike get a hash of where they lie as well.
    """
    names = {
        source: _clean(place.with_suffix("") if place.suffix.lower() in EXTENSIONS else place)
        for source, place in inputs.items()
    }
    whole = {source: _clean(place) for source, place in inputs.items()}
    for longer in (whole, {source: _hashed(name, source) for source, name in whole.items()}):
        clashing = _clashing(names, suffixes)
        names = {source: longer[source] if source in clashing else name for source, name in names.items()}
    return names


def name_key(name: str) -> str:
    """Equal for names that some file system takes for the same."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _clashing(names: Mapping[Source, str], suffixes: Collection[str]) -> set[Source]:
    """The inputs whose name another one has too, or whose output file would stand where another needs a folder."""
    keys = {source: name_key(name) for source, name in names.items()}
    counts = Counter(keys.values())
    folders = {"/".join(parts[:depth]) for parts in (key.split("/") for key in keys.values()) for depth in range(1, len(parts))}
    return {
        source
        for source, key in keys.items()
        if counts[key] > 1 or any(name_key(key + suffix) in folders for suffix in suffixes)
    }


def _clean(place: PurePath) -> str:
    """The mirrored path with what file systems, shells and shares stumble over replaced, and long parts shortened."""
    if place.is_absolute() or ".." in place.parts or not place.name:
        raise ValueError(f"expected a path inside the output folder, found {str(place)!r}")
    *folders, name = ("".join(map(_plain, part)) for part in place.parts)
    parts = [*(folder[:-1] + "_" if folder.endswith((" ", ".")) else folder for folder in folders), name]
    if name_key(parts[0]) == OWN_FOLDER:
        parts[0] = "_" + parts[0]
    return "/".join(map(_short, parts))


def _plain(letter: str) -> str:
    """A letter as it is; "_" for a control character, %FF for a byte that is no UTF-8."""
    if "\udc80" <= letter <= "\udcff":
        return f"%{ord(letter) - 0xDC00:02X}"
    return "_" if unicodedata.category(letter) in ("Cc", "Cs") else letter


def _short(part: str) -> str:
    """A name of at most NAME_BYTES; a longer one keeps its beginning and gets a hash of the whole."""
    if len(os.fsencode(part)) <= NAME_BYTES:
        return part
    kept = part
    while len(os.fsencode(kept)) > NAME_BYTES - HASH_DIGITS - 1:
        kept = kept[:-1]
    return f"{kept}-{_digest(os.fsencode(part))}"


def _hashed(name: str, source: Source) -> str:
    """The name and a hash of where the input lies."""
    return f"{name}-{_digest(os.fsencode(source))}"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:HASH_DIGITS]
