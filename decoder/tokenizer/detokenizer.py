"""Token ids to text as they arrive, never half a character.

Made by ``Tokenizer.detokenizer``; called by whoever shows text while it is generated.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable


class Detokenizer:
    """Text of a growing sequence of tokens: all pushes and the flush together are ``Tokenizer.decode`` of the sequence.

    The bytes of an unfinished character are held back until it is whole, or until flush() shows them as U+FFFD.
    """

    def __init__(self, piece: Callable[[int], bytes], *, strip_space: bool) -> None:
        """piece: a token's bytes.  strip_space: the first token's leading space was never in the text."""
        self._piece = piece
        self._strip_space = strip_space
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """The characters that this token completes."""
        piece = self._piece(token_id)
        if self._strip_space:
            piece = piece.removeprefix(b" ")
            self._strip_space = False
        return self._characters.decode(piece)

    def flush(self) -> str:
        """What is held back, as U+FFFD; nothing may be pushed after it."""
        return self._characters.decode(b"", final=True)
