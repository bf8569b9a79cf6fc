"""The watch folder: driven by a clock of its own on real files, and once for real as a process."""

from __future__ import annotations

import configparser
import hashlib
import json
import logging
import os
import plistlib
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from PIL import Image

from pagemill.decoder.errors import ModelError
from pagemill.jobs.cli import codes
from pagemill.jobs.errors import ConfigError, LedgerError, OutputError
from pagemill.jobs.run.job import OpenReader
from pagemill.jobs.run.progress import NoProgress
from pagemill.jobs.run.spec import JobSpec
from pagemill.jobs.settings.config import Config
from pagemill.jobs.watch import arrivals, overrides, shelves
from pagemill.jobs.watch.arrivals import Arrival, ignored_names
from pagemill.jobs.watch.daemon import Places, WatchEnd, places_of, run_watch
from pagemill.jobs.watch.events import file_events
from pagemill.jobs.watch.journal import SPARE_LINES, Entry, Journal
from pagemill.jobs.watch.notices import WEBHOOK_TRIES, HealthFile, Webhook
from pagemill.jobs.watch.overrides import FolderSettings
from pagemill.jobs.watch.shelves import Shelves, root_labels
from pagemill.jobs.watch.watcher import Finished, Pace, Verdict, Watcher, check_places
from pagemill.pipeline.durable import TEMP_SUFFIX
from tests.fakes import EchoReader
from tests.jobs.echo_job import open_echo

ROOT = Path(__file__).parents[2]
SETTLE, SCAN, EMPTY = 5.0, 30.0, 300.0
BAD = b"bad"
needs_rights = pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")


class Desk:
    """A watched folder with a clock: ``at`` moves it second by second to a time, stepping the watcher."""

    def __init__(self, folder: Path, *, moves: bool = False) -> None:
        self.inbox, self.out = folder / "in", folder / "out"
        self.inbox.mkdir()
        self.moves, self.now = moves, 1_000_000.0
        self.batches: list[list[tuple[str, bytes]]] = []
        self.heard: list[Finished] = []
        self.raises: list[Exception] = []
        self.verdict: Callable[[Arrival], Verdict] = self.read
        self.during: Callable[[Arrival], None] = lambda arrival: None
        self.restart()

    def restart(self) -> None:
        places = Shelves(self.out / "done", self.out / "failed", self.moves, root_labels((self.inbox,)))
        self.journal = Journal(self.out / "watch.jsonl")
        pace = Pace(SCAN, SETTLE, EMPTY, batch_files=64, ignore=("skip-*",))
        self.watcher = Watcher([self.inbox], pace, self.journal, places, self.transcribe, self.heard.extend)

    def transcribe(self, batch: Sequence[Arrival]) -> Mapping[Path, Verdict]:
        if self.raises:
            raise self.raises.pop(0)
        self.batches.append([(arrival.relative.as_posix(), arrival.path.read_bytes()) for arrival in batch])
        verdicts = {arrival.path: self.verdict(arrival) for arrival in batch}
        for arrival in batch:
            self.during(arrival)
        return verdicts

    def read(self, arrival: Arrival) -> Verdict:
        content = arrival.path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if content.startswith(BAD):
            return Verdict("failed", "not a document", digest, ((1, "failed", "not a document"),), {"failed": 1})
        return Verdict("done", "", digest, (), {"ok": 1})

    def write(self, name: str, content: bytes = b"whole") -> Path:
        path = self.inbox / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def after(self, seconds: int, each_second: Callable[[int], object] = lambda second: None) -> None:
        for second in range(seconds):
            each_second(second)
            self.watcher.step(self.now)
            self.now += 1

    @property
    def taken(self) -> list[tuple[str, bytes]]:
        return [file for batch in self.batches for file in batch]

    def results(self) -> dict[str, str]:
        return {file.path.name: file.verdict.kind for file in self.heard}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def moving(tmp_path: Path) -> Desk:
    return Desk(tmp_path, moves=True)


# When a file is taken


SOME_FAILED = WatchEnd(None, some_failed=True)


def test_a_file_that_grows_for_ten_seconds_is_taken_once_and_whole(desk: Desk) -> None:
    path = desk.write("scan.pdf", b"")

    def append(second: int) -> None:
        if second < 10:
            with path.open("ab") as file:
                file.write(b"x" * 1000)

    desk.after(60, append)
    assert desk.taken == [("scan.pdf", b"x" * 10_000)]


def test_a_writer_that_pauses_for_less_than_the_settle_time_is_waited_for(desk: Desk) -> None:
    path = desk.write("scan.pdf", b"1")

    def append(second: int) -> None:
        if second in (4, 8, 12):
            path.write_bytes(path.read_bytes() + b"1")

    desk.after(60, append)
    assert desk.taken == [("scan.pdf", b"1111")]


def test_a_file_is_never_taken_on_its_first_scan(desk: Desk) -> None:
    desk.write("old.pdf")
    desk.watcher.step(desk.now)
    assert desk.taken == []
    desk.watcher.step(desk.now + SETTLE)
    assert desk.taken == [("old.pdf", b"whole")]


def test_create_then_fill_is_taken_filled(desk: Desk) -> None:
    path = desk.write("late.pdf", b"")
    desk.after(120, lambda second: path.write_bytes(b"filled") if second == 100 else None)
    assert desk.taken == [("late.pdf", b"filled")]


def test_a_file_that_stays_empty_is_taken_in_the_end(desk: Desk) -> None:
    desk.write("empty.pdf", b"")
    desk.after(int(EMPTY))
    assert desk.taken == []
    desk.after(int(SCAN) + 2)
    assert desk.taken == [("empty.pdf", b"")]


def test_rename_into_place_is_taken_under_its_new_name(desk: Desk) -> None:
    part = desk.write("scan.pdf.part")
    desk.after(60, lambda second: part.rename(desk.inbox / "scan.pdf") if second == 20 else None)
    assert desk.taken == [("scan.pdf", b"whole")]


def test_a_file_replaced_by_another_of_its_size_and_time_is_not_settled(desk: Desk) -> None:
    path = desk.write("scan.pdf", b"one")
    os.utime(path, (1, 1))

    def replace(second: int) -> None:
        if second == 3:
            other = desk.write("other.part", b"two")
            os.utime(other, (1, 1))
            other.replace(path)

    desk.after(7, replace)
    assert desk.taken == []
    desk.after(10)
    assert desk.taken == [("scan.pdf", b"two")]


def test_a_copy_with_an_old_time_is_taken(desk: Desk) -> None:
    desk.after(40)
    os.utime(desk.write("copy.pdf"), (86_400, 86_400))
    desk.after(60)
    assert desk.taken == [("copy.pdf", b"whole")]


def test_files_that_were_there_before_are_taken(desk: Desk) -> None:
    desk.write("deep/down/here.pdf")
    desk.after(10)
    assert desk.taken == [("deep/down/here.pdf", b"whole")]


@pytest.mark.parametrize(
    "name",
    [
        *("x.pdf.part", "x.crdownload", "~$x.pdf", "._x.pdf", ".DS_Store", "Thumbs.db", ".hidden.pdf", "x.pdf.tmp"),
        *("x.PDF.filepart", "skip-x.pdf", "@eaDir/x.pdf", ".stfolder/x.pdf", "#recycle/x.pdf", "notes.docx", "pagemill.yaml"),
    ],
)
def test_partial_system_and_foreign_files_are_left_alone(desk: Desk, name: str) -> None:
    desk.write(name)
    desk.after(70)
    assert desk.taken == []
    assert desk.watcher.is_idle


def test_foreign_files_are_told_once_and_listed(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    path = desk.write("notes.docx")
    desk.write("pagemill.yaml", b"")
    os.mkfifo(desk.inbox / "pipe.pdf")
    desk.after(100)
    assert desk.watcher.health().foreign == (str(path),)
    assert [record.args for record in caplog.records] == [(path,)]
    assert desk.watcher.is_idle


def test_ordinary_names_are_not_ignored() -> None:
    for name in ("a.pdf", "~draft.pdf", "part.pdf", "tmp.pdf", "Scan 1 (2).TIF", "-x.png", "ä.pdf"):
        assert not ignored_names().match(name.casefold()), name


def test_two_hundred_files_at_once_are_each_taken_once(desk: Desk) -> None:
    for number in range(200):
        desk.write(f"{number:03}.pdf", b"%d" % number)
    desk.after(20)
    assert sorted(desk.taken) == [(f"{number:03}.pdf", b"%d" % number) for number in range(200)]
    assert max(map(len, desk.batches)) == 64
    assert desk.watcher.health().done == 200


def test_without_any_event_everything_is_found_by_scans(desk: Desk) -> None:
    desk.after(40)
    desk.write("silent.pdf")
    desk.after(int(SCAN + SETTLE) + 2)
    assert desk.taken == [("silent.pdf", b"whole")]


def test_a_hint_brings_the_scan_forward_but_not_the_file(desk: Desk) -> None:
    desk.after(3)
    desk.write("quick.pdf")

    def hint(second: int) -> None:
        desk.watcher.hint()

    desk.after(int(SETTLE), hint)
    assert desk.taken == []
    desk.after(2, hint)
    assert desk.taken == [("quick.pdf", b"whole")]


def test_a_clock_set_back_does_not_stop_the_watch(desk: Desk) -> None:
    desk.after(40)
    desk.now -= 100_000
    desk.write("after.pdf")
    desk.after(20)
    assert desk.taken == [("after.pdf", b"whole")]


# What becomes of it


def test_two_names_of_one_content_both_end_and_the_second_is_known_as_a_duplicate(desk: Desk) -> None:
    desk.write("a.pdf")
    desk.write("b.pdf")
    desk.after(10)
    assert [(file.path.name, file.duplicate_of and file.duplicate_of.name) for file in desk.heard] == [
        ("a.pdf", None),
        ("b.pdf", "a.pdf"),
    ]


def test_a_bad_file_leaves_its_reason_and_is_not_tried_again_until_its_bytes_change(desk: Desk) -> None:
    path = desk.write("sub/x.pdf", BAD)
    desk.write("good.pdf")
    desk.after(200)
    assert len(desk.taken) == 2
    record = json.loads((desk.out / "failed/sub/x.pdf.reason.json").read_bytes())
    assert (record["file"], record["reason"], record["moved_to"]) == (str(path), "not a document", None)
    assert record["pages"] == [{"page": 1, "status": "failed", "reason": "not a document"}]
    os.utime(path)  # touched: the same bytes
    desk.restart()
    desk.after(60)
    assert len(desk.taken) == 2
    desk.write("sub/x.pdf", b"mended")
    desk.after(60)
    assert desk.taken[2:] == [("sub/x.pdf", b"mended")]
    assert not (desk.out / "failed/sub/x.pdf.reason.json").exists()


def test_originals_are_never_touched_by_default(desk: Desk) -> None:
    paths = [desk.write("a.pdf"), desk.write("b.pdf", BAD)]
    before = [(path.stat(), path.read_bytes()) for path in paths]
    desk.after(60)
    assert desk.results() == {"a.pdf": "done", "b.pdf": "failed"}
    after = [(path.stat(), path.read_bytes()) for path in paths]
    assert [(s.st_mtime_ns, s.st_ino, s.st_mode, b) for s, b in after] == [
        (s.st_mtime_ns, s.st_ino, s.st_mode, b) for s, b in before
    ]


def test_a_restart_takes_nothing_twice(desk: Desk) -> None:
    desk.write("a.pdf")
    desk.after(10)
    desk.restart()
    desk.after(100)
    assert len(desk.taken) == 1


def test_moved_originals_go_to_done_and_failed_with_the_reason_beside(moving: Desk) -> None:
    moving.write("sub/a.pdf")
    moving.write("b.pdf", BAD)
    moving.after(60)
    assert (moving.out / "done/sub/a.pdf").read_bytes() == b"whole"
    assert (moving.out / "failed/b.pdf").read_bytes() == BAD
    assert json.loads((moving.out / "failed/b.pdf.reason.json").read_bytes())["moved_to"] == str(moving.out / "failed/b.pdf")
    assert [path for path in moving.inbox.rglob("*") if path.is_file()] == []


def test_a_name_used_again_after_a_move_is_another_document(moving: Desk) -> None:
    identities = []
    moving.during = lambda arrival: identities.append(Path(arrival.source).name)
    for content in (b"monday", b"tuesday", b"monday"):
        moving.write("scan.pdf", content)
        moving.after(60)
    assert [content for _, content in moving.taken] == [b"monday", b"tuesday", b"monday"]
    monday, tuesday = (hashlib.sha256(content).hexdigest()[:8] for content in (b"monday", b"tuesday"))
    assert identities == ["scan.pdf", f"scan-{tuesday}.pdf", f"scan-{monday}.pdf"]
    assert sorted(path.name for path in (moving.out / "done").iterdir()) == sorted(identities)


def test_an_emptied_done_folder_makes_no_document_another(moving: Desk) -> None:
    identities = []
    moving.during = lambda arrival: identities.append(Path(arrival.source).name)
    for content in (b"monday", BAD + b"tuesday", b"wednesday", b"monday"):
        moving.write("scan.pdf", content)
        moving.after(60)
        shutil.rmtree(moving.out / "done", ignore_errors=True)
        shutil.rmtree(moving.out / "failed", ignore_errors=True)
        moving.restart()
    tuesday, wednesday = (hashlib.sha256(content).hexdigest()[:8] for content in (BAD + b"tuesday", b"wednesday"))
    assert identities == ["scan.pdf", f"scan-{tuesday}.pdf", f"scan-{wednesday}.pdf", "scan.pdf"]


def test_a_move_to_another_file_system_leaves_the_same_bytes(moving: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def refuse(path: Path, target: Path) -> Path:
        if path.parent == moving.inbox:
            raise OSError(18, "Invalid cross-device link")
        return rename(path, target)

    monkeypatch.setattr(shelves.Path, "rename", refuse)
    moving.write("a.pdf", b"x" * 100_000)
    moving.after(20)
    assert (moving.out / "done/a.pdf").read_bytes() == b"x" * 100_000
    assert [path.name for path in (moving.out / "done").iterdir()] == ["a.pdf"]
    assert list(moving.inbox.iterdir()) == []


def test_a_file_that_changes_while_it_is_read_is_taken_again(moving: Desk) -> None:
    def rewrite(arrival: Arrival) -> None:
        if len(moving.batches) == 1:
            moving.write("a.pdf", b"newer")

    moving.during = rewrite
    moving.write("a.pdf", b"old")
    moving.after(60)
    assert moving.taken == [("a.pdf", b"old"), ("a.pdf", b"newer")]
    assert (moving.out / "done/a.pdf").read_bytes() == b"newer"


def test_a_reason_for_the_longest_name_fits(desk: Desk) -> None:
    desk.write("x" * 251 + ".pdf", BAD)
    desk.after(20)
    assert [path.name.endswith(".reason.json") for path in (desk.out / "failed").iterdir()] == [True]


# What it survives


def test_a_file_deleted_before_or_while_it_is_read_is_no_failure(desk: Desk) -> None:
    first, second = desk.write("first.pdf"), desk.write("second.pdf", BAD)
    desk.during = lambda arrival: arrival.path.unlink()
    desk.after(3, lambda second: first.unlink(missing_ok=True))
    desk.after(60)
    assert desk.heard == []
    assert not second.exists()
    assert desk.watcher.is_idle


def test_a_renamed_file_is_taken_under_its_new_name_too(desk: Desk) -> None:
    path = desk.write("a.pdf")
    desk.after(20)
    path.rename(desk.inbox / "b.pdf")
    desk.after(60)
    assert [name for name, _ in desk.taken] == ["a.pdf", "b.pdf"]
    assert desk.heard[1].duplicate_of == path


def test_a_folder_that_goes_and_comes_back_is_waited_for(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.write("a.pdf")
    desk.after(20)
    away = desk.inbox.rename(desk.inbox.with_name("away"))
    desk.after(100)
    assert "cannot be read" in desk.watcher.health().problems[0]
    assert len([record for record in caplog.records if "cannot be read" in record.message]) == 1
    shutil.copytree(away, desk.inbox)  # other inodes, as after a mount
    desk.write("new.pdf", b"new")
    desk.after(60)
    assert [name for name, _ in desk.taken] == ["a.pdf", "new.pdf"]
    assert desk.watcher.health().problems == ()


@needs_rights
def test_an_unreadable_file_is_held_until_its_rights_are_mended(desk: Desk) -> None:
    path = desk.write("a.pdf")
    path.chmod(0)
    desk.after(100)
    assert "cannot be read" in desk.watcher.health().held[str(path)]
    path.chmod(0o600)
    desk.after(100)
    assert desk.results() == {"a.pdf": "done"}
    assert desk.watcher.health().held == {}


def test_a_file_that_cannot_be_opened_is_held_and_tried_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    path, open_ = desk.write("a.pdf"), Path.open
    desk.write("b.pdf")

    def refuse(self: Path, *arguments: object, **named: object) -> object:
        if self == path:
            raise PermissionError(13, "Permission denied")
        return open_(self, *arguments, **named)  # type: ignore[call-overload]

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refuse)
        desk.after(100)
        assert desk.results() == {"b.pdf": "done"}
        assert desk.watcher.health().held == {str(path): "cannot be read (Permission denied); check its rights"}
    desk.after(100)
    assert desk.results() == {"a.pdf": "done", "b.pdf": "done"}


def test_a_subfolder_that_cannot_be_read_stops_nothing_else(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.write("closed/a.pdf")
    desk.write("open/b.pdf")
    scandir = os.scandir

    def refuse(path: Path) -> Iterator[os.DirEntry[str]]:
        if path == desk.inbox / "closed":
            raise PermissionError(13, "Permission denied")
        return scandir(path)  # type: ignore[return-value]

    monkeypatch.setattr(arrivals.os, "scandir", refuse)
    desk.after(20)
    assert [name for name, _ in desk.taken] == ["open/b.pdf"]
    assert desk.watcher.health().problems == (
        f"{desk.inbox / 'closed'}: cannot be read (Permission denied); waiting until it can",
    )


def test_a_full_disk_is_waited_out_longer_each_time(desk: Desk) -> None:
    desk.raises = [OutputError("the disk is full") for _ in range(3)]
    desk.write("a.pdf")
    desk.after(10)
    assert desk.watcher.health().state == "trouble"
    assert "the disk is full" in desk.watcher.health().problems
    desk.after(30 + 60)
    assert desk.taken == []
    desk.after(130)
    assert desk.results() == {"a.pdf": "done"}
    assert desk.watcher.health().state == "waiting"


def test_a_file_that_raises_the_unexpected_fails_alone(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    def explode(arrival: Arrival) -> Verdict:
        if arrival.path.name == "b.pdf":
            raise RuntimeError("boom")
        return desk.read(arrival)

    desk.verdict = explode
    for name in ("a.pdf", "b.pdf", "c.pdf"):
        desk.write(name, name.encode())
    with caplog.at_level(logging.CRITICAL):
        desk.after(60)
    assert desk.results() == {"a.pdf": "done", "b.pdf": "failed", "c.pdf": "done"}
    assert "RuntimeError: boom" in json.loads((desk.out / "failed/b.pdf.reason.json").read_bytes())["reason"]


def test_an_interrupted_file_is_left_for_the_next_start(desk: Desk) -> None:
    desk.verdict = lambda arrival: Verdict("left")
    desk.write("a.pdf")
    desk.after(8)
    desk.verdict = desk.read
    desk.restart()
    desk.after(10)
    assert desk.results() == {"a.pdf": "done"}


def test_a_torn_journal_line_costs_one_look_and_nothing_else(desk: Desk) -> None:
    for name in ("a.pdf", "b.pdf"):
        desk.write(name, name.encode())
    desk.after(10)
    path = desk.out / "watch.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    desk.restart()
    desk.after(10)
    assert [name for name, _ in desk.taken] == ["a.pdf", "b.pdf", "b.pdf"]
    assert len([json.loads(line) for line in path.read_bytes().splitlines() if line.endswith(b"}")]) == 2


def test_a_long_journal_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "watch.jsonl"
    journal = Journal(path)
    entry = Entry(arrivals.Stamp(1, 2, 3), "hash", "done")
    line = journal.put(Path("a"), entry) or path.read_bytes()
    path.write_bytes(line * (SPARE_LINES + 2))
    assert Journal(path).get(Path("a")) == entry
    assert path.read_bytes() == line


# Places and settings


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ("in/out", "inside it"),
        ("in", "inside it"),
        (".", "does not hold"),
        ("link/out", "inside it"),
        ("in/../in/x/y", "inside it"),
    ],
)
def test_an_output_inside_the_input_is_refused(tmp_path: Path, output: str, says: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "in")
    with pytest.raises(ConfigError, match=says):
        check_places([tmp_path / "in"], {"output.folder": tmp_path / output})
    check_places([tmp_path / "in"], {"output.folder": tmp_path / "in2"})


def test_done_and_health_inside_the_input_and_files_as_inputs_are_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "x.pdf").write_bytes(b"")

    def config(paths: Sequence[Path], **watch: object) -> Config:
        return Config.model_validate(
            {"input": {"paths": [str(path) for path in paths]}, "output": {"folder": str(tmp_path / "out")}, "watch": watch}
        )

    for key in ("done_folder", "failed_folder", "health_file"):
        with pytest.raises(ConfigError, match=f"watch.{key}"):
            places_of(config([tmp_path / "in"], **{key: str(tmp_path / "in" / "x")}))
    for paths, says in (
        ([], "at least one"),
        ([tmp_path / "x.pdf"], "the file"),
        ([tmp_path / "in", tmp_path / "in/sub"], "apart"),
    ):
        with pytest.raises(ConfigError, match=says):
            places_of(config(paths))


@pytest.mark.parametrize(
    ("section", "key", "value", "says"),
    [
        ("input", "paths", ["s3://bucket/in"], "folders of this machine"),
        ("input", "list", "files.txt", "input.list"),
        ("output", "folder", "s3://bucket/out", "a folder of this machine"),
    ],
)
def test_what_cannot_be_watched_is_refused(section: str, key: str, value: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        places_of(Config.model_validate({"input": {"paths": ["in"]}} | {section: {key: value}}))


def test_the_service_files_start_the_watch() -> None:
    folder = ROOT / "samples/services"
    with (folder / "org.pagemill.watch.plist").open("rb") as file:
        agent = plistlib.load(file)
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(folder / "pagemill-watch.service")
    commands = [agent["ProgramArguments"], unit["Service"]["ExecStart"].split()]
    assert [[Path(command[0]).name, command[1]] for command in commands] == [["pagemill", "watch"]] * 2
    assert unit["Service"]["SuccessExitStatus"] == "143"
    assert set(map(int, unit["Service"]["RestartPreventExitStatus"].split())) <= codes.EXIT_CODES.keys()


def test_a_folder_file_changes_the_settings_of_its_files_and_those_below(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("engine: {max_tokens: 10}\nprompt: {text: job}\n")
    (tmp_path / "in/a/b").mkdir(parents=True)
    (tmp_path / "in/a/pagemill.yaml").write_text("prompt: {text: a}\noutput: {formats: [text]}\n")
    (tmp_path / "in/a/b/pagemill.yaml").write_text("prompt: {text: b}\n")
    settings = FolderSettings(job, {"PAGEMILL_ENGINE__SLOTS": "3"}, {})

    def of(place: str) -> tuple[str, tuple[str, ...], int, int]:
        config = settings.of(tmp_path / "in", tmp_path / "in" / place)
        return config.prompt.text, config.output.formats, config.engine.max_tokens, config.engine.slots

    assert of("x.pdf") == ("job", ("markdown",), 10, 3)
    assert of("a/x.pdf") == ("a", ("text",), 10, 3)
    assert of("a/b/x.pdf") == ("b", ("text",), 10, 3)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("output: {folder: elsewhere}", "output.folder: expected settings of one folder"),
        ("watch: {events: false}", "watch: expected settings of one folder"),
        ("engine: {slotz: 3}", "did you mean 'slots'"),
        ("engine: [", "expected YAML"),
    ],
)
def test_a_wrong_folder_file_is_told_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / overrides.FOLDER_FILE).write_text(text)
    with pytest.raises(ConfigError, match=says) as caught:
        FolderSettings(None, {}, {}).of(tmp_path, tmp_path / "x.pdf")
    assert f"{tmp_path / 'pagemill.yaml'}:" in str(caught.value)


# Health and webhook


class Listener(BaseHTTPRequestHandler):
    """Notes what is posted; answers with the statuses of the server, then 200."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = self.server.statuses.pop(0) if self.server.statuses else 200  # type: ignore[attr-defined]
        self.server.posts.append((status, body))  # type: ignore[attr-defined]
        self.send_response(status)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    server = HTTPServer(("127.0.0.1", 0), Listener)
    server.posts, server.statuses = [], []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_webhook_hears_of_each_batch_and_failures_are_sent_again(server: HTTPServer) -> None:
    server.statuses.append(503)  # type: ignore[attr-defined]
    webhook = Webhook(f"http://127.0.0.1:{server.server_port}/hook")
    done = Verdict("done", "", "abc", (), {"ok": 2})
    webhook.hear([Finished(Path("/in/a.pdf"), done, "", Path("/in/b.pdf"))])
    for now in (0.0, 1.0, 2.0, 100.0):
        webhook.step(now)
    told = {
        "event": "files",
        "files": [
            {
                "file": "/in/a.pdf",
                "result": "done",
                "reason": "",
                "sha256": "abc",
                "pages": {"ok": 2},
                "moved_to": None,
                "duplicate_of": "/in/b.pdf",
            }
        ],
    }
    assert server.posts == [(503, told), (200, told)]  # type: ignore[attr-defined]


def test_a_webhook_that_nobody_answers_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    webhook = Webhook("http://127.0.0.1:9/nobody")
    webhook.hear([Finished(Path("/in/a.pdf"), Verdict("done"))])
    for tries in range(WEBHOOK_TRIES):
        assert caplog.records == []
        webhook.step(1000.0 * tries)
    assert [f"gave up a message after {WEBHOOK_TRIES} tries" in record.message for record in caplog.records] == [True]


def test_a_webhook_says_at_the_end_what_it_could_not_deliver(caplog: pytest.LogCaptureFixture, server: HTTPServer) -> None:
    for address, told in ((f"http://127.0.0.1:{server.server_port}/", []), ("http://127.0.0.1:9/nobody", ["2"])):
        webhook = Webhook(address)
        for _ in range(2):
            webhook.hear([Finished(Path("/in/a.pdf"), Verdict("done"))])
        webhook.close()
        assert [record.message.partition(": ")[2].split()[0] for record in caplog.records] == told
    assert len(server.posts) == 2  # type: ignore[attr-defined]


def test_a_webhook_is_http() -> None:
    with pytest.raises(ConfigError, match="http"):
        Webhook("file:///etc/passwd")


def test_the_health_file_is_written_when_something_changes_or_it_grows_old(desk: Desk) -> None:
    path = desk.out / "health.json"
    health = HealthFile(path)
    health.write(desk.watcher.health(), 100.0, longest_seconds=30.0)
    assert json.loads(path.read_bytes())["updated_at"] == "1970-01-01T00:01:40+00:00"
    health.write(desk.watcher.health(), 110.0, longest_seconds=30.0)
    assert json.loads(path.read_bytes())["updated_at"].endswith("01:40+00:00")
    health.write(desk.watcher.health(), 131.0, longest_seconds=30.0)
    assert json.loads(path.read_bytes())["updated_at"].endswith("02:11+00:00")
    desk.write("a.pdf", BAD)
    desk.after(10)
    health.write(desk.watcher.health(), 132.0, longest_seconds=30.0)
    record = json.loads(path.read_bytes())
    assert (record["state"], record["failed"], record["pid"]) == ("waiting", 1, os.getpid())


# The parts together


def image(path: Path, shade: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (56, 56), shade).save(path)
    return path


def echo_config(folder: Path, **watch: object) -> tuple[Config, Places]:
    config = Config.model_validate(
        {
            "input": {"paths": [str(folder / "in")]},
            "output": {"folder": str(folder / "out"), "formats": ["text"]},
            "render": {"workers": 1},
            "watch": {"settle_seconds": 0.2, "scan_seconds": 0.5, **watch},
        }
    )
    return config, places_of(config)


def folder_job(folder: Path) -> Path:
    job = folder / "job.yaml"
    job.write_text("output: {formats: [text]}\nrender: {workers: 1}\n")
    return job


def test_a_batch_is_a_run_of_the_job_with_its_tree_and_its_folders_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []
    monkeypatch.setattr(EchoReader, "__init__", _counted(EchoReader.__init__, opened))
    image(tmp_path / "in/a/x.png", 10)
    image(tmp_path / "in/b/x.png", 20)
    image(tmp_path / "in/b/same.png", 20)
    (tmp_path / "in/b/bad.pdf").write_bytes(b"not a pdf")
    (tmp_path / "in/a/pagemill.yaml").write_text("output: {formats: [jsonl]}\n")
    image(tmp_path / "in/held/y.png", 30)
    (tmp_path / "in/held/pagemill.yaml").write_text("model: {text: nowhere.gguf, mmproj: nowhere.gguf}\n")
    config, places = echo_config(tmp_path)
    settings = FolderSettings(folder_job(tmp_path), {}, {})
    end = run_watch(config, places, settings, open_echo, NoProgress(sys.stderr), once=True)
    assert end == SOME_FAILED
    out = tmp_path / "out"
    made = sorted(p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file() and ".pagemill" not in p.parts)
    assert made == ["a/x.jsonl", "b/bad.txt", "b/same.txt", "b/x.txt", "failed/b/bad.pdf.reason.json"]
    assert (out / "b/x.txt").read_bytes() == (out / "b/same.txt").read_bytes()
    assert len(opened) == 1  # one reader for both groups: formats do not concern it
    health = json.loads((out / ".pagemill/health.json").read_bytes())
    assert list(health["held"]) == [str(tmp_path / "in/held/y.png")]
    assert (health["done"], health["failed"]) == (3, 1)


def test_texts_of_files_that_had_the_same_name_are_all_kept(tmp_path: Path) -> None:
    config, places = echo_config(tmp_path, done="move")
    settings = FolderSettings(folder_job(tmp_path), {}, {})
    texts = set()
    for shade in (10, 20, 10):
        image(tmp_path / "in/scan.png", shade)
        assert run_watch(config, places, settings, open_echo, NoProgress(sys.stderr), once=True) == WatchEnd(None)
        texts.add(tuple(sorted(path.read_bytes() for path in places.output.glob("*.txt"))))
        shutil.rmtree(places.done)
    assert [len(found) for found in sorted(texts, key=len)] == [1, 2]


def test_bytes_that_failed_once_are_tried_again_under_a_new_name(tmp_path: Path) -> None:
    readers = [EchoReader(statuses={0: "failed"}), EchoReader()]

    @contextmanager
    def open_reader(job: JobSpec, provenance: Mapping[str, str]) -> Iterator[OpenReader]:
        yield OpenReader(readers.pop(0), 1540)

    config, places = echo_config(tmp_path)
    settings = FolderSettings(folder_job(tmp_path), {}, {})
    first = image(tmp_path / "in/x.png", 10)  # as if its share had gone while it was read
    assert run_watch(config, places, settings, open_reader, NoProgress(sys.stderr), once=True) == SOME_FAILED
    first.rename(tmp_path / "in/y.png")
    assert run_watch(config, places, settings, open_reader, NoProgress(sys.stderr), once=True) == WatchEnd(None)
    assert (places.output / "y.txt").read_text().startswith("page 1 of")


def test_only_one_watch_runs_on_an_output_folder(tmp_path: Path) -> None:
    import fcntl

    (tmp_path / "in").mkdir()
    config, places = echo_config(tmp_path)
    lock = tmp_path / "out/.pagemill/watch.lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(LedgerError, match="one running"):
            run_watch(config, places, FolderSettings(None, {}, {}), open_echo, NoProgress(sys.stderr), once=True)


def test_a_model_that_is_refused_holds_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise ModelError("cannot run here")

    monkeypatch.setattr("pagemill.jobs.watch.batches.resolve_job", refuse)
    image(tmp_path / "in/x.png", 10)
    config, places = echo_config(tmp_path)
    assert run_watch(config, places, FolderSettings(None, {}, {}), open_echo, NoProgress(sys.stderr), once=True) == SOME_FAILED
    health = json.loads((tmp_path / "out/.pagemill/health.json").read_bytes())
    assert health["held"] == {str(tmp_path / "in/x.png"): "cannot run here"}


def _counted(init: Callable[..., None], calls: list[object]) -> Callable[..., None]:
    def counted(self: object, *arguments: object, **named: object) -> None:
        calls.append(self)
        init(self, *arguments, **named)

    return counted


def test_events_cut_the_wait_short(tmp_path: Path) -> None:
    with file_events([tmp_path], True) as wait:
        deadline, came = time.monotonic() + 20, False
        while not came and time.monotonic() < deadline:  # the listener needs a moment to begin
            (tmp_path / "x.pdf").write_text(str(time.monotonic()))
            came = wait(0.3)
        assert came
    with file_events([tmp_path], False) as wait:
        (tmp_path / "x.pdf").write_text("silent")
        assert not wait(0.3)


@pytest.mark.slow
@pytest.mark.parametrize("events", [True, False])
def test_for_real(tmp_path: Path, server: HTTPServer, events: bool) -> None:
    """The cases of the clock above with a process, the sample model, a webhook and SIGTERM at the end."""
    documents = ROOT / "samples/documents"
    inbox, out = tmp_path / "in", tmp_path / "out"
    shutil.copytree(documents, inbox / "before")
    job = tmp_path / "job.yaml"
    job.write_text(
        "input: {paths: [in]}\noutput: {folder: out, formats: [text]}\nrun: {progress: none}\n"
        f"watch: {{settle_seconds: 1.5, scan_seconds: 3, events: {str(events).lower()}, "
        f"webhook: 'http://127.0.0.1:{server.server_port}/'}}\n"
    )
    watch = subprocess.Popen([sys.executable, "-m", "pagemill", "watch", str(job)], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        label = (documents / "label.png").read_bytes()
        with (inbox / "grows.png").open("wb") as file:  # for ten seconds
            for start in range(0, len(label), len(label) // 30 + 1):
                file.write(label[start : start + len(label) // 30 + 1])
                file.flush()
                time.sleep(10 / 30)
        (inbox / "later.png").touch()
        shutil.copy2(documents / "notice.png", inbox / "copy.part")
        (inbox / "copy.part").rename(inbox / "copy.png")
        (inbox / "bad.pdf").write_bytes(b"no document")
        for number in range(200):
            image(inbox / f"many/{number:03}.png", 255)
        time.sleep(2)
        (inbox / "later.png").write_bytes((documents / "notice.png").read_bytes())
        expected = {path.relative_to(inbox).as_posix() for path in inbox.rglob("*") if path.is_file()}
        deadline = time.monotonic() + 120
        while len(_files_told(server)) < len(expected) and time.monotonic() < deadline and watch.poll() is None:
            time.sleep(0.2)
    finally:
        watch.send_signal(signal.SIGTERM)
        _, said = watch.communicate(timeout=60)
    assert watch.returncode == 143, said
    told = [(str(Path(file["file"]).relative_to(inbox)), file["result"]) for file in _files_told(server)]
    assert sorted(told) == sorted((name, "failed" if name == "bad.pdf" else "done") for name in expected)
    assert (out / "grows.txt").read_bytes() == (out / "before/label.txt").read_bytes()
    assert (out / "later.txt").read_bytes() == (out / "copy.txt").read_bytes() == (out / "before/notice.txt").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("done", ["leave", "move"])
def test_a_watch_that_is_killed_again_and_again_loses_nothing_and_repeats_nothing(tmp_path: Path, done: str) -> None:
    count, source = 60, random.Random(3)
    for number in range(count):
        image(tmp_path / f"in/{number % 7}/{number:03}.png", number)
    bad = tmp_path / "in/bad.pdf"
    bad.write_bytes(b"no document")
    (tmp_path / "job.yaml").write_text(
        "input: {paths: [in]}\noutput: {folder: out, formats: [text]}\nrender: {workers: 1}\n"
        f"watch: {{done: {done}, settle_seconds: 0.1, scan_seconds: 0.3, batch_files: 8, events: false}}\n"
    )
    command = [sys.executable, "-m", "tests.jobs.echo_watch", str(tmp_path)]
    out = tmp_path / "out"
    for _ in range(6):
        before, deadline = len(list(out.rglob("*.txt"))), time.monotonic() + 60
        watch = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
        while len(list(out.rglob("*.txt"))) == before and watch.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.5 * source.random())
        watch.kill()
        watch.wait()
    last = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert last.returncode in (0, 7), last.stderr
    texts = {path.relative_to(out).as_posix() for path in out.rglob("*.txt")}
    assert texts == {f"{number % 7}/{number:03}.txt" for number in range(count)} | {"bad.txt"}
    assert [path.name for path in (out / "failed").rglob("*.json")] == ["bad.pdf.reason.json"]
    left = {path.name for path in (tmp_path / "in").rglob("*") if path.is_file()}
    put = {path.name for path in (out / "done").rglob("*") if path.is_file()}
    names = {f"{number:03}.png" for number in range(count)}
    assert (left, put) == ((names | {"bad.pdf"}, set()) if done == "leave" else (set(), names))
    assert [path for path in out.rglob("*") if path.name.endswith(TEMP_SUFFIX)] == []
    with closing(sqlite3.connect(out / ".pagemill/ledger.sqlite3")) as ledger:
        twice = "select page_id from attempt join page on page.id = page_id where ended = 'finished' and status = 'ok' "
        assert ledger.execute(twice + "group by page_id having count(*) > 1").fetchall() == []


def _files_told(server: HTTPServer) -> list[dict[str, str]]:
    return [file for status, body in server.posts for file in body["files"]]  # type: ignore[attr-defined]
