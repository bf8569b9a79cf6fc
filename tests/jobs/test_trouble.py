"""What goes wrong around a run, with real processes and files: nothing is lost, the message is clear, no page is done twice."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image

from pagemill.jobs.errors import LedgerError
from pagemill.jobs.ledger.ledger import Ledger
from pagemill.jobs.ledger.owner import this_process
from tests.jobs.test_kill import count_done, ledger_rows

ROOT = Path(__file__).parents[2]
PAGES = 40
WAIT_SECONDS = 60.0


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "many.tiff"
    path.parent.mkdir()
    write_pages(path, 255)
    return path


def write_pages(path: Path, level: int) -> None:
    frames = [Image.new("L", (140, 84), level - index % 8) for index in range(PAGES)]
    frames[0].save(path, save_all=True, append_images=frames[1:])


def until(is_so: Callable[[], object], process: subprocess.Popen[str] | None = None) -> None:
    """Waits for something, not longer than a minute, and not after the process has ended."""
    end = time.monotonic() + WAIT_SECONDS
    while not is_so():
        assert time.monotonic() < end
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.01)


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts an echo job whose messages go to ``messages`` in the test's folder; ends what is left."""
    started: list[subprocess.Popen[str]] = []

    def start_one(output: Path, document: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.jobs.echo_job", str(output), str(document)]
        with (tmp_path / "messages").open("a") as messages:
            process = subprocess.Popen(command, cwd=ROOT, stderr=messages, text=True)
        started.append(process)
        return process

    yield start_one
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


def fill_disk(process: subprocess.Popen[str], output: Path) -> None:
    """Once pages are done, no file of the process may grow any more; RLIMIT_FSIZE stands for the disk."""
    until(lambda: count_done(output) > 0, process)
    size = (output / ".pagemill" / "ledger.sqlite3-wal").stat().st_size
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def check_done_once(output: Path) -> None:
    assert ledger_rows(output, "select count(*), sum(state = 'done' and status = 'ok') from page") == [(PAGES, PAGES)]
    finished = "select count(*) from attempt where ended = 'finished' group by page_id"
    assert ledger_rows(output, finished) == [(1,)] * PAGES


def test_full_disk_pauses_the_run_and_room_lets_it_go_on(tmp_path: Path, document: Path, start: Start) -> None:
    output, messages = tmp_path / "out", tmp_path / "messages"
    process = start(output, document)
    fill_disk(process, output)
    until(lambda: "paused: " in messages.read_text(), process)
    time.sleep(2.5)  # two more tries
    told = messages.read_text()
    assert told.count("paused: ") == 1
    assert "free some space; the run goes on by itself" in told
    assert count_done(output) < PAGES
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert process.wait(WAIT_SECONDS) == 0, messages.read_text()
    assert "there is room: going on" in messages.read_text()
    check_done_once(output)
    assert (output / "many.md").read_text().count("looks like") == PAGES


def test_run_that_waits_for_room_can_be_stopped_and_given_again(tmp_path: Path, document: Path, start: Start) -> None:
    output, messages = tmp_path / "out", tmp_path / "messages"
    process = start(output, document)
    fill_disk(process, output)
    until(lambda: "paused: " in messages.read_text(), process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_SECONDS) in (143, 6), messages.read_text()
    assert "Traceback" not in messages.read_text()
    assert start(output, document).wait(WAIT_SECONDS) == 0, messages.read_text()
    check_done_once(output)


def test_output_folder_removed_under_a_run_is_found_out(tmp_path: Path, document: Path, start: Start) -> None:
    output, messages = tmp_path / "out", tmp_path / "messages"
    process = start(output, document)
    until(lambda: count_done(output) > 0, process)
    shutil.rmtree(output)
    assert process.wait(WAIT_SECONDS) != 0
    assert "removed or replaced" in messages.read_text() or "unable to open" in messages.read_text()
    assert start(output, document).wait(WAIT_SECONDS) == 0, messages.read_text()
    check_done_once(output)


def test_input_replaced_under_a_run_is_not_mixed_and_originals_are_not_written(
    tmp_path: Path, document: Path, start: Start
) -> None:
    output, messages = tmp_path / "out", tmp_path / "messages"
    process = start(output, document)
    until(lambda: count_done(output) > 0, process)
    other = tmp_path / "other.tiff"
    write_pages(other, 120)
    content = other.read_bytes()
    other.replace(document)
    assert process.wait(WAIT_SECONDS) == 7, messages.read_text()
    told = messages.read_text()
    assert "changed or replaced during the run" in told or "has changed since the run began" in told
    (first,) = ledger_rows(output, "select count(*), sum(status = 'ok'), sum(status = 'failed') from page")
    assert first[0] == PAGES
    assert first[1] + first[2] == PAGES  # type: ignore[operator]
    assert start(output, document).wait(WAIT_SECONDS) == 0, messages.read_text()
    hashes = (
        "select count(distinct document_hash), count(*), sum(status = 'ok') from page where run = (select max(id) from run)"
    )
    assert ledger_rows(output, hashes) == [(1, PAGES, PAGES)]
    assert (output / "many.md").read_text().count("looks like") == PAGES
    assert document.read_bytes() == content


def test_locked_ledger_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite3"
    ledger = Ledger(path, this_process(), busy_seconds=0.1)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin immediate")
    with pytest.raises(
        LedgerError, match=r"free within 0\.1 s, found it locked by another process; wait for that one, or stop it"
    ):
        ledger.begin("m", "s", "{}", 0)
    other.execute("rollback")
    other.close()
    ledger.begin("m", "s", "{}", 0)
    ledger.close()


def test_ledger_locked_for_a_while_only_makes_a_run_wait(tmp_path: Path, document: Path, start: Start) -> None:
    output, messages = tmp_path / "out", tmp_path / "messages"
    process = start(output, document)
    until(lambda: count_done(output) > 0, process)
    other = sqlite3.connect(output / ".pagemill" / "ledger.sqlite3", isolation_level=None, timeout=30)
    other.execute("begin immediate")
    time.sleep(1.5)
    other.execute("rollback")
    other.close()
    assert process.wait(WAIT_SECONDS) == 0, messages.read_text()
    check_done_once(output)


def test_two_processes_share_a_job_and_do_no_page_twice(tmp_path: Path, document: Path, start: Start) -> None:
    output, messages = tmp_path / "out", tmp_path / "messages"
    processes = [start(output, document) for _ in range(2)]
    assert [process.wait(WAIT_SECONDS) for process in processes] == [0, 0], messages.read_text()
    check_done_once(output)
    assert len(ledger_rows(output, "select distinct worker from attempt where ended = 'finished'")) == 2


def test_second_signal_ends_a_run_at_once(tmp_path: Path, document: Path, start: Start) -> None:
    """The first one is held up, as a long step would hold it."""
    code = (
        "import os, signal, sys, time\n"
        "from pagemill.jobs.run.stopping import Stopper\n"
        "with Stopper() as stopper:\n"
        "    print('ready', flush=True)\n"
        "    while True: time.sleep(0.01)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ})
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 143
    process.stdout.close()
