"""What sinks know of the document, and the files that they may refer to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pagemill.pipeline.documents.content import Content

Scope = Literal["any", "page", "document"]


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file as it was written.  name: its path below the output folder, with "/".

    format, media_type: of its sink; page: 0-based, None for the whole document; not known of files of earlier runs.
    """

    name: str
    sha256: str
    size_bytes: int
    format: str = ""
    page: int | None = None
    media_type: str = ""


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """The original.  label: its name as readers know it.  content_hash: sha256.  pages: how many it has.

    content: only the searchable PDF reads it.  password: of an encrypted PDF.  name: of its outputs, without suffix.
    files: the other outputs, for the one that lists them.
    """

    label: str
    content: Content
    content_hash: str
    pages: int
    password: str | None = None
    name: str = ""
    files: tuple[OutputFile, ...] = ()
