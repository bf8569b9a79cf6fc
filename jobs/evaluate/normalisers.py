"""What a measurement may ignore on request.  Without any, every character counts, line breaks too.

Each is applied to truth and output alike, in the order of NORMALISERS, whatever the order they are asked for in.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence

from pagemill.jobs.errors import ConfigError
from pagemill.pipeline import to_plain_text

_QUOTES = str.maketrans("‘’‚‛′“”„‟″«»", "'" * 5 + '"' * 7)
_DASHES = str.maketrans(dict.fromkeys("‐‑‒–—―−﹣－", "-"))
_LIGATURES = {"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st", "ſ": "s"}
_HYPHENATED = re.compile(r"(?<=\w)[-¬\xad]\n\s*(?=[^\W\d_])")

NORMALISERS: dict[str, Callable[[str], str]] = {
    "markdown": to_plain_text,
    "nfc": lambda text: unicodedata.normalize("NFC", text),
    "nfkc": lambda text: unicodedata.normalize("NFKC", text),
    "ligatures": lambda text: "".join(_LIGATURES.get(letter, letter) for letter in text),
    "quotes": lambda text: text.translate(_QUOTES),
    "dashes": lambda text: text.translate(_DASHES),
    "hyphens": lambda text: _HYPHENATED.sub("", text),
    "accents": lambda text: "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c)),
    "case": str.casefold,
    "punctuation": lambda text: "".join(c for c in text if not unicodedata.category(c).startswith("P")),
    "lines": lambda text: re.sub(r"\s*\n\s*", " ", text.strip("\n")),
    "whitespace": lambda text: re.sub(r"[^\S\n]+", " ", re.sub(r" *\n\s*", "\n", text)).strip(),
}

#: What each overlooks, for ``--help``.
MEANINGS: dict[str, str] = {
    "markdown": "marks of headings, lists, tables and emphasis",
    "nfc": "how accented letters are composed",
    "nfkc": "forms of compatible characters, such as full width",
    "ligatures": "ligatures and the long s",
    "quotes": "the shape of quotation marks",
    "dashes": "the shape of dashes",
    "hyphens": "words divided at the end of a line",
    "accents": "accents",
    "case": "upper and lower case",
    "punctuation": "punctuation",
    "lines": "where lines end",
    "whitespace": "how wide gaps are, and empty lines",
}


def normaliser(names: Sequence[str]) -> Callable[[str], str]:
    """One function for these names.  Raises ConfigError for a name that is none."""
    unknown = [name for name in names if name not in NORMALISERS]
    if unknown:
        raise ConfigError([f"--normalise: expected any of {', '.join(NORMALISERS)}, found {', '.join(map(repr, unknown))}"])
    steps = [step for name, step in NORMALISERS.items() if name in names]

    def normalise(text: str) -> str:
        for step in steps:
            text = step(text)
        return text.strip("\n")

    return normalise
