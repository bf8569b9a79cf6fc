"""Outputs at an address: copied whole, once, again when they change; the ledger stays here."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest

from pagemill.jobs.errors import ConfigError, OutputError
from pagemill.jobs.run.copies import COPY_SECONDS, OutputCopies, copies_of
from pagemill.jobs.run.job import run_job
from pagemill.jobs.run.progress import NoProgress
from pagemill.jobs.run.spec import JobSpec, resolve_job
from pagemill.jobs.settings.config import Config
from pagemill.pipeline.durable import TEMP_SUFFIX
from tests.field.files import square_page
from tests.jobs.echo_job import echo_job, open_echo

ADDRESS = "memory://copies/run"


@pytest.fixture(autouse=True)
def store() -> Iterator[fsspec.AbstractFileSystem]:
    files = fsspec.filesystem("memory")
    yield files
    if files.exists("/copies"):
        files.rm("/copies", recursive=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.md", "deep/b.md", ".pagemill/ledger.sqlite3", f".x{TEMP_SUFFIX}"):
        path = tmp_path / "out" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "out"


def there(store: fsspec.AbstractFileSystem) -> dict[str, bytes]:
    return {path.removeprefix("/copies/run/"): store.cat(path) for path in store.find("/copies")}


def test_whole_outputs_are_copied_and_nothing_of_the_ledger(folder: Path, store: fsspec.AbstractFileSystem) -> None:
    assert OutputCopies(folder, ADDRESS).copy() == 2
    assert there(store) == {"a.md": b"a.md", "deep/b.md": b"deep/b.md"}


def test_only_what_changed_is_copied_again(folder: Path, store: fsspec.AbstractFileSystem) -> None:
    OutputCopies(folder, ADDRESS).copy()
    (folder / "a.md").write_text("changed")
    os.utime(folder / "a.md", ns=(0, 1))
    assert OutputCopies(folder, ADDRESS).copy() == 1
    assert OutputCopies(folder, ADDRESS).copy() == 0
    assert there(store)["a.md"] == b"changed"
    assert OutputCopies(folder, f"{ADDRESS}/elsewhere").copy() == 2


def test_trouble_is_an_output_error_and_the_rest_is_copied_later(
    folder: Path, store: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = type(store).put_file

    def refuse(self: object, source: str, target: str) -> None:
        if target.endswith("b.md"):
            raise PermissionError("not yours")
        put(store, source, target)

    with monkeypatch.context() as patch:
        patch.setattr(type(store), "put_file", refuse)
        with pytest.raises(OutputError, match="PermissionError: not yours; they are whole in"):
            OutputCopies(folder, ADDRESS).copy()
    assert OutputCopies(folder, ADDRESS).copy() == 1


def test_copies_are_made_now_and_then_while_a_job_runs(folder: Path, store: fsspec.AbstractFileSystem) -> None:
    now = [0.0]
    copies = OutputCopies(folder, ADDRESS, lambda: now[0])
    copies.copy_sometimes()
    assert not store.exists("/copies")
    now[0] = COPY_SECONDS
    copies.copy_sometimes()
    assert len(there(store)) == 2


def job_to(output: Path, address: str, inputs: list[Path]) -> JobSpec:
    job = echo_job(output, inputs)
    values = job.config.model_dump()
    values["output"] |= {"copy_to": address}
    return replace(job, config=Config.model_validate(values))


def test_a_run_copies_what_it_writes(tmp_path: Path, store: fsspec.AbstractFileSystem) -> None:
    (tmp_path / "a.pdf").write_bytes(square_page())
    run_job(job_to(tmp_path / "out", ADDRESS, [tmp_path / "a.pdf"]), open_echo, NoProgress(sys.stderr))
    assert sorted(there(store)) == ["a.jsonl", "a.md", "a.txt"]


@pytest.mark.parametrize("address", ["http://host/folder", "out", "file:///x", "ftp://host/x"])
def test_other_addresses_are_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(ConfigError, match="expected an address such as s3://"):
        copies_of(job_to(tmp_path, address, []))


def test_an_address_is_no_output_folder() -> None:
    with pytest.raises(ConfigError, match=r"set output\.copy_to"):
        resolve_job(Config.model_validate({"output": {"folder": "s3://bucket/x"}}))
