"""Members of zip and tar archives as documents.  No member is ever written under a name of the archive's choosing.

A damaged archive, and a member that cannot be read, is one failed document: nothing is left out silently.
"""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, cast

from pagemill.jobs.inputs.origins import copy_bounded, printable
from pagemill.pipeline import PageError, PasswordNeeded, TooLarge, Unreadable

ENDINGS = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
MOST_MEMBERS = 100_000
MOST_TIMES = 200  # unpacked bytes an archive may have for each of its own; scans seldom reach 20
FREE_BYTES = 1 << 30  # that any archive may unpack to
ENCRYPTED = 0x1  # of a zip member's flags
DAMAGES = (zipfile.BadZipFile, tarfile.TarError, zlib.error, LZMAError, EOFError, NotImplementedError, ValueError, OSError)


@dataclass(frozen=True, slots=True)
class Entry:
    """A member.  name: its cleaned path.  error: why it cannot be read."""

    index: int
    name: PurePosixPath
    size: int
    error: PageError | None = None


class Archive:
    """An archive, opened when it is needed and kept open: members of a compressed tar are cheap in their order only.

    place: its path on this machine, asked each time that it is opened.  label: as people know it.
    """

    def __init__(self, place: Callable[[], Path], label: str, password: str | None = None) -> None:
        self._place, self.label, self._password = place, label, password
        self._zip: zipfile.ZipFile | None = None
        self._tar: tarfile.TarFile | None = None
        self._members: list[tarfile.TarInfo] = []

    def documents(self, is_document: Callable[[str], bool]) -> list[Entry]:
        """Its documents in its order, then what cannot be read of it.  Raises PageError where that is all of it."""
        entries = list(self._entries())
        documents = [entry for entry in entries if is_document(entry.name.name) and not _is_hidden(entry.name)]
        size = self._place().stat().st_size
        total, allowed = sum(entry.size for entry in documents), FREE_BYTES + MOST_TIMES * size
        if total > allowed:
            raise TooLarge(f"archive unpacks to {total} bytes: expected at most {allowed} of its size; it may be a bomb")
        nested = Unreadable("archive inside an archive: unpack the outer one first")
        inner = [entry for entry in entries if is_archive(entry.name.name) and not _is_hidden(entry.name)]
        damage = [entry for entry in entries if entry.index < 0]
        return [*documents, *(Entry(one.index, one.name, one.size, nested) for one in inner), *damage]

    def unpack(self, entry: Entry, target: BinaryIO, limit_bytes: int) -> None:
        """Write one member's content.  Raises PageError."""
        try:
            with closing(self._open_member(entry.index)) as source:
                copied = copy_bounded(cast(BinaryIO, source), target, limit_bytes)
        except PageError:
            raise
        except RuntimeError as error:  # zipfile's, for passwords
            raise PasswordNeeded("archive member is encrypted, and its password is missing or wrong") from error
        except DAMAGES as error:
            raise Unreadable(f"archive member cannot be unpacked, the archive is damaged: {_cause(error)}") from error
        if copied != entry.size:
            raise Unreadable(f"archive member is cut off: expected {entry.size} bytes, found {copied}")

    def close(self) -> None:
        """Close the file."""
        for opened in (self._zip, self._tar):
            if opened is not None:
                opened.close()
        self._zip = self._tar = None

    def _entries(self) -> Iterator[Entry]:
        """Every file in it; one more with an error where it is damaged after good ones."""
        count = 0
        try:
            for entry in self._zip_entries() if self._is_zip else self._tar_entries():
                count += 1
                if count > MOST_MEMBERS:
                    raise TooLarge(f"archive has more than {MOST_MEMBERS} members; unpack it first")
                yield entry
        except DAMAGES as error:
            fault = Unreadable(f"archive cannot be read, it is damaged or truncated: {_cause(error)}")
            if not count:
                raise fault from error
            yield Entry(-1, PurePosixPath("damaged end of the archive"), 0, fault)

    @property
    def _is_zip(self) -> bool:
        return self.label.lower().endswith(".zip")

    def _zip_entries(self) -> Iterator[Entry]:
        for index, info in enumerate(self._zipped().infolist()):
            if not info.is_dir():
                yield Entry(index, _cleaned(info.filename), info.file_size)

    def _tar_entries(self) -> Iterator[Entry]:
        """Links have an error: what they point to may be anything."""
        self._members = []
        for index, member in enumerate(self._tarred()):
            self._members.append(member)
            error = None if member.isfile() else Unreadable("archive member is a link or a device, no file: unpack it first")
            if not member.isdir():
                yield Entry(index, _cleaned(member.name), member.size, error)

    def _zipped(self) -> zipfile.ZipFile:
        if self._zip is None:
            self._zip = zipfile.ZipFile(self._place())
        return self._zip

    def _tarred(self) -> tarfile.TarFile:
        if self._tar is None:
            self._tar = tarfile.TarFile.open(self._place(), encoding="utf-8", errors="surrogateescape")
        return self._tar

    def _open_member(self, index: int) -> IO[bytes]:
        if self._is_zip:
            info = self._zipped().infolist()[index]
            if info.flag_bits & ENCRYPTED and self._password is None:
                raise PasswordNeeded("archive member is encrypted: give its password in input.password or input.passwords")
            return self._zipped().open(info, pwd=None if self._password is None else self._password.encode())
        source = self._tarred().extractfile(self._members[index])
        assert source is not None  # only files get here
        return source


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """One member of an archive: an ``Origin``."""

    archive: Archive
    entry: Entry

    @property
    def label(self) -> str:
        """archive.zip/folder/name.pdf#3; the index distinguishes members of one name."""
        return f"{self.archive.label}/{printable(str(self.entry.name))}#{self.entry.index}"

    @property
    def file_name(self) -> str:
        """The last part of its name."""
        return self.entry.name.name

    def fetch(self, target: BinaryIO, limit_bytes: int) -> None:
        """Unpack this member alone.  Raises PageError."""
        self.archive.unpack(self.entry, target, limit_bytes)


def is_archive(name: str) -> bool:
    """By its name: a document format may be a zip inside, and is none of our archives."""
    return name.lower().endswith(ENDINGS)


def _cleaned(name: str) -> PurePosixPath:
    """A relative path without "..", whatever the archive says; it names outputs, never a file to unpack to."""
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    return PurePosixPath(*parts) if parts else PurePosixPath("member")


def _is_hidden(name: PurePosixPath) -> bool:
    return any(part.startswith((".", "~$")) or part == "__MACOSX" for part in name.parts)


def _cause(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
