"""From inputs to documents: order, what is left out, and what counts as a failed page."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pagemill.jobs.errors import InputError
from pagemill.jobs.inputs.discover import find_files, open_documents
from pagemill.pipeline.errors import TooLarge, Unreadable


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("b/2.PDF", "b/1.png", "a.tiff", "notes.md", ".hidden.pdf", ".cache/x.pdf", "~$a.pdf", "z.jpeg"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(name.encode())
    return tmp_path


def test_folder_is_walked_in_the_order_of_names_without_what_is_no_document(tree: Path) -> None:
    assert [str(file.relative) for file in find_files([tree])] == ["a.tiff", "z.jpeg", "b/1.png", "b/2.PDF"]


def test_named_file_is_taken_whatever_it_is_called(tree: Path) -> None:
    assert [str(file.relative) for file in find_files([tree / "notes.md", tree / ".hidden.pdf"])] == ["notes.md", ".hidden.pdf"]


def test_file_that_is_named_twice_is_one(tree: Path) -> None:
    assert len(find_files([tree / "a.tiff", tree, tree / "b" / ".." / "a.tiff"])) == 4


def test_missing_inputs_are_told_together_before_any_work(tree: Path) -> None:
    with pytest.raises(InputError, match=r"found nothing at: nope\.pdf, neither; check the spelling"):
        find_files([tree, Path("nope.pdf"), Path("neither")])


def test_folder_without_documents_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found none"):
        find_files([tmp_path])


def test_document_that_does_not_open_counts_as_one_page_with_its_error(tree: Path) -> None:
    def count(path: Path) -> int:
        if path.name == "1.png":
            raise Unreadable("damaged")
        return 3

    documents = list(open_documents(find_files([tree]), count, 10))
    assert [document.pages for document in documents] == [3, 3, 1, 3]
    assert [str(document.error) for document in documents if document.error] == ["damaged"]


def test_document_beyond_the_page_limit_fails_as_a_whole(tree: Path) -> None:
    (document,) = open_documents(find_files([tree / "a.tiff"]), lambda path: 11, 10)
    assert document.pages == 1
    assert isinstance(document.error, TooLarge)


def test_identity_is_the_content_and_not_the_name(tree: Path) -> None:
    (tree / "copy.tiff").write_bytes((tree / "a.tiff").read_bytes())
    first, copy, other = open_documents(find_files([tree / "a.tiff", tree / "copy.tiff", tree / "z.jpeg"]), lambda path: 1, 10)
    assert first.content_hash == copy.content_hash != other.content_hash


def test_unreadable_file_is_a_failed_page(tree: Path) -> None:
    files = find_files([tree / "a.tiff"])
    (tree / "a.tiff").unlink()
    (document,) = open_documents(files, lambda path: 1, 10)
    assert "cannot be read" in str(document.error)


def test_name_of_undecodable_bytes_has_a_source_that_the_ledger_can_hold(tmp_path: Path) -> None:
    path = os.path.join(os.fsencode(tmp_path), b"\xff.pdf")
    Path(os.fsdecode(path)).write_bytes(b"x")
    (file,) = find_files([tmp_path])
    assert file.source.encode("utf-8").endswith(b"\\xff.pdf")
