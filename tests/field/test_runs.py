"""Field complaints 17 to 27: whole runs over folders of trouble; nothing is lost, overwritten, merged or changed."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest

from pagemill.jobs.run.job import Report, run_job
from pagemill.jobs.run.progress import NoProgress
from pagemill.jobs.settings.config import Config
from tests.field.files import square_page
from tests.jobs.echo_job import echo_job, open_echo
from tests.pipeline.inputs import pdf_bytes

TEN = pdf_bytes([(100, 100)] * 10)

Statuses = dict[str, list[str]]


def run(output: Path, inputs: Sequence[str | Path], **sections: object) -> Report:
    """A run of the real parts but the model.  sections: settings that differ."""
    retry = bool(sections.pop("retry_failed", False))
    job = echo_job(output, [], retry_failed=retry)
    config = Config.model_validate({**job.config.model_dump(), **sections})
    return run_job(replace(job, inputs=tuple(inputs), config=config), open_echo, NoProgress(sys.stderr))


def statuses(report: Report) -> Statuses:
    """Document -> the status of each of its pages."""
    found: Statuses = {}
    for document, _, outcome in report.pages:
        found.setdefault(document.found.relative.as_posix(), []).append(outcome.status if outcome else "left")
    return found


def lines(output: Path) -> dict[str, list[dict[str, object]]]:
    """Output -> the records of its pages."""
    return {
        path.relative_to(output).as_posix(): [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        for path in sorted(output.rglob("*.jsonl"))
    }


def hashes(folder: Path) -> dict[Path, str]:
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    folder = tmp_path / "scans"
    folder.mkdir()
    return folder


def fill(folder: Path, **files: bytes) -> None:
    for name, content in files.items():
        (folder / f"{name}.pdf").write_bytes(content)


def test_one_bad_document_among_ten_fails_alone_and_is_retried_alone(scans: Path, tmp_path: Path) -> None:  # 17
    fill(scans, **{f"good{number}": square_page(f"0 0 {200 + number} 300") for number in range(9)}, bad=TEN[:70])
    first = run(tmp_path / "out", [scans])
    assert statuses(first) == {"bad.pdf": ["failed"], **{f"good{number}.pdf": ["ok"] for number in range(9)}}
    (scans / "bad.pdf").write_bytes(square_page("0 0 222 333"))
    second = run(tmp_path / "out", [scans], retry_failed=True)
    assert second.new_pages == 1
    assert statuses(second) == {f"{path.stem}.pdf": ["ok"] for path in scans.iterdir()}


def test_a_cut_document_among_good_ones_stops_nothing(scans: Path, tmp_path: Path) -> None:  # 18, 19
    fill(
        scans,
        a=square_page("0 0 201 300"),
        b=square_page("0 0 202 300"),
        c=square_page("0 0 203 300"),
        cut=TEN[: len(TEN) // 2],
    )
    report = run(tmp_path / "out", [scans])
    ended = statuses(report)
    assert {name: set(pages) for name, pages in ended.items() if name != "cut.pdf"} == {f"{name}.pdf": {"ok"} for name in "abc"}
    assert len(ended["cut.pdf"]) == 10  # as many as it once had
    assert ended["cut.pdf"].count("failed") >= 5
    assert sum(report.counts.values()) == len(report.pages) == 13
    assert {name: len(pages) for name, pages in lines(tmp_path / "out").items()} == {
        **{f"{name}.jsonl": 1 for name in "abc"},
        "cut.jsonl": 10,
    }


def test_every_page_of_every_input_is_counted_and_written(scans: Path, tmp_path: Path) -> None:  # 19
    fill(scans, empty=b"", text=b"Dear Sir", ten=TEN, locked=pdf_bytes(user="x", owner="y"), one=square_page())
    report = run(tmp_path / "out", [scans])
    assert {name: len(pages) for name, pages in statuses(report).items()} == {
        "empty.pdf": 1,
        "text.pdf": 1,
        "ten.pdf": 10,
        "locked.pdf": 1,
        "one.pdf": 1,
    }
    assert report.counts == {"ok": 11, "failed": 3}
    assert sum(len(pages) for pages in lines(tmp_path / "out").values()) == 14
    assert all(outcome and outcome.reason for _, _, outcome in report.troubled)


@pytest.mark.parametrize("form", ["absolute", "relative", "through the parent", "folder", "folder/.."])
def test_output_is_where_its_input_says_however_it_is_written(  # 22
    scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    fill(scans, page=square_page())
    (scans / "deeper").mkdir()
    monkeypatch.chdir(scans / "deeper")
    written = {
        "absolute": str(scans / "page.pdf"),
        "relative": os.path.relpath(scans / "page.pdf"),
        "through the parent": "../../scans/page.pdf",
        "folder": str(scans),
        "folder/..": "..",
    }[form]
    run(tmp_path / "out", [written])
    assert (tmp_path / "out/page.md").is_file()


def test_inputs_of_one_name_are_each_written(scans: Path, tmp_path: Path) -> None:  # 23
    names = ("a/x.pdf", "b/x.pdf", "x.png", "x.PDF", "X.pdf", "x.pdf.pdf")
    for number, name in enumerate(names):
        (scans / name).parent.mkdir(exist_ok=True)
        (scans / name).write_bytes(square_page(f"0 0 {300 + number} 300"))
    run(tmp_path / "out", [scans])
    written = lines(tmp_path / "out")
    assert len({name.casefold() for name in written}) == len(names)
    assert sorted(page["document"] for pages in written.values() for page in pages) == sorted(names)


NAMES = {
    "255 bytes": ("n" * 251 + ".pdf").encode(),
    "255 bytes, another": ("n" * 250 + "m.pdf").encode(),
    "composed": "\u00e4.pdf".encode(),
    "decomposed": "a\u0308.pdf".encode(),
    "Chinese": "医学報告.pdf".encode(),
    "emoji": "📜.pdf".encode(),
    "space at the end": b"trailing .pdf",
    "dot at the end": b"trailing..pdf",
    "dash in front": b"-rf.pdf",
    "newline": b"a\nb.pdf",
    "undecodable": b"caf\xe9.pdf",
    "undecodable, another": b"caf\xe8.pdf",
    "quote and star": b"'*\"?.pdf",
    "right to left": "\u202efdp.pdf".encode(),
}


def test_every_name_is_read_and_written(scans: Path, tmp_path: Path) -> None:  # 24
    for number, name in enumerate(NAMES.values()):
        with open(os.path.join(os.fsencode(scans), name), "wb") as file:
            file.write(square_page(f"0 0 {300 + number} 300"))
    report = run(tmp_path / "out", [scans])
    assert report.counts == {"ok": len(NAMES)}
    written = sorted(path.name for path in (tmp_path / "out").rglob("*.md"))
    assert len({name.casefold() for name in written}) == len(NAMES)
    for name in written:
        assert len(os.fsencode(name)) <= 255
        name.encode("utf-8")  # no surrogate is left
        assert not any(ord(letter) < 32 for letter in name)
    assert "caf%E9.md" in written
    assert run(tmp_path / "out", [scans]).new_pages == 0


def test_originals_stay_as_they_were(scans: Path, tmp_path: Path) -> None:  # 26
    fill(scans, one=square_page(), cut=TEN[: len(TEN) // 2], locked=pdf_bytes(user="x", owner="y"), empty=b"")
    with zipfile.ZipFile(scans / "box.zip", "w") as archive:
        archive.writestr("in.pdf", square_page("0 0 222 222"))
    before = hashes(scans)
    run(tmp_path / "out", [scans])
    assert hashes(scans) == before


def test_pages_keep_their_order_though_they_end_out_of_it(scans: Path, tmp_path: Path) -> None:  # 27
    fill(scans, many=pdf_bytes([(200 + number, 300) for number in range(25)]))
    run(tmp_path / "out", [scans])
    (pages,) = lines(tmp_path / "out").values()
    assert [str(page["text"]).split()[1] for page in pages] == [str(number) for number in range(1, 26)]


def test_each_document_has_its_own_password(scans: Path, tmp_path: Path) -> None:  # 39
    for name in ("one", "two", "free"):
        (scans / name).mkdir()
    (scans / "one/a.pdf").write_bytes(pdf_bytes(user="first", owner="o"))
    (scans / "two/a.pdf").write_bytes(pdf_bytes([(200, 200)], user="second", owner="o"))
    (scans / "free/a.pdf").write_bytes(square_page())
    passwords = {"password": "second", "passwords": {"one/*": "first"}}
    assert statuses(run(tmp_path / "out", [scans], input=passwords)) == {
        "free/a.pdf": ["ok"],
        "one/a.pdf": ["ok"],
        "two/a.pdf": ["ok"],
    }


def test_lists_archives_and_addresses_are_read_in_one_run(scans: Path, tmp_path: Path) -> None:
    fill(scans, plain=square_page("0 0 210 300"))
    with zipfile.ZipFile(scans / "box.zip", "w") as archive:
        archive.writestr("../evil.pdf", square_page("0 0 220 300"))
    (tmp_path / "member.pdf").write_bytes(square_page("0 0 230 300"))
    with tarfile.open(scans / "box.tgz", "w:gz") as tar:
        tar.add(tmp_path / "member.pdf", "deep/member.pdf")
    files = fsspec.filesystem("memory")
    files.pipe("/runs/far.pdf", square_page("0 0 240 300"))
    (tmp_path / "list.txt").write_text(f"{scans}\nmemory://runs\n")
    output = tmp_path / "out"
    report = run(output, [f"@{tmp_path / 'list.txt'}"])
    files.rm("/runs", recursive=True)
    assert report.counts == {"ok": 4}
    assert sorted(path.relative_to(output).as_posix() for path in output.rglob("*.md")) == [
        "far.md",
        "scans/box.tgz/deep/member.md",
        "scans/box.zip/evil.md",
        "scans/plain.md",
    ]
    assert not any((output / ".pagemill/inputs").glob("*/"))
