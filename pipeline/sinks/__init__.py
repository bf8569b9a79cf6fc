"""Outputs: one file each, one row in ``SINKS``.

A sink is a pure function of a document's pages, in page order; ``write_document`` puts its bytes on the disk.  Sinks add
nothing that differs between two runs, so equal pages give equal files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from pipeline.durable import write_durably
from pipeline.page import PageText
from pipeline.sinks.jsonl import JsonlSink
from pipeline.sinks.markdown import MarkdownSink
from pipeline.sinks.text import TextSink

__all__ = ["SINKS", "Sink", "write_document"]


class Sink(Protocol):
    """One kind of output file."""

    suffix: str

    def render(self, document: str, pages: Sequence[PageText]) -> bytes:
        """The file's content.  document: its name as readers know it.  pages: every page, in order, whatever its status."""


SINKS: Mapping[str, Sink] = {
    "text": TextSink(),
    "markdown": MarkdownSink(),
    "jsonl": JsonlSink(),
}


def write_document(folder: Path, name: str, document: str, pages: Sequence[PageText], formats: Iterable[str]) -> list[Path]:
    """Write one file a format, ``folder/name`` and the sink's suffix, each whole and durable.  Returns their paths.

    name: from ``names.output_names``; may contain folders.
    """
    paths = []
    for sink in (SINKS[one] for one in formats):
        path = folder / (name + sink.suffix)
        write_durably(path, sink.render(document, pages))
        paths.append(path)
    return paths
