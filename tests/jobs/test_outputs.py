"""Outputs: named for good, nothing of others overwritten, written again when a page was."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path, PurePath

import pytest

from pagemill.jobs.errors import DiskFull
from pagemill.jobs.inputs.discover import Document, Found
from pagemill.jobs.ledger.ledger import Ledger, Outcome
from pagemill.jobs.ledger.owner import this_process
from pagemill.jobs.ledger.records import StoredPages
from pagemill.jobs.run.outputs import DocumentOutputs
from pagemill.pipeline.page import PageText
from pagemill.pipeline.sinks import Per


def document(path: str, pages: int = 1, content: str | None = None) -> Document:
    return Document(Found(Path(path), PurePath(Path(path).name)), content or path.strip("/").replace("/", "-"), pages)


class Folder:
    """An output folder, its ledger and its store; each ``write`` is a run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ledger = Ledger(root / ".pagemill" / "ledger.sqlite3", this_process())
        self.ledger.begin("m", "s", "{}", 0)
        self.store = StoredPages(root / ".pagemill" / "pages")

    def write(
        self, *documents: Document, text: str = "hello", formats: tuple[str, ...] = ("markdown",), per: Per = "document"
    ) -> list[str]:
        """Finish the documents' pages where they are not yet, settle; returns the names of what lies there."""
        outputs = DocumentOutputs(self.root, formats, self.ledger, self.store, per)
        outputs.name_documents(documents)
        for one in documents:
            self.ledger.want(one.refs, [one.found.source] * one.pages)
            for claim in self.ledger.claim(0, 99, 1.0):
                self.store.put([PageText(claim.ref, f"{text} {one.found.path}", "ok")])
                self.ledger.finish([(claim, Outcome("ok"))], 0)
            outputs.settle(one)
        return self.names()

    def names(self) -> list[str]:
        paths = [path for path in self.root.rglob("*") if path.is_file() and ".pagemill" not in path.parts]
        return sorted(str(path.relative_to(self.root)) for path in paths)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    folder = Folder(tmp_path)
    yield folder
    folder.store.close()
    folder.ledger.close()


def test_output_is_named_after_its_input(folder: Folder) -> None:
    assert folder.write(document("/a/scan.pdf"), formats=("markdown", "text", "jsonl")) == ["scan.jsonl", "scan.md", "scan.txt"]
    assert (folder.root / "scan.md").read_text(encoding="utf-8") == "hello /a/scan.pdf\n"


def test_inputs_of_one_name_do_not_overwrite_each_other_in_one_run(folder: Folder) -> None:
    names = folder.write(document("/a/x.pdf"), document("/b/x.pdf"), document("/a/X.png"))
    assert len(names) == 3
    assert {(folder.root / name).read_text(encoding="utf-8") for name in names} == {
        "hello /a/x.pdf\n",
        "hello /b/x.pdf\n",
        "hello /a/X.png\n",
    }


def test_inputs_of_one_name_do_not_overwrite_each_other_in_two_runs(folder: Folder) -> None:
    folder.write(document("/a/x.pdf"))
    names = folder.write(document("/b/x.pdf"))
    assert len(names) == 2
    assert (folder.root / "x.md").read_text(encoding="utf-8") == "hello /a/x.pdf\n"
    assert folder.write(document("/a/x.pdf"), document("/b/x.pdf")) == names


def test_file_that_is_not_ours_is_not_overwritten(folder: Folder) -> None:
    (folder.root / "x.txt").write_text("mine", encoding="utf-8")
    names = folder.write(document("/a/x.pdf"))
    assert len(names) == 2
    assert (folder.root / "x.txt").read_text(encoding="utf-8") == "mine"
    assert "x.md" not in names


def test_document_that_changed_replaces_its_own_output(folder: Folder) -> None:
    folder.write(document("/a/x.pdf", content="1"))
    assert folder.write(document("/a/x.pdf", content="2"), text="new") == ["x.md"]
    assert (folder.root / "x.md").read_text(encoding="utf-8") == "new /a/x.pdf\n"


def test_fresh_output_is_left_alone(folder: Folder) -> None:
    folder.write(document("/a/x.pdf"))
    before = (folder.root / "x.md").stat().st_mtime_ns
    folder.write(document("/a/x.pdf"))
    assert (folder.root / "x.md").stat().st_mtime_ns == before


def test_deleted_output_and_new_format_are_written_from_the_records(folder: Folder) -> None:
    folder.write(document("/a/x.pdf"))
    (folder.root / "x.md").unlink()
    assert folder.write(document("/a/x.pdf"), formats=("markdown", "text")) == ["x.md", "x.txt"]


def test_page_that_was_redone_is_written_again(folder: Folder) -> None:
    one = document("/a/x.pdf")
    folder.write(one)
    folder.ledger.reopen(one.refs[:1])
    folder.write(one, text="again")
    assert (folder.root / "x.md").read_text(encoding="utf-8") == "again /a/x.pdf\n"


def test_file_a_page_is_written_where_it_is_asked_for(folder: Folder) -> None:
    one = document("/a/x.pdf", pages=2)
    assert folder.write(one, formats=("markdown", "alto", "mets"), per="page") == [
        "x.mets.xml", "x.p0001.alto.xml", "x.p0001.md", "x.p0002.alto.xml", "x.p0002.md",
    ]  # fmt: skip
    times = {path: path.stat().st_mtime_ns for path in folder.root.glob("x.*")}
    folder.write(one, formats=("markdown", "alto", "mets"), per="page")
    assert {path: path.stat().st_mtime_ns for path in folder.root.glob("x.*")} == times
    assert "x.md" in folder.write(one)


def test_pages_of_another_document_are_not_overwritten(folder: Folder) -> None:
    folder.write(document("/a/x.pdf"), per="page")
    names = folder.write(document("/b/x.p0001.pdf"))
    assert len(names) == 2
    assert (folder.root / "x.p0001.md").read_text(encoding="utf-8") == "hello /a/x.pdf\n"


def test_outputs_written_again_have_the_dates_of_the_records(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    one = document("/a/x.pdf")
    formats = ("html", "hocr", "alto", "page_xml", "mets", "dolma")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    before = {name: (folder.root / name).read_bytes() for name in folder.write(one, formats=formats)}
    for name in before:
        assert b"1970-01-02T00:00:00Z" in before[name], name
        (folder.root / name).unlink()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "999999999")
    assert {name: (folder.root / name).read_bytes() for name in folder.write(one, formats=formats)} == before


def test_full_disk_is_told_as_such(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pagemill.pipeline.sinks.write_durably", no_space)
    with pytest.raises(DiskFull, match=r"the disk is full \(No space left on device"):
        folder.write(document("/a/y.pdf"))
