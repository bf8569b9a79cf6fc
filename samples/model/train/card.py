"""`python -m samples.model.train.card PAIR FOLDER`: the figures of the model's card, measured as a user would.

Draws held-out pages and their truth into FOLDER, runs one job on them with `pagemill run` at its defaults, and measures it
with `pagemill eval`, beside Tesseract (apt-get install tesseract-ocr).  Needs neither torch nor a checkpoint.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from PIL import Image

from pagemill.jobs.evaluate.evaluate import NO_ERRORS, Errors
from pagemill.jobs.evaluate.intervals import rate_interval
from samples.model.train.held_out import held_out_pages
from samples.model.train.markers import put_between

SETS = {
    "clean:112x336": 60,
    "clean:168x336": 60,
    "clean:448x448": 40,
    "clean:644x448": 40,
    "light:112x336": 30,
    "light:168x336": 30,
    "light:448x448": 20,
    "light:644x448": 20,
    "columns:448x448": 25,
    "columns:644x448": 25,
    "blank:112x336": 10,
    "blank:448x448": 10,
}
KINDS = {"clean": "one column, clean", "light": "one column, worn", "columns": "two columns, clean", "blank": "blank"}
TEXT, MMPROJ = "text-q8_0.gguf", "mmproj-f16.gguf"
OVERLOOKED = ("markdown", "whitespace")  # for Tesseract, which writes no Markdown
HEAD = (
    "kind",
    "width x height, px",
    "pages",
    "characters",
    "CER (95 %)",
    "median page",
    "without error",
    "CER of the text alone",
    "Tesseract's",
)
TESSERACT = "tesseract"
ONE_THREAD = {"OMP_THREAD_LIMIT": "1"}  # Tesseract is three times as slow with more on pages as small as these

Scores = Mapping[str, Errors]
"""Document -> its character errors."""


@dataclass(frozen=True, slots=True)
class Measures:
    """What three readings came to: every character counted, then without Markdown's marks and empty lines."""

    strict: Scores
    plain: Scores
    tesseract: Scores

    def of(self, prefix: str) -> Measures:
        """The documents below a folder."""
        kept = ({name: one for name, one in scores.items() if name.startswith(prefix)} for scores in self.all)
        return Measures(*kept)

    @property
    def all(self) -> tuple[Scores, Scores, Scores]:
        """The three of them."""
        return self.strict, self.plain, self.tesseract


def draw(folder: Path, share: float, corpus_cache: Path | None) -> int:
    """Write pages/KIND/SIZE/NNN.png and truth/KIND/SIZE/NNN.png.txt; how many there are."""
    pages = 0
    for name, count in SETS.items():
        place = name.replace(":", "/")
        for kind in ("pages", "truth"):
            (folder / kind / place).mkdir(parents=True)
        for number, page in enumerate(held_out_pages(name, max(1, round(count * share)), corpus_cache), 1):
            Image.fromarray(page.pixels).save(folder / "pages" / place / f"{number:03}.png")
            (folder / "truth" / place / f"{number:03}.png.txt").write_text(page.text + "\n", "utf-8")
            pages += 1
    return pages


def read(pair: Path, folder: Path) -> None:
    """One job over all pages, every setting but the model at its default."""
    job = {
        "model": {"text": str(pair.resolve() / TEXT), "mmproj": str(pair.resolve() / MMPROJ)},
        "input": {"paths": ["pages"]},
        "output": {"folder": "out", "formats": ["jsonl"]},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job), "utf-8")
    pagemill("run", folder / "job.yaml", "--progress", "none")


def measure(folder: Path) -> Measures:
    """By `pagemill eval`."""
    wanted = ("eval", folder / "out", "--truth", folder / "truth", "--json")
    strict = json.loads(pagemill(*wanted))["runs"]
    overlook = [word for name in OVERLOOKED for word in ("--normalise", name)]
    plain = json.loads(pagemill(*wanted, *overlook, "--tesseract", folder / "pages"))["runs"]
    return Measures(*(scores(run) for run in (*strict, *plain)))


def pagemill(*arguments: object) -> str:
    """What a command of the program prints."""
    command = [sys.executable, "-m", "pagemill", *map(str, arguments)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ | ONE_THREAD).stdout


def scores(run: Mapping[str, Any]) -> Scores:
    """A run's pages in what `pagemill eval --json` prints; refuses pages that were not read."""
    if run["unread"]:
        raise SystemExit(f"expected every page to be read, {run['run']} has no text of {run['unread']}")
    edits = {str(page["document"]): page["characters"] for page in run["pages"]}
    kinds = ("substitutions", "deletions", "insertions", "length")
    return {document: Errors(*(found[kind] for kind in kinds)) for document, found in edits.items()}


def table(measures: Measures) -> str:
    """Markdown: a row a kind, and below it a row a size."""
    lines = [HEAD, ("---",) * len(HEAD), *rows(measures)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def rows(measures: Measures) -> Iterator[tuple[str, ...]]:
    """Of the table; a kind without text has one alone."""
    for kind, title in KINDS.items():
        sizes = [name.partition(":")[2] for name in SETS if name.startswith(f"{kind}:")]
        whole = measures.of(f"{kind}/")
        yield row(title, "all", whole)
        if any(errors.length for errors in whole.strict.values()):
            for size in sizes:
                height, _, width = size.partition("x")
                yield row("", f"{width} x {height}", measures.of(f"{kind}/{size}/"))


def row(title: str, size: str, part: Measures) -> tuple[str, ...]:
    """Figures of some pages."""
    pages = list(part.strict.values())
    head = title, size, str(len(pages)), f"{sum(errors.length for errors in pages):,}"
    strict, plain, tesseract = (rate(list(one.values())) for one in part.all)
    rates = [page_rate for errors in pages if (page_rate := errors.rate) is not None]
    middle = f"{100 * median(rates):.1f} %" if rates else "-"
    return *head, strict, middle, f"{sum(not errors.count for errors in pages)}", plain, tesseract


def rate(pages: Sequence[Errors]) -> str:
    """The error rate with its interval; of pages without text, what was invented."""
    whole = sum(pages, NO_ERRORS)
    if whole.rate is None:
        invented = sum(errors.insertions > 0 for errors in pages)
        return f"{whole.insertions} characters on {invented} pages" if invented else "empty text"
    interval = rate_interval(pages)
    return f"{100 * whole.rate:.1f} %" + (f" ({100 * interval[0]:.1f}-{100 * interval[1]:.1f})" if interval else "")


def subject(pair: Path, pages: int) -> str:
    """What the figures are about."""
    digest = hashlib.sha256((pair / TEXT).read_bytes()).hexdigest()[:12]
    said = subprocess.run([TESSERACT, "--version"], capture_output=True, text=True, check=True)
    version = (said.stdout + said.stderr).split()[1]
    return f"{pages} pages; `{TEXT}` with sha256 {digest}...; Tesseract {version}, language eng."


def main() -> None:
    """Draw, read, measure, and write the table into the card."""
    parser = argparse.ArgumentParser(prog="python -m samples.model.train.card", description=__doc__)
    parser.add_argument("pair", type=Path, help=f"folder of {TEXT} and {MMPROJ}")
    parser.add_argument("folder", type=Path, help="a new folder for pages, truth and output")
    parser.add_argument("--card", type=Path, help="document to write the table into, between its comments `figures`")
    parser.add_argument("--corpus", type=Path, help="where the text is kept between runs")
    parser.add_argument("--share", type=float, default=1.0, help="of the pages of each set, for a trial")
    options = parser.parse_args()
    start = time.monotonic()
    pages = draw(options.folder, options.share, options.corpus)
    read(options.pair, options.folder)
    text = f"{subject(options.pair, pages)}\n\n{table(measure(options.folder))}"
    print(f"{text}\n\n{time.monotonic() - start:.0f} s")
    if options.card:
        put_between(options.card, "figures", text)


if __name__ == "__main__":
    main()
