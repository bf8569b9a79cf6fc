"""kill -9 at random moments: the same command again ends in the same bytes, and no page is done twice."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

ROOT = Path(__file__).parents[2]
DOCUMENTS, PAGES_EACH = 3, 10
PAGES = DOCUMENTS * PAGES_EACH


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    for document in range(DOCUMENTS):
        frames = [Image.new("L", (140, 84), 255) for _ in range(PAGES_EACH)]
        for page, frame in enumerate(frames):
            ImageDraw.Draw(frame).text((8, 8), f"{document} {page}", fill=0)
        frames[0].save(folder / f"{document}.tiff", save_all=True, append_images=frames[1:])
    return folder


def start(output: Path, inputs: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.jobs.echo_job", str(output), str(inputs)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1764454500"}  # records are dated
    return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)


def finish(output: Path, inputs: Path) -> None:
    process = start(output, inputs)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 0, said


def kill_at(output: Path, inputs: Path, records: int, seconds: float) -> None:
    """Kills a run ``seconds`` after it has written so many page records."""
    process = start(output, inputs)
    while process.poll() is None and len(list(output.glob(".pagemill/pages/*/*/*.json"))) < records:
        time.sleep(0.001)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.communicate()


def files(folder: Path) -> dict[str, bytes]:
    """Every file that a run leaves, but for the ledger's own."""
    paths = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("ledger.sqlite3")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def ledger_rows(folder: Path, sql: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(folder / ".pagemill" / "ledger.sqlite3")
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def count_done(folder: Path) -> int:
    try:
        return len(ledger_rows(folder, "select id from page where state = 'done'"))
    except sqlite3.OperationalError:  # killed before the ledger had its tables
        return 0


@pytest.mark.parametrize("trials", [pytest.param(2, id="few"), pytest.param(20, id="many", marks=pytest.mark.slow)])
def test_killed_run_ends_as_an_uninterrupted_one_when_run_again(tmp_path: Path, inputs: Path, trials: int) -> None:
    finish(tmp_path / "whole", inputs)
    expected = files(tmp_path / "whole")
    assert len([name for name in expected if name.endswith((".txt", ".md", ".jsonl"))]) == 3 * DOCUMENTS
    dice = random.Random(20261129 + trials)
    killed_midway = 0
    for trial in range(trials):
        folder = tmp_path / f"trial{trial}"
        kill_at(folder, inputs, dice.randrange(PAGES), dice.uniform(0.0, 0.05))
        killed_midway += 0 < count_done(folder) < PAGES
        finish(folder, inputs)
        assert files(folder) == expected
        assert ledger_rows(folder, "select count(*), sum(state = 'done' and status = 'ok') from page") == [(PAGES, PAGES)]
        finished = "select count(*) from attempt where ended = 'finished' group by page_id"
        assert ledger_rows(folder, finished) == [(1,)] * PAGES
    assert killed_midway >= trials // 2
