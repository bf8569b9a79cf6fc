"""Output names: one for each input, the same in every run, never another's.

A folder's tree is mirrored.  Names are equal when a file system that folds case or Unicode forms would think so; the later
one then keeps its suffix (x.png), and if that is taken too, gets a hash.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import PurePath

LONGEST_BYTES = 200  # leaves room for ".markdown.part" within the usual 255
_UNSAFE = re.compile(r'[\x00-\x1f\x7f<>:"|?*\\]|[. ]+$|^[- ]')


def name_key(name: str) -> str:
    """Equal for two names that one file system may take for the same."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def choose_name(relative: PurePath, source: str, is_free: Callable[[str], bool]) -> str:
    """The first free name for a document at ``relative`` below its input folder; ``source`` is its absolute path."""
    return next(name for name in _candidates(relative, source) if is_free(name))


def _candidates(relative: PurePath, source: str) -> Iterator[str]:
    yield _safe(relative.with_suffix("") if relative.suffix else relative)
    yield _safe(relative)
    digest = hashlib.sha256(source.encode("utf-8", "surrogateescape")).hexdigest()
    for length in range(8, len(digest) + 1):
        yield _safe(relative.with_name(f"{_short(relative.name, LONGEST_BYTES - length - 1)}-{digest[:length]}"))


def _safe(path: PurePath) -> str:
    """A relative path that every file system takes."""
    return "/".join(_safe_part(part) for part in path.parts)


def _safe_part(part: str) -> str:
    text = _UNSAFE.sub("_", part.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
    if len(text.encode("utf-8")) <= LONGEST_BYTES:
        return text or "_"
    digest = hashlib.sha256(part.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{_short(text, LONGEST_BYTES - 9)}-{digest}"


def _short(text: str, limit_bytes: int) -> str:
    return text.encode("utf-8", "replace")[:limit_bytes].decode("utf-8", "ignore")
