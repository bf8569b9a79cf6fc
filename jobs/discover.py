"""From inputs to pages: which files, what they hold, and under which name their text is written.

A file that is not there is an InputError before any work; a file that is no document becomes one failed page, so that the
count of what went in equals the count of what comes out.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath

from jobs.errors import InputError
from jobs.identity import hash_file
from pipeline.errors import PageError, TooLarge, Unreadable

SUFFIXES = frozenset({".pdf", ".png", ".jpg", ".jpeg", ".jpe", ".webp", ".tif", ".tiff"})


CountPages = Callable[[Path], int]
"""How many pages a document has; raises PageError when it is none."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file to read.  relative: its place below the input that named it, the model of its output's name."""

    path: Path
    relative: PurePath

    @property
    def source(self) -> str:
        """The file as the ledger calls it: its absolute path."""
        return os.path.abspath(self.path).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


@dataclass(frozen=True, slots=True)
class Document:
    """A file and what it holds.  error: why it has no pages; it then counts as one, which fails."""

    found: Found
    content_hash: str
    pages: int
    error: PageError | None = None


def find_files(inputs: Iterable[Path]) -> list[Found]:
    """The files that inputs name, folders walked in the order of names.  Raises InputError."""
    found: dict[str, Found] = {}
    missing = []
    for path in inputs:
        if path.is_dir():
            files: Iterable[Found] = _walk(path)
        elif path.exists():
            files = [Found(path, PurePath(path.name))]
        else:
            missing.append(str(path))
            continue
        for file in files:
            found.setdefault(file.source, file)
    if missing:
        raise InputError(f"expected a file or a folder, found nothing at: {', '.join(missing)}; check the spelling")
    if not found:
        raise InputError(f"expected documents to read, found none; name files, or folders with {' '.join(sorted(SUFFIXES))}")
    return list(found.values())


def open_documents(files: Iterable[Found], count_pages: CountPages, max_pages: int) -> Iterator[Document]:
    """Each file hashed and its pages counted; a bad one carries its error."""
    for file in files:
        try:
            content_hash = hash_file(file.path)
        except OSError as error:
            unreadable = Unreadable(f"the file cannot be read: {error.strerror or error}; check its rights")
            yield Document(file, hashlib.sha256(file.source.encode("utf-8")).hexdigest(), 1, unreadable)
            continue
        try:
            pages = count_pages(file.path)
        except PageError as error:
            yield Document(file, content_hash, 1, error)
            continue
        if pages > max_pages:
            many = TooLarge(f"expected at most {max_pages} pages, found {pages}; split it, or raise input.max_pages")
            yield Document(file, content_hash, 1, many)
        else:
            yield Document(file, content_hash, pages)


def _walk(folder: Path) -> Iterator[Found]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(parent, name)
            if not name.startswith((".", "~$")) and path.suffix.lower() in SUFFIXES:
                yield Found(path, path.relative_to(folder))
