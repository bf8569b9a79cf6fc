"""A document's content: in a file, or in memory, as a server or another machine hands it over."""

from __future__ import annotations

import hashlib
from io import BufferedReader, BytesIO
from pathlib import Path

Content = Path | bytes


def open_content(content: Content) -> BytesIO | BufferedReader:
    """A file object of the content.  Raises OSError."""
    return BytesIO(content) if isinstance(content, bytes) else content.open("rb")


def size_of(content: Content) -> int:
    """How many bytes it has.  Raises OSError."""
    return len(content) if isinstance(content, bytes) else content.stat().st_size


def hash_content(content: Content) -> str:
    """sha256 of the content, hexadecimal: the identity of a document, whatever its name.  Raises OSError."""
    with open_content(content) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
