"""check, status, verify, retry-failed and report.json: an output folder answers for every page of every input."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image

from pagemill.jobs.cli.codes import EXIT_CODES, NOT_AS_WRITTEN, SOME_FAILED
from pagemill.jobs.run.job import OpenReader
from pagemill.jobs.run.report import counts_table
from pagemill.jobs.run.spec import JobSpec
from pagemill.pipeline.durable import TEMP_SUFFIX
from pagemill.pipeline.page import Attempt, PageImage, PageText
from tests.fakes import EchoReader
from tests.jobs.test_cli import Pagemill, pagemill

assert pagemill  # a fixture

ENDS = ("ok", "looped", "truncated", "low_confidence", "blank", "ok", "failed")


class Mixed(EchoReader):
    """The pages of many.tiff end in every way; page 6 after a second try.  better: a later model, under which all are ok."""

    better = False
    read = 0

    def __init__(self) -> None:
        super().__init__(slots=4, statuses={} if self.better else dict(enumerate(ENDS)))

    def _answer(self, image: PageImage) -> PageText:
        Mixed.read += 1
        text = super()._answer(image)
        tries = ("", "temperature 0.2") if image.ref.page == 5 and not self.better else ("",)
        attempts = tuple(Attempt(how, "looped" if how == "" and len(tries) > 1 else text.status) for how in tries)
        return PageText(
            text.ref, text.text, text.status, text.reason, 5, -0.25, {}, text.provenance, attempts, measures={"mark_px": 7.0}
        )


@contextmanager
def open_mixed(job: JobSpec, provenance: Mapping[str, str]) -> Iterator[OpenReader]:
    yield OpenReader(Mixed(), 1540)


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "in"
    folder.mkdir()
    frames = [Image.new("L", (140, 84), 255 - index) for index in range(len(ENDS))]
    frames[0].save(folder / "many.tiff", save_all=True, append_images=frames[1:])
    (folder / "bad.pdf").write_bytes(b"no pdf")
    monkeypatch.setattr("pagemill.jobs.run.opening.open_reader", open_mixed)
    monkeypatch.setattr(Mixed, "better", False)
    monkeypatch.setattr(Mixed, "read", 0)
    return folder


@pytest.fixture
def output(pagemill: Pagemill, inputs: Path, tmp_path: Path) -> Path:
    said = pagemill("run", inputs, "-o", tmp_path / "out", "--format", "markdown,text", "--progress", "none")
    assert said.code == SOME_FAILED
    return tmp_path / "out"


def report_of(output: Path) -> dict[str, object]:
    return json.loads((output / "report.json").read_text(encoding="ascii"))  # type: ignore[no-any-return]


def statuses(output: Path) -> list[str]:
    pages = report_of(output)["pages"]
    assert isinstance(pages, list)
    return [page["status"] for page in pages]


FINAL = ["failed", "ok", "looped", "truncated", "low_confidence", "blank", "retried", "failed"]


def test_report_has_every_page_once_with_its_final_status(output: Path, inputs: Path) -> None:
    report = report_of(output)
    assert statuses(output) == FINAL
    assert report["counts"] == {
        "ok": 1,
        "retried": 1,
        "low_confidence": 1,
        "blank": 1,
        "truncated": 1,
        "looped": 1,
        "failed": 2,
    }
    assert [document["pages"] for document in report["documents"]] == [1, len(ENDS)]  # type: ignore[attr-defined]
    page = report["pages"][6]  # type: ignore[index]
    assert (page["page"], page["attempts"], page["measures"]) == (6, 2, {"mark_px": 7.0})
    assert page["confidence"] == pytest.approx(0.7788)
    assert report["run"]["ended"] == "finished"  # type: ignore[index]


def test_table_ends_a_run_and_its_sums_are_the_counts(pagemill: Pagemill, output: Path, inputs: Path) -> None:
    said = pagemill("run", inputs, "-o", output, "--format", "markdown,text", "--progress", "none").err
    (head, *_, total) = [line.split() for line in said.splitlines() if line.startswith(("  ", "all"))]
    assert dict(zip(head, total[1:], strict=True)) == {
        "pages": "8",
        "ok": "1",
        "retried": "1",
        "low_confidence": "1",
        "blank": "1",
        "truncated": "1",
        "looped": "1",
        "failed": "2",
    }


def test_table_of_many_documents_shows_those_that_are_not_ok() -> None:
    rows = [(f"{number}.pdf", {"ok": 2} if number != 7 else {"ok": 1, "failed": 1}) for number in range(30)]
    lines = counts_table(rows)
    assert [line.split() for line in lines] == [
        ["pages", "ok", "failed"],
        ["7.pdf", "2", "1", "1"],
        ["...", "29", "more", "documents"],
        ["all", "60", "59", "1"],
    ]


def test_status_counts_what_the_report_counts(pagemill: Pagemill, output: Path) -> None:
    said = pagemill("status", output)
    assert said.code == 0
    assert "many.tiff, page 2: looped: as told" in said.out
    assert said.out.splitlines()[-1].endswith(", finished")
    told = json.loads(pagemill("status", output, "--json").out)
    assert told["counts"] == report_of(output)["counts"]
    assert len(told["troubled"]) == 6


@pytest.mark.parametrize("command", ["status", "verify", "retry-failed"])
def test_folder_without_a_ledger_is_told(pagemill: Pagemill, tmp_path: Path, command: str) -> None:
    said = pagemill(command, tmp_path)
    assert (said.code, "expected an output folder of Pagemill" in said.err) == (4, True)


def test_untouched_folder_verifies(pagemill: Pagemill, output: Path) -> None:
    said = pagemill("verify", output)
    assert (said.code, said.out) == (0, "4 files and 8 pages checked: nothing wrong\n")


def test_every_wrong_file_is_named(pagemill: Pagemill, output: Path, inputs: Path) -> None:
    (output / "many.md").unlink()
    text = (output / "many.txt").read_bytes()
    (output / "many.txt").write_bytes(text[:-1] + b"!")
    (output / "bad.md").write_bytes(b"")
    said = pagemill("verify", output)
    assert said.code == NOT_AS_WRITTEN
    assert NOT_AS_WRITTEN in EXIT_CODES
    wrong = said.out.splitlines()[:3]
    assert [line.split(":")[:2] for line in wrong] == [
        ["changed", " bad.md"],
        ["missing", " many.md"],
        ["changed", " many.txt"],
    ]
    for path in output.glob("[bm]*.*"):
        path.unlink()
    pagemill("run", inputs, "-o", output, "--format", "markdown,text", "--progress", "none")
    assert pagemill("verify", output).code == 0


def test_record_that_has_gone_is_named_and_made_again(pagemill: Pagemill, output: Path, inputs: Path) -> None:
    (folder,) = (output / ".pagemill" / "pages").iterdir()
    for path in folder.iterdir():
        path.unlink()
    said = pagemill("verify", output)
    assert said.code == NOT_AS_WRITTEN
    assert "missing: the record of " in said.out
    pagemill("run", inputs, "-o", output, "--format", "markdown,text", "--progress", "none")
    assert pagemill("verify", output).code == 0
    assert statuses(output) == FINAL


@pytest.mark.parametrize("by", ["folder", "job file"])
@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (None, ["failed", "ok", "looped", "truncated", "low_confidence", "blank", "retried", "ok"]),
        ("failed,looped,truncated", ["failed", "ok", "ok", "ok", "low_confidence", "blank", "retried", "ok"]),
    ],
    ids=["failed", "three"],
)
def test_pages_that_ended_badly_are_done_again_and_no_other(
    pagemill: Pagemill,
    output: Path,
    inputs: Path,
    monkeypatch: pytest.MonkeyPatch,
    by: str,
    wanted: str | None,
    expected: list[str],
) -> None:
    monkeypatch.setattr(Mixed, "better", True)
    job = inputs.parent / "job.yaml"
    job.write_text("input: {paths: [in]}\noutput: {folder: out, formats: [markdown, text]}\n", encoding="utf-8")
    before = Mixed.read
    options = [] if wanted is None else ["--status", wanted]
    said = pagemill("retry-failed", output if by == "folder" else job, *options, "--progress", "none")
    assert said.code == SOME_FAILED  # bad.pdf is still none
    assert Mixed.read - before == (1 if wanted is None else 3)
    assert [status.replace("retried", "ok") for status in statuses(output)] == [
        one.replace("retried", "ok") for one in expected
    ]
    assert "failed" not in (output / "many.md").read_text(encoding="utf-8")
    assert pagemill("verify", output).code == 0


def test_other_formats_read_no_page_again(pagemill: Pagemill, output: Path, inputs: Path) -> None:
    before = Mixed.read
    said = pagemill("run", inputs, "-o", output, "--format", "jsonl", "--progress", "none")
    assert said.code == SOME_FAILED
    assert Mixed.read == before
    assert (output / "many.jsonl").exists()
    assert len((output / "many.jsonl").read_text(encoding="utf-8").splitlines()) == len(ENDS)


def test_check_counts_measures_and_writes_nothing(pagemill: Pagemill, inputs: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    said = pagemill("check", inputs, "--sample", 3)
    assert said.code == SOME_FAILED
    assert "bad.pdf: not a document" in said.out
    for told in ("many.tiff: 7 pages", "2, 1 of them cannot be read", "8, 0 of them are done already, 7 are left to read"):
        assert told in said.out
    assert "measured   2 pages in" in said.out
    assert "time       about" in said.out
    assert "disk       about" in said.out
    assert sorted(tmp_path.rglob("*")) == before


def test_check_knows_what_is_done(pagemill: Pagemill, output: Path, inputs: Path) -> None:
    job = inputs.parent / "job.yaml"
    job.write_text("input: {paths: [in]}\noutput: {folder: out}\n", encoding="utf-8")
    said = pagemill("check", job, "--sample", 0)
    assert "8, 7 of them are done already, 0 are left to read" in said.out
    assert "measured" not in said.out
    connection = sqlite3.connect(output / ".pagemill" / "ledger.sqlite3")
    connection.execute("pragma user_version = 1")  # as an earlier Pagemill left it
    connection.close()
    assert "8, 7 of them are done already" in pagemill("check", job, "--sample", 0).out
    said = pagemill("status", output)
    assert (said.code, "give its run command again" in said.err) == (8, True)


def test_no_temporary_file_is_left(output: Path) -> None:
    assert list(output.rglob(f"*{TEMP_SUFFIX}*")) == []
