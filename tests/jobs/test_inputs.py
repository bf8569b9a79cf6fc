"""Inputs beyond files and folders: globs, lists, members of archives, addresses; each found, fetched when due, and bounded."""

from __future__ import annotations

import io
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePath

import fsspec
import pytest

import pagemill.jobs.inputs.archives
from pagemill.jobs.errors import InputError
from pagemill.jobs.inputs.discover import Found, find_files, open_documents
from pagemill.jobs.inputs.input_cache import InputCache
from pagemill.jobs.inputs.passwords import Passwords, password_for
from pagemill.jobs.inputs.remote import Remote
from pagemill.jobs.settings.addresses import shown_url
from pagemill.jobs.settings.config import InputSection
from pagemill.pipeline.errors import PageError, PasswordNeeded, TooLarge, Unreachable, Unreadable
from tests.jobs.web import Web, serve

LIMIT = 1 << 20


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[InputCache]:
    with InputCache(tmp_path / "cache", LIMIT) as opened:
        yield opened


@pytest.fixture
def web() -> Iterator[Web]:
    with serve() as server:
        yield server


@pytest.fixture
def memory() -> Iterator[str]:
    """Files of a store that lists."""
    files = fsspec.filesystem("memory")
    for name in ("a.pdf", "b/2.png", "b/1.png", "b/notes.txt", ".hidden/x.pdf"):
        files.pipe(f"/box/{name}", name.encode())
    yield "memory://box"
    files.rm("/box", recursive=True)


def places(files: list[Found]) -> list[str]:
    return [file.relative.as_posix() for file in files]


def content(file: Found, cache: InputCache) -> bytes:
    cache.ensure(file.path)
    return file.path.read_bytes()


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def tarred(path: Path, members: dict[str, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.pdf", ["a.pdf"]),
        ("*", ["a.pdf"]),
        ("**/*.png", ["deep/1.png", "deep/er/2.png"]),
        ("deep/*", ["1.png"]),
        ("deep/*.txt", ["n.txt"]),
        ("d[e]ep/*.png", ["deep/1.png"]),
    ],
)
def test_glob_finds_documents_below_its_fixed_part(tmp_path: Path, pattern: str, expected: list[str]) -> None:
    for name in ("a.pdf", "a.txt", "deep/1.png", "deep/n.txt", "deep/er/2.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).touch()
    assert places(find_files([str(tmp_path / pattern)])) == expected


def test_file_whose_name_is_a_pattern_is_that_file(tmp_path: Path) -> None:
    for name in ("scan[1].pdf", "scan1.pdf"):
        (tmp_path / name).touch()
    assert places(find_files([tmp_path / "scan[1].pdf"])) == ["scan[1].pdf"]


def test_list_names_inputs_relative_to_itself(tmp_path: Path) -> None:
    for name in ("a.pdf", "in/b.pdf", "in/c.pdf", "odd.dat"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    odd = os.fsdecode(b"\xff.pdf")
    (tmp_path / odd).touch()
    (tmp_path / "list.txt").write_bytes(b"# the box\r\na.pdf\r\n\nin\nodd.dat\nin/*.pdf\n\xff.pdf")
    assert places(find_files([f"@{tmp_path / 'list.txt'}"])) == ["a.pdf", "in/b.pdf", "in/c.pdf", "odd.dat", odd]


def test_list_that_is_not_there_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a list of inputs"):
        find_files([f"@{tmp_path / 'list.txt'}"])


def test_file_whose_name_begins_with_the_list_sign_is_that_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "@odd.pdf").touch()
    monkeypatch.chdir(tmp_path)
    assert places(find_files(["@odd.pdf"])) == ["@odd.pdf"]


MEMBERS = {"1.pdf": b"one", "deep/2.png": b"two", "notes.txt": b"no", "__MACOSX/._1.pdf": b"no", ".x/3.pdf": b"no"}


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz", "tar.xz"])
def test_members_are_documents_in_their_tree(tmp_path: Path, cache: InputCache, kind: str) -> None:
    make = zipped(tmp_path / "box.zip", MEMBERS) if kind == "zip" else None
    path = make or tarred(tmp_path / f"box.{kind}", MEMBERS, f"w:{kind.partition('.')[2]}")
    files = find_files([path], cache)
    assert places(files) == [f"{path.name}/1.pdf", f"{path.name}/deep/2.png"]
    assert [content(file, cache) for file in reversed(files)] == [b"two", b"one"]
    assert files[0].label == f"{path}/1.pdf#0"


def test_archives_in_a_folder_are_opened_too(tmp_path: Path, cache: InputCache) -> None:
    (tmp_path / "in/sub").mkdir(parents=True)
    zipped(tmp_path / "in/sub/box.zip", MEMBERS)
    assert places(find_files([tmp_path / "in"], cache)) == ["sub/box.zip/1.pdf", "sub/box.zip/deep/2.png"]


@pytest.mark.parametrize("name", ["../../up.pdf", "/etc/up.pdf", "..\\up.pdf", "a/../../up.pdf", "./up.pdf"])
def test_member_cannot_leave_its_folder(tmp_path: Path, cache: InputCache, name: str) -> None:
    for path in (zipped(tmp_path / "x.zip", {name: b"x"}), tarred(tmp_path / "x.tar", {name: b"x"})):
        (file,) = find_files([path], cache)
        assert ".." not in file.relative.parts
        assert file.relative.parts[0] == path.name
        assert (tmp_path / "cache") in file.path.parents
        assert content(file, cache) == b"x"


def test_members_of_one_name_are_two_documents(tmp_path: Path, cache: InputCache) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for data in (b"one", b"two"):
            info = tarfile.TarInfo("a.pdf")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    assert [content(file, cache) for file in find_files([tmp_path / "x.tar"], cache)] == [b"one", b"two"]


def broken(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


@pytest.mark.parametrize("name", ["damaged.zip", "empty.zip", "text.tar", "empty.tar.gz"])
def test_damaged_archive_is_one_failed_document(tmp_path: Path, cache: InputCache, name: str) -> None:
    path = zipped(tmp_path / name, MEMBERS) if name == "damaged.zip" else tmp_path / name
    if name == "damaged.zip":
        broken(path)
    else:
        path.write_bytes(b"" if name.startswith("empty") else b"not an archive " * 100)
    (document,) = open_documents(find_files([path], cache), lambda path: 1, 9, cache.ensure)
    assert isinstance(document.error, Unreadable)
    assert "damaged or truncated" in str(document.error)


@pytest.mark.parametrize("kind", ["tar", "tar.gz"])
def test_truncated_tar_keeps_what_is_whole_and_says_what_is_not(tmp_path: Path, cache: InputCache, kind: str) -> None:
    members = {f"{number}.pdf": os.urandom(30_000) for number in range(4)}
    path = broken(tarred(tmp_path / f"x.{kind}", members, f"w:{kind.partition('.')[2]}"))
    documents = list(open_documents(find_files([path], cache), lambda path: 1, 9, cache.ensure))
    assert [document.error is None for document in documents[:1]] == [True]
    assert isinstance(documents[-1].error, Unreadable)


def test_member_whose_checksum_fails_fails_alone(tmp_path: Path, cache: InputCache) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("1.pdf", b"first member")
        archive.writestr("2.pdf", b"second member")
    path.write_bytes(path.read_bytes().replace(b"first member", b"fXrst member", 1))
    first, second = open_documents(find_files([path], cache), lambda path: 1, 9, cache.ensure)
    assert "damaged" in str(first.error)
    assert second.error is None


def test_what_cannot_be_unpacked_is_named(tmp_path: Path, cache: InputCache) -> None:
    inner = zipped(tmp_path / "inner.zip", {"a.pdf": b"x"}).read_bytes()
    outer = zipped(tmp_path / "outer.zip", {"1.pdf": b"x", "inner.zip": inner})
    link = tarfile.TarInfo("link.pdf")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with tarfile.open(tmp_path / "links.tar", "w") as archive:
        archive.addfile(link)
    files = find_files([outer, tmp_path / "links.tar"], cache)
    assert [str(file.error).partition(":")[0] for file in files] == [
        "None",
        "archive inside an archive",
        "archive member is a link or a device, no file",
    ]


def test_encrypted_member_needs_its_password(tmp_path: Path, cache: InputCache) -> None:
    path = zipped(tmp_path / "x.zip", {"1.pdf": b"x" * 40})
    data = bytearray(path.read_bytes())
    data[6] |= 1  # of the local header's flags
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(PasswordNeeded, match="give its password"):
        content(find_files([path], cache)[0], cache)
    with pytest.raises(PasswordNeeded, match="missing or wrong"):
        content(find_files([path], cache, lambda label, place: "wrong")[0], cache)


def sealed(data: bytes, password: bytes) -> bytes:
    """A zip of one stored member by the traditional encryption (PKWARE APPNOTE 6.3, section 6.1), which zipfile only reads."""
    table = [_crc_entry(value) for value in range(256)]
    keys = [0x12345678, 0x23456789, 0x34567890]

    def update(byte: int) -> None:
        keys[0] = (keys[0] >> 8) ^ table[(keys[0] ^ byte) & 0xFF]
        keys[1] = ((keys[1] + (keys[0] & 0xFF)) * 134775813 + 1) & 0xFFFFFFFF
        keys[2] = (keys[2] >> 8) ^ table[(keys[2] ^ (keys[1] >> 24)) & 0xFF]

    for byte in password:
        update(byte)
    crc, body = zlib.crc32(data), bytearray()
    for byte in bytes(11) + bytes([crc >> 24]) + data:
        mask = (keys[2] | 2) & 0xFFFF
        body.append(byte ^ (mask * (mask ^ 1) >> 8 & 0xFF))
        update(byte)
    shared = struct.pack("<HHHHHIIIHH", 20, 1, 0, 0, 33, crc, len(body), len(data), 5, 0)
    local = b"PK\3\4" + shared + b"1.pdf" + bytes(body)
    central = b"PK\1\2" + struct.pack("<H", 20) + shared + struct.pack("<HHHII", 0, 0, 0, 0, 0) + b"1.pdf"
    return local + central + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local), 0)


def _crc_entry(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (0xEDB88320 if value & 1 else 0)
    return value


def test_encrypted_member_opens_with_its_password(tmp_path: Path, cache: InputCache) -> None:
    (tmp_path / "x.zip").write_bytes(sealed(b"the content", b"secret"))
    (file,) = find_files([tmp_path / "x.zip"], cache, lambda label, place: "secret")
    assert content(file, cache) == b"the content"


def test_bombs_are_refused(tmp_path: Path, cache: InputCache, monkeypatch: pytest.MonkeyPatch) -> None:
    path = zipped(tmp_path / "bomb.zip", {f"{number}.pdf": bytes(2 * LIMIT) for number in range(8)})
    with pytest.raises(TooLarge, match="more than"):
        content(find_files([path], cache)[0], cache)
    monkeypatch.setattr(pagemill.jobs.inputs.archives, "FREE_BYTES", 0)
    (file,) = find_files([path], cache)
    assert "may be a bomb" in str(file.error)
    monkeypatch.setattr(pagemill.jobs.inputs.archives, "MOST_MEMBERS", 5)
    (file,) = find_files([path], cache)
    assert "more than 5 members" in str(file.error)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("memory://box", ["a.pdf", "b/1.png", "b/2.png"]),
        ("memory://box/b", ["1.png", "2.png"]),
        ("memory://box/a.pdf", ["a.pdf"]),
        ("memory://box/*/*.png", ["b/1.png", "b/2.png"]),
        ("memory://box/**/2.png", ["b/2.png"]),
    ],
)
def test_store_is_listed(memory: str, cache: InputCache, address: str, expected: list[str]) -> None:
    files = find_files([address], cache)
    assert places(files) == expected
    assert content(files[-1], cache) == files[-1].source.removeprefix("memory://").removeprefix("/box/").encode()


def test_address_with_nothing_is_missing(memory: str, cache: InputCache) -> None:
    with pytest.raises(InputError, match="found nothing at: memory://box/none"):
        find_files([f"{memory}/none"], cache)


@pytest.mark.parametrize("address", ["ftp://host/x.pdf", "simplecache::memory://box", "file:///etc/passwd"])
def test_unknown_kind_of_address_is_an_input_error(cache: InputCache, address: str) -> None:
    with pytest.raises(InputError, match=r"http://, https://, s3://|found nothing"):
        find_files([address], cache)


def test_web_file_is_fetched_and_credentials_stay_out_of_its_label(web: Web, cache: InputCache) -> None:
    web.files["/deep/scan 1.pdf"] = b"content"
    (file,) = find_files([f"{web.address}/deep/scan%201.pdf?token=secret"], cache)
    assert file.relative == PurePath("scan 1.pdf")
    assert content(file, cache) == b"content"
    assert "secret" not in file.label
    assert shown_url("https://user:pass@host/x.pdf") == "https://host/x.pdf"


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        ("/none.pdf", Unreadable, "nothing is at"),
        ("/short.pdf", Unreachable, "after 3 tries"),
        ("/error.pdf", Unreachable, "after 3 tries"),
        ("/large.pdf", TooLarge, "more than"),
    ],
)
def test_web_file_that_cannot_be_had_is_an_error(
    web: Web, tmp_path: Path, path: str, error: type[PageError], message: str
) -> None:
    web.files.update({"/short.pdf": b"x" * 100, "/large.pdf": bytes(LIMIT + 1)})
    web.short.add("/short.pdf")
    web.failing["/error.pdf"] = 99
    waits: list[float] = []
    with (tmp_path / "x").open("w+b") as target, pytest.raises(error, match=message):
        Remote(web.address + path, waits.append).fetch(target, LIMIT)
    assert waits == ([1.0, 2.0] if error is Unreachable else [])


def test_fetch_is_tried_again(web: Web, tmp_path: Path) -> None:
    web.files["/x.pdf"], web.failing["/x.pdf"] = b"content", 2
    with (tmp_path / "x").open("w+b") as target:
        Remote(f"{web.address}/x.pdf", lambda seconds: None).fetch(target, LIMIT)
    assert (tmp_path / "x").read_bytes() == b"content"


def test_archive_at_an_address_is_opened(web: Web, tmp_path: Path, cache: InputCache) -> None:
    web.files["/box.zip"] = zipped(tmp_path / "box.zip", MEMBERS).read_bytes()
    files = find_files([f"{web.address}/box.zip"], cache)
    assert places(files) == ["box.zip/1.pdf", "box.zip/deep/2.png"]
    assert [content(file, cache) for file in files] == [b"one", b"two"]


def test_cache_is_bounded_and_brings_back_what_it_dropped(tmp_path: Path) -> None:
    members = {f"{number}.pdf": bytes([number]) * 400 for number in range(6)}
    path = zipped(tmp_path / "x.zip", members)
    with InputCache(tmp_path / "cache", 1000, kept=1) as cache:
        files = find_files([path], cache)
        for _ in range(2):
            for file in files:
                assert content(file, cache) == members[file.path.name.partition("-")[2]]
                assert sum(one.stat().st_size for one in (tmp_path / "cache").rglob("*.pdf")) <= 1000
    assert not any((tmp_path / "cache").glob("*/"))


def test_file_that_changed_before_its_second_fetch_is_refused(web: Web, tmp_path: Path) -> None:
    web.files.update({"/1.pdf": b"one", "/2.pdf": b"two"})
    with InputCache(tmp_path / "cache", 4, kept=0) as cache:
        first, second = find_files([f"{web.address}/{number}.pdf" for number in (1, 2)], cache)
        cache.ensure(first.path)
        cache.ensure(second.path)
        web.files["/1.pdf"] = b"new"
        with pytest.raises(Unreadable, match="changed since this run began"):
            cache.ensure(first.path)


def test_copies_of_a_killed_process_are_removed_and_those_of_a_living_one_stay(web: Web, tmp_path: Path) -> None:
    web.files["/1.pdf"] = b"one"
    left = tmp_path / "cache/left"
    left.mkdir(parents=True)
    (left / "lock").touch()
    with InputCache(tmp_path / "cache", LIMIT) as first, InputCache(tmp_path / "cache", LIMIT) as second:
        for cache in (first, second):
            (file,) = find_files([f"{web.address}/1.pdf"], cache)
            assert content(file, cache) == b"one"
        assert not left.exists()
        assert len(list((tmp_path / "cache").rglob("*.pdf"))) == 2


def test_password_is_that_of_the_first_pattern_that_fits() -> None:
    section = InputSection.model_validate({"password": "all", "passwords": {"b/*.pdf": "b", "*.pdf": "pdf", "s3://x/*": "x"}})
    cases = {"/in/b/1.pdf": "b/1.pdf", "/in/c/1.pdf": "c/1.pdf", "s3://x/1.tif": "1.tif", "/in/1.tif": "1.tif"}
    assert [password_for(section, label, PurePath(place)) for label, place in cases.items()] == ["b", "pdf", "x", "all"]
    files = [Found(Path(label), PurePath(place)) for label, place in cases.items()]
    passwords = Passwords(section, files)
    assert [passwords(file.path) for file in files[:2]] == ["b", "pdf"]
    assert passwords(Path("/elsewhere")) == "all"
