"""Pass or fail tests of pages in olmOCR-bench's format (Poznanski and others 2025), so that people can score their models.

A test file is JSON Lines: ``pdf``, ``page`` from 1, ``id``, ``type`` and the fields of the type.  Checked are ``present``,
``absent``, ``order``, ``table`` and ``baseline``; ``math`` needs a browser's rendering and is counted as not supported, as is
any other type.  A page without an output fails its tests, and is listed.  The benchmark's own program adds a ``baseline``
test for every page that has none; here only those in the files are run, so its category "base" is missing.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from rapidfuzz import fuzz

from pagemill.jobs.errors import InputError
from pagemill.jobs.evaluate.readings import Transcripts, names_in
from pagemill.jobs.evaluate.tables import Place, Table, find_tables

_PLAIN = str.maketrans(
    {**dict.fromkeys("‘’‚", "'"), **dict.fromkeys("“”„", '"'), **dict.fromkeys("–—‑‒−", "-"), "＿": "_", "µ": "μ"}
)
_EMPHASIS = re.compile(r"(\*\*|__|\*|_)(.+?)\1")
_TAGS = re.compile(r"</?[bi]>")
_BREAKS = re.compile(r"<br\s*/?>")
_FOREIGN = re.compile("[\u3040-\u30ff\u4e00-\u9fff\U0001f1e0-\U0001f1ff\U0001f300-\U0001f64f\U0001f680-\U0001f6ff]")
_IMAGE = re.compile(r"!\[.*?\]\(.*?\)")
LONGEST_REPEATED = 5
DIRECTIONS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


@dataclass(frozen=True, slots=True)
class PageTest:
    """One test.  source: the file it is from, which is its category; fields: those of its type, checked when read."""

    source: str
    id: str
    document: str
    page: int
    type: str
    fields: Mapping[str, object]

    def text(self, name: str) -> str:
        """A field as normalised text; empty where it is not there."""
        value = self.fields.get(name)
        return normalise(value) if isinstance(value, str) else ""

    def number(self, name: str) -> int:
        """A field that counts; 0 where it is not there."""
        value = self.fields.get(name)
        return value if isinstance(value, int) else 0

    def flag(self, name: str, default: bool) -> bool:
        """A field that is true or false."""
        value = self.fields.get(name)
        return value if isinstance(value, bool) else default


@dataclass(frozen=True, slots=True)
class CheckedTest:
    """How a test went.  unread: there is no output of its page."""

    test: PageTest
    outcome: Literal["passed", "failed", "not supported", "unread"]
    why: str = ""


def read_tests(path: Path) -> list[PageTest]:
    """The tests of a file, or of every ``.jsonl`` file in a folder.  Raises InputError."""
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    tests = [test for file in files for test in _read_file(file)]
    if not tests:
        raise InputError(f"{path}: expected tests in .jsonl files, found none")
    return tests


def run_tests(tests: Iterable[PageTest], run: Transcripts) -> list[CheckedTest]:
    """Every test against the run's pages; a document is found by its name, or by the last part of it where only one fits."""
    tests = list(tests)
    names = names_in({test.document for test in tests}, run.documents)
    lasts: dict[str, list[str]] = {}
    for document in run.documents:  # the benchmark's folders need not be the run's
        lasts.setdefault(_last(document), []).append(document)
    near = names_in({_last(test.document) for test in tests}, lasts)
    for test in tests:
        found = lasts.get(near.get(_last(test.document), ""), [])
        if len(found) == 1:
            names.setdefault(test.document, found[0])
    return [_run_test(test, run, names) for test in tests]


def summarise(results: Iterable[CheckedTest]) -> dict[str, Counter[str]]:
    """Outcomes by category."""
    by_source: dict[str, Counter[str]] = {}
    for result in results:
        by_source.setdefault(result.test.source, Counter())[result.outcome] += 1
    return by_source


def score_of(outcomes: Mapping[str, int]) -> float | None:
    """Passed by those that could be checked; an unread page counts as failed.  None where there is nothing to divide by."""
    checked = sum(outcomes.get(name, 0) for name in ("passed", "failed", "unread"))
    return outcomes.get("passed", 0) / checked if checked else None


def normalise(text: str) -> str:
    """Text as tests compare it: without emphasis and breaks, one space for each gap, plain quotes and dashes, composed."""
    text = _TAGS.sub("", _BREAKS.sub(" ", text))
    while (plainer := _EMPHASIS.sub(r"\2", text)) != text:
        text = plainer
    return unicodedata.normalize("NFC", re.sub(r"\s+", " ", text)).translate(_PLAIN)


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _read_file(path: Path) -> Iterable[PageTest]:
    try:
        lines = path.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as UTF-8 text ({error})") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
            test = PageTest(path.stem, str(fields["id"]), str(fields["pdf"]), int(fields["page"]), str(fields["type"]), fields)
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}:{number}: expected a test with pdf, page, id and type, found: {error!r}") from error
        missing = [name for name in NEEDED.get(test.type, ()) if not test.text(name).strip()]
        if missing:
            raise InputError(f"{path}:{number}: test {test.id}: expected text in {', '.join(missing)}, found none")
        yield test


def _run_test(test: PageTest, run: Transcripts, names: Mapping[str, str]) -> CheckedTest:
    check = CHECKS.get(test.type)
    if check is None:
        return CheckedTest(test, "not supported", f"tests of type {test.type} are not checked")
    reading = run.documents.get(names.get(test.document, ""), {}).get(test.page)
    if reading is None:
        return CheckedTest(test, "unread", "the run has no output of this page")
    why = check(test, reading.text)
    return CheckedTest(test, "failed" if why else "passed", why)


def _check_presence(test: PageTest, markdown: str) -> str:
    """Looks for the text, within so many edits, in the whole page or in its first and last characters."""
    wanted, text = test.text("text"), normalise(markdown)
    if not test.flag("case_sensitive", True):
        wanted, text = wanted.lower(), text.lower()
    first, last = test.number("first_n"), test.number("last_n")
    if first or last:
        text = text[:first] + (text[-last:] if last else "")
    most = test.number("max_diffs")
    similarity = fuzz.partial_ratio(wanted, text) / 100 if len(text) >= len(wanted) - most else 0.0
    is_there = similarity >= 1 - most / len(wanted)
    if test.type == "present":
        return "" if is_there else f"expected {wanted[:60]!r} within {most} edits; the nearest is {similarity:.1%} alike"
    return f"expected no {wanted[:60]!r}, found it" if is_there else ""


def _check_order(test: PageTest, markdown: str) -> str:
    text, most = normalise(markdown), test.number("max_diffs")
    before, after = (starts(test.text(name), text, most) for name in ("before", "after"))
    if not before.size or not after.size:
        return f"expected {test.text('after' if before.size else 'before')[:60]!r} on the page, found nothing like it"
    return "" if before.min() < after.max() else "the two texts are there, in the other order"


def starts(wanted: str, text: str, most: int) -> NDArray[np.int64]:
    """Where a piece of ``text`` begins that differs from ``wanted`` by at most ``most`` edits (Sellers 1980, from the end)."""
    letters = np.frombuffer(text[::-1].encode("utf-32-le", "surrogatepass"), np.uint32)
    places = np.arange(len(letters) + 1)
    row = np.zeros(len(letters) + 1, np.int64)
    for depth, letter in enumerate(wanted[::-1], 1):
        best = np.minimum(row[1:] + 1, row[:-1] + (letters != ord(letter)))
        row = np.concatenate(([depth], best))
        row = np.minimum.accumulate(row - places) + places
    found: NDArray[np.int64] = len(letters) - np.flatnonzero(row <= most)
    return found


def _check_table(test: PageTest, markdown: str) -> str:
    tables = find_tables(markdown, with_pipes=not test.flag("ignore_markdown_tables", False))
    if not tables:
        return "expected a table on the page, found none"
    nearest = ""
    for table in tables:
        for place, cell in table.cells.items():
            if _alike(test.text("cell"), cell, test):
                nearest = _misplaced(test, table, place)
                if not nearest:
                    return ""
    return nearest or f"expected a cell {test.text('cell')[:60]!r}, found none"


def _misplaced(test: PageTest, table: Table, place: Place) -> str:
    """What does not stand where it should around a cell; empty when all does."""
    around: dict[str, list[str]] = {
        name: [found] if (found := table.beside(place, *step)) is not None else [] for name, step in DIRECTIONS.items()
    }
    around |= {"top_heading": table.above(place), "left_heading": table.before(place)}
    for name, cells in around.items():
        wanted = test.text(name)
        if wanted and not any(_alike(wanted, cell, test) for cell in cells):
            return f"expected {wanted[:40]!r} as {name} of {test.text('cell')[:40]!r}, found {cells}"
    return ""


def _alike(wanted: str, cell: str, test: PageTest) -> bool:
    return fuzz.ratio(wanted, normalise(cell)) / 100 >= max(0.5, 1 - test.number("max_diffs") / max(len(wanted), 1))


def _check_baseline(test: PageTest, markdown: str) -> str:
    """Some text, no endless end, no script that the page cannot have; or, with ``max_length``, next to no text."""
    longest = test.fields.get("max_length")
    if isinstance(longest, int):
        if test.flag("max_length_skips_image_alt_tags", False):
            markdown = _IMAGE.sub("", markdown)
        letters = sum(map(str.isalnum, markdown))
        return f"expected at most {longest} letters and digits, found {letters}" if letters > longest else ""
    if not any(map(str.isalnum, markdown)):
        return "expected some letters or digits, found none"
    repeats = _repeats_at_end(markdown)
    if repeats > (test.number("max_repeats") or 30):
        return f"expected an end, found {repeats} repetitions"
    if test.flag("check_disallowed_characters", True) and (foreign := _FOREIGN.search(markdown)):
        return f"expected no character of an unlikely script, found {foreign[0]!r}"
    return ""


def _repeats_at_end(text: str) -> int:
    """How often the last one to LONGEST_REPEATED characters are repeated at the end."""
    most = 0
    for length in range(1, min(LONGEST_REPEATED, len(text)) + 1):
        piece, count, end = text[-length:], 0, len(text)
        while end >= length and text[end - length : end] == piece:
            count, end = count + 1, end - length
        most = max(most, count)
    return most


CHECKS: dict[str, Callable[[PageTest, str], str]] = {
    "present": _check_presence,
    "absent": _check_presence,
    "order": _check_order,
    "table": _check_table,
    "baseline": _check_baseline,
}
NEEDED: dict[str, tuple[str, ...]] = {
    "present": ("text",),
    "absent": ("text",),
    "order": ("before", "after"),
    "table": ("cell",),
}
