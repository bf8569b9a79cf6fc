"""README's commands run, its tables are the code's, and the samples are read as well as it says."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from rapidfuzz.distance import Levenshtein

from pagemill.jobs.cli.app import COMMANDS
from pagemill.jobs.cli.codes import EXIT_CODES
from pagemill.pipeline.sinks import SINKS
from tests.house.source import ROOT, tracked_files

README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
CER = "How well the samples are read"
CARD = (ROOT / "samples" / "model" / "README.md").read_text("utf-8")
STRIP_PX = (336, 112)
CARD_FIGURE = re.compile(r"^\|  \| 336 x 112 \| \d+ \| [\d,]+ \| [\d.]+ % \([\d.]+-([\d.]+)\) \|", re.MULTILINE)
OTHER_ROUNDING = 2  # characters of each hundred that another CPU's rounding may turn; the figures are AVX-512's
FEWEST_DOCUMENTS, FEWEST_PAGES = 12, 30
MOST_SECONDS = 120  # for the whole job on two cores, compiling the kernels included
LISTED = re.compile(r"^\| \[((?:documents|locked)/\S+)\]\(\1\) \|.*\| (\d+) \| [^|]+ \|$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Reading:
    """What became of one sample page.  errors: edit distance of its text from the truth; size: of its picture, px."""

    status: str
    characters: int
    errors: int
    size: tuple[int, int]


Readings = dict[tuple[str, int], Reading]  # by document and page


@pytest.fixture(scope="module")
def readings(tmp_path_factory: pytest.TempPathFactory) -> Readings:
    """Runs the first block's job from the checkout, with this interpreter, in the time that it may take."""
    output = tmp_path_factory.mktemp("samples")
    command = shlex.split(BLOCKS[0].split("&&")[-1])
    assert command[:2] == [".venv/bin/pagemill", "run"]
    arguments = [sys.executable, "-m", "pagemill", *command[1:], "-o", str(output), "--progress", "none"]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=MOST_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return score(output)


def score(output: Path) -> Readings:
    """Compares the outputs with the truth; every page of every document must be there."""
    found = {}
    for truth in sorted((ROOT / "samples" / "truth").glob("*.txt")):
        document = truth.name.removesuffix(".txt")
        pages = truth.read_text("utf-8").removesuffix("\n").split("\f")
        lines = (output / document).with_suffix(".jsonl").read_text("utf-8").splitlines()
        for number, (expected, line) in enumerate(zip(pages, lines, strict=True), 1):
            record = json.loads(line)
            assert (record["document"], record["page"]) == (document, number)
            distance = Levenshtein.distance(record["text"].strip("\n"), expected)
            size = (record["picture"]["width_px"], record["picture"]["height_px"])
            found[document, number] = Reading(record["status"], len(expected), distance, size)
    return found


def table(heading: str) -> list[list[str]]:
    """The rows of the first table below a heading, without its head."""
    section = README.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")]
    return rows[2:]


def test_readme_opens_with_two_blocks() -> None:
    first, second = BLOCKS[:2]
    assert README.startswith(f"# Pagemill\n\n```\n{first}```\n\n```\n{second}```\n")


def test_ci_runs_the_second_block() -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
    commands = [line for line in script if line and not line.startswith(("#", "set ", "cd "))]
    assert commands == BLOCKS[1].splitlines()
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_exit_codes_are_the_codes_of_the_command_line() -> None:
    assert {int(code): meaning for code, meaning in table("Exit codes")} == EXIT_CODES


def test_named_commands_and_formats_exist() -> None:
    named = set(re.findall(r"`(?:pagemill )?([a-z][a-z-]+)[^`]*`", "\n".join(row[0] for row in table("Commands"))))
    assert named == set(COMMANDS)
    assert all(f"- `{name}`:" in README for name in SINKS)
    (line,) = [line for line in (ROOT / "config.yaml").read_text(encoding="utf-8").splitlines() if "formats:" in line]
    assert line.partition("#")[2].partition(";")[0].split(", ") == [" text", *list(SINKS)[1:]]


def test_samples_are_read_as_the_readme_says(readings: Readings) -> None:
    said = {}
    for document, pages, characters, told, _ in table(CER):
        figures = re.findall(r"(\d+)(?: \((\w+)\))?", told)
        assert len(figures) == int(pages), document
        said |= {(document, page): (int(errors), status or "ok") for page, (errors, status) in enumerate(figures, 1)}
        assert int(characters) == sum(one.characters for (name, _), one in readings.items() if name == document), document
    assert said.keys() == readings.keys()
    for page, reading in readings.items():
        errors, status = said[page]
        assert reading.status == status, page
        assert abs(reading.errors - errors) <= max(OTHER_ROUNDING, OTHER_ROUNDING * reading.characters / 100), page


def test_strips_are_read_as_the_card_claims(readings: Readings) -> None:
    claimed = CARD_FIGURE.search(CARD)  # the first is that of clean strips
    assert claimed, "the card's row of strips: pages | characters | CER % (low-high)"
    strips = [one for one in readings.values() if one.size == STRIP_PX]
    assert sum(one.errors for one in strips) <= float(claimed[1]) / 100 * sum(one.characters for one in strips)


def test_empty_pages_and_no_others_are_blank(readings: Readings) -> None:
    assert {page for page, one in readings.items() if one.status == "blank"} == {
        page for page, one in readings.items() if not one.characters
    }


def test_every_sample_is_listed_with_its_pages(readings: Readings) -> None:
    listed = {name: int(pages) for name, pages in LISTED.findall((ROOT / "samples" / "README.md").read_text("utf-8"))}
    names = [path for folder in ("documents", "locked") for path in (ROOT / "samples" / folder).iterdir()]
    pages = Counter(document for document, _ in readings)
    assert listed == {f"{path.parent.name}/{path.name}": pages[path.name] for path in names}
    assert len(listed) >= FEWEST_DOCUMENTS
    assert pages.total() >= FEWEST_PAGES


@pytest.mark.slow
def test_first_block_works_in_a_fresh_copy(tmp_path: Path) -> None:
    for name in tracked_files():
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    shutil.copytree(ROOT / "pagemill", tmp_path / "pagemill", symlinks=True, dirs_exist_ok=True)
    block = BLOCKS[0].replace("python3", shlex.quote(sys.executable), 1)
    environment = {**os.environ, "PAGEMILL_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(["bash", "-c", block], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    score(tmp_path / "out" / "samples")
