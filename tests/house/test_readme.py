"""README's commands run, its tables are the code's, and the samples are read as well as it says."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from rapidfuzz.distance import Levenshtein

from jobs.cli import EXIT_CODES
from pipeline.sinks import SINKS
from tests.house.source import ROOT, tracked_files

README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
CER = "How well the samples are read"
CARD_MEAN = 0.021 + 0.003  # samples/model/README.md: the mean of such pages, and the upper end of its interval
CARD_WORST = 0.14
OTHER_ROUNDING = 2  # characters that another CPU's rounding may turn; the figures are AVX-512's


@dataclass(frozen=True, slots=True)
class Reading:
    """What became of one sample page.  errors: edit distance of its text from the truth."""

    status: str
    characters: int
    errors: int


@pytest.fixture(scope="module")
def readings(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], Reading]:
    """Runs the first block's job from the checkout, with this interpreter: (document, page) -> its reading."""
    output = tmp_path_factory.mktemp("samples")
    command = shlex.split(BLOCKS[0].split("&&")[-1])
    assert command[:2] == [".venv/bin/pagemill", "run"]
    arguments = [sys.executable, "-m", "jobs", *command[1:], "-o", str(output), "--progress", "none"]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return score(output)


def score(output: Path) -> dict[tuple[str, int], Reading]:
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
            found[document, number] = Reading(record["status"], len(expected), distance)
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
    from jobs.cli import app

    known = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    known |= {str(group.name) for group in app.registered_groups}
    named = set(re.findall(r"`(?:pagemill )?([a-z][a-z-]+)[^`]*`", "\n".join(row[0] for row in table("Commands"))))
    assert named == known
    assert all(f"- `{name}`:" in README for name in SINKS)


def test_samples_are_read_as_the_readme_says(readings: dict[tuple[str, int], Reading]) -> None:
    said = {(document, int(page)): (int(characters), int(errors)) for document, page, characters, errors, _ in table(CER)}
    assert said.keys() == readings.keys()
    for key, (characters, errors) in said.items():
        assert characters == readings[key].characters, key
        assert readings[key].errors <= errors + OTHER_ROUNDING, key


def test_samples_are_read_as_the_card_claims(readings: dict[tuple[str, int], Reading]) -> None:
    rates = [reading.errors / reading.characters for reading in readings.values() if reading.characters]
    assert sum(rates) / len(rates) <= CARD_MEAN
    assert max(rates) <= CARD_WORST


def test_only_the_empty_page_is_blank(readings: dict[tuple[str, int], Reading]) -> None:
    assert {reading.status for reading in readings.values() if reading.characters} == {"ok"}
    assert {reading.status for reading in readings.values() if not reading.characters} == {"blank"}


@pytest.mark.slow
def test_first_block_works_in_a_fresh_copy(tmp_path: Path) -> None:
    for name in tracked_files():
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    block = BLOCKS[0].replace("python3", shlex.quote(sys.executable), 1)
    environment = {**os.environ, "PAGEMILL_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(["bash", "-c", block], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    score(tmp_path / "out" / "samples")
