"""Where a page's text stands: blocks and their boxes where the model named them, one block otherwise.

A grounding model writes ``![label](x1,y1,x2,y2) text`` with thousandths of the page's sides; a block runs to the next marker.
Outputs with coordinates ask for blocks, the others for the text without markers.  Boxes are of the page as it was read;
``placed`` says where they stand on the page as it is, when it had to be turned to be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pagemill.pipeline.page import PageText
from pagemill.pipeline.reading.postprocess import to_plain_text

LABELS = frozenset(
    {"text", "title", "section", "list", "caption", "footnote", "aside_text", "header", "footer", "page_number", "table"}
    | {"chart", "formula", "code", "image"}
)
CONTINUED = "text+"  # a paragraph that goes on from another block
WHOLE_PAGE = "page"  # the label of a page's only block where the model named none
THOUSAND = 1000
LOOK_AHEAD_WORDS = 24  # how many words of Markdown, marks and markers among them, may be missing from plain text

_MARKER = re.compile(r"^!\[([a-z_]+\+?)\]\((\d{1,4}), ?(\d{1,4}), ?(\d{1,4}), ?(\d{1,4})\)[ \t]*", re.MULTILINE)
_MARKS = "*_`~#|>$\\"


@dataclass(frozen=True, slots=True)
class Word:
    """One word of plain text.  percent: the model's confidence in it, None where it is not known."""

    text: str
    percent: int | None


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a page in reading order.  markdown: its text without the marker.

    box: (left, top, right, bottom) in thousandths of the sides of the page as it was read, None where it is not known.
    lines: the words of its plain text, line by line; lines without words are left out.
    """

    label: str
    box: tuple[int, int, int, int] | None
    markdown: str
    lines: tuple[tuple[Word, ...], ...]


def has_boxes(page: PageText) -> bool:
    """Did the model say where its blocks stand?"""
    return any(True for _ in _markers(page.text))


def without_boxes(text: str) -> str:
    """The Markdown without box markers, a blank line between blocks."""
    return "\n\n".join(part.strip("\n") for _, part in _parts(text) if part.strip("\n"))


def blocks_of(page: PageText) -> list[Block]:
    """A page's blocks; none for a page without text."""
    if not page.text.strip():
        return []
    if not has_boxes(page):
        return [Block(WHOLE_PAGE, (0, 0, THOUSAND, THOUSAND), page.text, _lines(page.text, page.word_confidences))]
    blocks = []
    is_cut = _is_cut(page)
    known = page.word_confidences if len(page.word_confidences) == len(page.text.split()) else ()
    for marker, part in _parts(page.text):
        count = len((marker[0] if marker else "").split()) + len(part.split())
        lines = _lines(part, known[count - len(part.split()) : count])
        known = known[count:]
        if marker or part.strip():
            blocks.append(Block(marker[1] if marker else "text", None if is_cut else _box(marker), part.strip("\n"), lines))
    return blocks


def page_size(page: PageText) -> tuple[int, int]:
    """(width, height) in px of the page's image before it was turned; (0, 0) where there is none."""
    if page.picture is None:
        return 0, 0
    size = page.picture.width_px, page.picture.height_px
    return size if page.turn in (0, 180) else size[::-1]


def placed(block: Block, page: PageText) -> tuple[float, float, float, float]:
    """(left, top, right, bottom) of the block in px of ``page_size``; the whole page where its box is not known."""
    left, top, right, bottom = block.box or (0, 0, THOUSAND, THOUSAND)
    turn = page.turn
    if turn == 90:
        left, top, right, bottom = top, THOUSAND - right, bottom, THOUSAND - left
    elif turn == 180:
        left, top, right, bottom = THOUSAND - right, THOUSAND - bottom, THOUSAND - left, THOUSAND - top
    elif turn == 270:
        left, top, right, bottom = THOUSAND - bottom, left, THOUSAND - top, right
    width, height = (side / THOUSAND for side in page_size(page))
    return left * width, top * height, right * width, bottom * height


def line_text(line: Sequence[Word]) -> str:
    """A line's words with spaces between them."""
    return " ".join(word.text for word in line)


def _markers(text: str) -> Iterator[re.Match[str]]:
    """Matches that are markers, and not links to pictures."""
    for found in _MARKER.finditer(text):
        if found[1].removesuffix("+") in LABELS and all(int(number) <= THOUSAND for number in found.groups()[1:]):
            yield found


def _parts(text: str) -> Iterator[tuple[re.Match[str] | None, str]]:
    """(marker, what follows it); the first part, if there is any, has none."""
    marker, start = None, 0
    for found in _markers(text):
        if marker or text[start : found.start()].strip():
            yield marker, text[start : found.start()]
        marker, start = found, found.end()
    yield marker, text[start:]


def _is_cut(page: PageText) -> bool:
    """Was the page read as halves?  Their boxes are then each half's own, and where it was cut is not recorded."""
    return bool(page.attempts) and page.attempts[page.chosen].parts > 1


def _box(marker: re.Match[str] | None) -> tuple[int, int, int, int] | None:
    if marker is None:
        return None
    left, top, right, bottom = (int(number) for number in marker.groups()[1:])
    return min(left, right), min(top, bottom), max(left, right), max(top, bottom)


def _lines(markdown: str, confidences: Sequence[int]) -> tuple[tuple[Word, ...], ...]:
    """The words of plain text with the confidences of the words of Markdown that they come from."""
    markdown_words = markdown.split()
    if len(markdown_words) != len(confidences):
        markdown_words, confidences = [], ()
    lines = []
    cursor = 0
    for line in to_plain_text(markdown).splitlines():
        words = []
        for text in line.split():
            window = range(cursor, min(cursor + LOOK_AHEAD_WORDS, len(markdown_words)))
            found = next((index for index in window if _is_from(text, markdown_words[index])), None)
            words.append(Word(text, None if found is None else confidences[found]))
            cursor = cursor if found is None else found + (markdown_words[found].strip(_MARKS) == text.strip(_MARKS))
        if words:
            lines.append(tuple(words))
    return tuple(lines)


def _is_from(word: str, source: str) -> bool:
    """May this plain word come from that word of Markdown?"""
    return word in source or (word.strip(_MARKS) == source.strip(_MARKS) != "")
