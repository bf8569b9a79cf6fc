"""What a sink is told of the document, and the files that it may refer to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Scope = Literal["any", "page", "document"]


@dataclass(frozen=True, slots=True)
class OutputFile:
    """An output that has been made.  name: relative to the output folder.  page: 0-based, None for the whole document."""

    format: str
    name: str
    page: int | None
    media_type: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """The original.  label: its name as readers know it.  content_hash: sha256.  pages: how many it has.

    path: only the searchable PDF reads it.  password: of an encrypted PDF.  name: of its outputs, without suffix.
    files: the other outputs, for the one that lists them.
    """

    label: str
    path: Path
    content_hash: str
    pages: int
    password: str | None = None
    name: str = ""
    files: tuple[OutputFile, ...] = ()
