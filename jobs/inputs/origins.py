"""Inputs that are not files of this machine: addresses, and members of archives.  Each can be brought into a local file.

``discover`` finds them, ``input_cache`` keeps a bounded number of them here while a job runs.
"""

from __future__ import annotations

from typing import BinaryIO, Protocol

from pagemill.pipeline import TooLarge

CHUNK_BYTES = 1 << 20


class Origin(Protocol):
    """Where a document comes from."""

    @property
    def label(self) -> str:
        """As people know it, without credentials; unique among a job's inputs, and its name in the ledger."""

    @property
    def file_name(self) -> str:
        """The last part of its name."""

    def fetch(self, target: BinaryIO, limit_bytes: int) -> None:
        """Write the content.  Raises PageError."""


def copy_bounded(source: BinaryIO, target: BinaryIO, limit_bytes: int) -> int:
    """Copy to the end, whatever the source claimed to hold.  Returns the bytes; raises TooLarge beyond the limit."""
    copied = 0
    while chunk := source.read(CHUNK_BYTES):
        copied += len(chunk)
        if copied > limit_bytes:
            raise TooLarge(f"file has more than {limit_bytes} bytes: raise input.cache_bytes if it is no bomb")
        target.write(chunk)
    return copied


def printable(text: str) -> str:
    """Text that a database and a terminal take: bytes that are no UTF-8 as backslash escapes."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
