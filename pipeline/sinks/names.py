"""What each input's outputs are called: mirrored names, and no two alike on any file system.

Pure: the names follow from the inputs alone, not from their order or from what lies in the output folder.
"""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path, PurePath

NAME_BYTES = 200  # of the 255 that file systems allow; the rest is for suffixes
HASH_DIGITS = 8
EXTENSIONS = frozenset({".pdf", ".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff"})
SUFFIXES = (".txt", ".md", ".html", ".jsonl", ".dolma.jsonl", ".hocr", ".alto.xml", ".page.xml", ".searchable.pdf", ".mets.xml")


def output_names(inputs: Mapping[Path, PurePath], suffixes: Collection[str] = SUFFIXES) -> dict[Path, str]:
    """input -> its output's name without the sink's suffix, relative to the output folder, with "/" between folders.

    inputs: each input's path -> where it lies in the mirrored tree (its bare name for a single file).
    ``a/scan.pdf`` becomes ``a/scan``.  All inputs that would share a name, also by letter case or by composed and decomposed
    accents, keep their extension (``scan.pdf``, ``scan.png``); those still alike get a hash of the input's path as well.
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


def _clashing(names: Mapping[Path, str], suffixes: Collection[str]) -> set[Path]:
    """The inputs whose name another one has too, or whose output file would stand where another needs a folder."""
    keys = {source: _key(name) for source, name in names.items()}
    counts = Counter(keys.values())
    folders = {"/".join(parts[:depth]) for parts in (key.split("/") for key in keys.values()) for depth in range(1, len(parts))}
    return {
        source for source, key in keys.items() if counts[key] > 1 or any(_key(key + suffix) in folders for suffix in suffixes)
    }


def _key(name: str) -> str:
    """Equal for names that some file system takes for the same."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _clean(place: PurePath) -> str:
    """The mirrored path with control characters replaced and long parts shortened."""
    if place.is_absolute() or ".." in place.parts or not place.name:
        raise ValueError(f"expected a path inside the output folder, found {str(place)!r}")
    return "/".join(
        _short("".join("_" if ord(letter) < 32 or ord(letter) == 127 else letter for letter in part)) for part in place.parts
    )


def _short(part: str) -> str:
    """A name of at most NAME_BYTES; a longer one keeps its beginning and gets a hash of the whole."""
    if len(os.fsencode(part)) <= NAME_BYTES:
        return part
    kept = part
    while len(os.fsencode(kept)) > NAME_BYTES - HASH_DIGITS - 1:
        kept = kept[:-1]
    return f"{kept}-{_digest(os.fsencode(part))}"


def _hashed(name: str, source: Path) -> str:
    """The name and a hash of the input's path."""
    return f"{name}-{_digest(os.fsencode(source))}"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:HASH_DIGITS]
