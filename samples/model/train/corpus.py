"""Free English text from Debian packages; the renderers draw paragraphs and words from it.

Packages: bible-kjv (King James Bible, public domain), python3.11-doc (PSF licence), wamerican (word list, public domain).
Refuses to go on when a package is missing, since another text would be another training set.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

WORDS = Path("/usr/share/dict/words")
PYTHON_DOCS = Path("/usr/share/doc/python3.11/html/_sources")
PRINTABLE = range(32, 127)
HELD_OUT_ONE_IN = 50
VERSES_A_PARAGRAPH = 3
SHORTEST_PARAGRAPH = 60
PLAIN = str.maketrans(
    {"\u2019": "'", "\u2018": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": "--", "\u2026": "...", "\u00a0": " "}
)


@dataclass(frozen=True, slots=True)
class Corpus:
    """Paragraphs to train on, paragraphs never trained on, and single words for both."""

    train: tuple[str, ...]
    held_out: tuple[str, ...]
    words: tuple[str, ...]


def load_corpus(cache: Path | None = None) -> Corpus:
    """Read the packages, or the copy that an earlier call left at `cache`."""
    if cache is not None and cache.exists():
        return Corpus(**{name: tuple(texts) for name, texts in json.loads(cache.read_text()).items()})
    corpus = read_packages()
    if cache is not None:
        cache.parent.mkdir(parents=True, exist_ok=True)
        part = cache.with_suffix(".part")
        part.write_text(json.dumps({"train": corpus.train, "held_out": corpus.held_out, "words": corpus.words}))
        part.replace(cache)
    return corpus


def read_packages() -> Corpus:
    """Collect, clean, deduplicate and split by each paragraph's hash, so that the split never depends on order."""
    paragraphs = sorted({*python_paragraphs(), *bible_paragraphs()})
    Random(0).shuffle(paragraphs)
    return Corpus(
        train=tuple(text for text in paragraphs if not is_held_out(text)),
        held_out=tuple(text for text in paragraphs if is_held_out(text)),
        words=tuple(word for word in read_lines(WORDS, "wamerican") if word and is_plain(word)),
    )


def is_held_out(paragraph: str) -> bool:
    """Whether a paragraph is for tests only."""
    return int(hashlib.md5(paragraph.encode(), usedforsecurity=False).hexdigest(), 16) % HELD_OUT_ONE_IN == 0


def is_plain(text: str) -> bool:
    """Whether every character is printable ASCII."""
    return all(ord(character) in PRINTABLE for character in text)


def bible_paragraphs() -> Iterator[str]:
    """Three verses each."""
    try:
        printed = subprocess.run(
            ["bible", "-f", "Gen1:1-Rev22:21"], capture_output=True, text=True, check=True, timeout=120
        ).stdout
    except FileNotFoundError as error:
        raise SystemExit("program `bible` not found, the training text needs it: apt-get install bible-kjv") from error
    verses = []
    for line in printed.split("\n"):
        found = re.match(r"^\S+?\d+:\d+ (.*)", line.strip())
        verse = clean(found.group(1).replace("[", "").replace("]", "")) if found else None
        if verse:
            verses.append(verse)
    for first in range(0, len(verses), VERSES_A_PARAGRAPH):
        yield " ".join(verses[first : first + VERSES_A_PARAGRAPH])


def python_paragraphs() -> Iterator[str]:
    """Running text of the Python documentation: no code, no tables, no markup."""
    pages = sorted(PYTHON_DOCS.rglob("*.rst.txt"))
    if not pages:
        raise SystemExit(f"no *.rst.txt under {PYTHON_DOCS}, the training text needs them: apt-get install python3.11-doc")
    for page in pages:
        for block in re.split(r"\n\s*\n", page.read_text(errors="ignore")):
            if block.lstrip().startswith("..") or any(mark in block for mark in ("::", ">>>", "+--", "===", "---")):
                continue
            text = clean(without_markup(block))
            if text and len(text) > SHORTEST_PARAGRAPH and text[0].isalpha():
                yield text


def without_markup(block: str) -> str:
    """reStructuredText's roles, literals, emphasis and links, reduced to the words that a reader sees."""
    block = re.sub(r":[a-zA-Z:]+:`([^`]*)`", lambda role: re.sub(r"\s*<[^>]*>", "", role.group(1)).lstrip("~!"), block)
    block = re.sub(r"``([^`]*)``", r"\1", block)
    block = re.sub(r"\*\*?([^*]+)\*\*?", r"\1", block)
    return re.sub(r"`([^`<]*)[^`]*`_*", r"\1", block)


def clean(text: str) -> str | None:
    """One line of printable ASCII, or None where a character has no ASCII form."""
    text = re.sub(r"\s+", " ", text.translate(PLAIN)).strip()
    return text if is_plain(text) else None


def read_lines(path: Path, package: str) -> list[str]:
    """Lines of a package's file, without line ends."""
    if not path.exists():
        raise SystemExit(f"{path} not found, the training text needs it: apt-get install {package}")
    return path.read_text(errors="ignore").splitlines()
