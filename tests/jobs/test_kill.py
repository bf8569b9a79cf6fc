"""kill -9 anywhere: the same command again ends in the same bytes, no page is done twice, no temporary file is left."""

from __future__ import annotations

import json
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

from pagemill.pipeline.durable import TEMP_SUFFIX
from tests.jobs.deaths import POINTS

ROOT = Path(__file__).parents[2]
DOCUMENTS, PAGES_EACH = 3, 10
PAGES = DOCUMENTS * PAGES_EACH
ONCE = {"in the renderer"}  # points that do not end the run


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    for document in range(DOCUMENTS):
        frames = [Image.new("L", (140, 84), 255) for _ in range(PAGES_EACH)]
        for page, frame in enumerate(frames):
            ImageDraw.Draw(frame).text((8, 8), f"{document} {page}", fill=0)
        frames[0].save(folder / f"{document}.tiff", save_all=True, append_images=frames[1:])
    return folder


@pytest.fixture(scope="module")
def whole(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """An uninterrupted run's folder, and the seconds from its ledger to its end."""
    folder = tmp_path_factory.mktemp("whole")
    process = start(folder, inputs)
    wait_for_ledger(folder)
    started = time.monotonic()
    process.communicate(timeout=60)
    assert process.returncode == 0
    return folder, time.monotonic() - started


@pytest.fixture(scope="module")
def expected(whole: tuple[Path, float]) -> dict[str, bytes]:
    """What an uninterrupted run leaves."""
    left = files(whole[0])
    assert sorted(left) == sorted(
        ["report.json", *(f"{document}.{kind}" for document in range(DOCUMENTS) for kind in ("txt", "md", "jsonl"))]
    )
    return left


def start(output: Path, inputs: Path, *die: object) -> subprocess.Popen[str]:
    options = ["--die", *map(str, die)] if die else []
    command = [sys.executable, "-m", "tests.jobs.echo_job", *options, str(output), str(inputs)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1764454500"}  # records are dated
    return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)


def wait_for_ledger(folder: Path) -> None:
    while not (folder / ".pagemill" / "ledger.sqlite3").exists():
        time.sleep(0.001)


def finish(output: Path, inputs: Path) -> None:
    process = start(output, inputs)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 0, said


def files(folder: Path) -> dict[str, bytes]:
    """Every file that a run leaves, but for the ledger's own; what a report says of the run itself left out."""
    paths = [path for path in folder.rglob("*") if path.is_file() and ".sqlite3" not in path.name]
    found = {str(path.relative_to(folder)): path.read_bytes() for path in paths}
    if "report.json" in found:
        report = json.loads(found["report.json"])
        del report["run"]
        for page in report["pages"]:
            page["attempts"] = 1  # a renderer that was killed was asked again
            page["status"] = page["status"].replace("retried", "ok")
        report["counts"] = {"ok": sum(report["counts"].values())}
        found["report.json"] = json.dumps(report).encode()
    return found


def ledger_rows(folder: Path, sql: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(folder / ".pagemill" / "ledger.sqlite3")
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def count_done(folder: Path) -> int:
    try:
        return len(ledger_rows(folder, "select id from page where state = 'done'"))
    except sqlite3.OperationalError:  # killed before the ledger had its tables, or even its folder
        return 0


def check_whole(folder: Path, expected: dict[str, bytes]) -> None:
    """Same bytes, every page finished exactly once, nothing temporary."""
    assert files(folder) == expected
    assert list(folder.rglob(f"*{TEMP_SUFFIX}*")) == []
    assert ledger_rows(folder, "select count(*), sum(state = 'done' and status = 'ok') from page") == [(PAGES, PAGES)]
    finished = "select count(*) from attempt where ended = 'finished' group by page_id"
    assert ledger_rows(folder, finished) == [(1,)] * PAGES
    assert ledger_rows(folder, "select count(*) from attempt where ended is null") == [(0,)]


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("point", POINTS)
def test_run_killed_at_a_named_point_ends_as_an_uninterrupted_one(
    tmp_path: Path, inputs: Path, expected: dict[str, bytes], point: str, times: int
) -> None:
    process = start(tmp_path, inputs, point, times)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == (0 if point in ONCE else -signal.SIGKILL), said
    finish(tmp_path, inputs)
    check_whole(tmp_path, expected)


@pytest.mark.parametrize("trials", [pytest.param(5, id="few"), pytest.param(50, id="many", marks=pytest.mark.slow)])
def test_run_killed_at_random_moments_ends_as_an_uninterrupted_one(
    tmp_path: Path, inputs: Path, whole: tuple[Path, float], expected: dict[str, bytes], trials: int
) -> None:
    dice = random.Random(20261129 + trials)
    killed_midway = 0
    for trial in range(trials):
        folder = tmp_path / f"trial{trial}"
        process = start(folder, inputs)
        wait_for_ledger(folder)
        time.sleep(dice.uniform(0.0, whole[1]))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        killed_midway += not (folder / "report.json").exists()
        finish(folder, inputs)
        check_whole(folder, expected)
    assert killed_midway >= trials // 2


def test_run_killed_again_and_again_comes_to_its_end(tmp_path: Path, inputs: Path, expected: dict[str, bytes]) -> None:
    points = [point for point in POINTS if point not in ONCE]
    for point in points:
        process = start(tmp_path, inputs, point, 1)
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL, point
    finish(tmp_path, inputs)
    check_whole(tmp_path, expected)
