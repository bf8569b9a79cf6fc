"""What can go wrong between a page's pixels and its embedding rows (a model file's faults are ``decoder.errors``).

ValueError
└── BadPixels      pixels or patches of a shape that the encoder cannot take
ArithmeticError
└── BrokenRows     embedding rows that are not numbers
"""

from __future__ import annotations


class BadPixels(ValueError):
    """Pixels or patches that do not have the encoder's shape; the message says what, expected and found."""


class BrokenRows(ArithmeticError):
    """A page's embedding rows hold NaN or infinity: no text can come of them."""
