"""What can go wrong between a GGUF file and its tokens.

ModelError
├── NotGguf        the bytes are not a GGUF file, or a truncated or lying one
├── Refused        a GGUF file that this engine cannot run; carries every reason
└── ContextFull    a prompt that does not fit the context
"""

from __future__ import annotations

from collections.abc import Sequence


class ModelError(Exception):
    """A model file or a prompt that cannot be used; the message says what, expected, found and what to do."""


class NotGguf(ModelError):
    """The bytes are not a whole, well-formed GGUF v2 or v3 file."""


class Refused(ModelError):
    """A well-formed file that this engine cannot run.  ``reasons`` holds every reason, not the first."""

    def __init__(self, what: str, reasons: Sequence[str]) -> None:
        self.reasons = tuple(reasons)
        super().__init__(f"{what}: " + "; ".join(self.reasons))


class ContextFull(ModelError):
    """A prompt and its continuation need more positions than the context has."""
