"""From inputs to pages: which files, what they hold, and under which name their text is written.

An input that is not there is an InputError before any work; a file that is no document becomes one failed page, so that the
count of what went in equals the count of what comes out.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath

from pagemill.jobs.errors import InputError
from pagemill.jobs.inputs.archives import Archive, Member, is_archive
from pagemill.jobs.inputs.input_cache import InputCache
from pagemill.jobs.inputs.origins import Origin, printable
from pagemill.jobs.inputs.remote import find_remote
from pagemill.jobs.settings.addresses import LIST_SIGN, is_url
from pagemill.pipeline import WHOLE_DOCUMENT, PageError, PageRef, TooLarge, Unreadable, hash_content

SUFFIXES = frozenset({".pdf", ".png", ".jpg", ".jpeg", ".jpe", ".webp", ".tif", ".tiff"})
MOST_NAMED = 10  # missing inputs in one message
_MAGIC = re.compile(r"[*?\[]")

CountPages = Callable[[Path], int]  # how many pages a document has; raises PageError when it is none


@dataclass(frozen=True, slots=True)
class Found:
    """A file to read.  relative: its place below the input that named it, the model of its output's name.

    origin: where the file comes from that is brought to ``path`` when it is due, None where it lies there.
    error: why it cannot be read, where that is known already.
    """

    path: Path
    relative: PurePath
    origin: Origin | None = None
    error: PageError | None = None

    @property
    def source(self) -> str:
        """The file as the ledger calls it: its absolute path, or its origin's label."""
        return self.origin.label if self.origin else printable(os.path.abspath(self.path))

    @property
    def label(self) -> str:
        """The file as its user calls it."""
        return self.origin.label if self.origin else printable(str(self.path))


@dataclass(frozen=True, slots=True)
class Document:
    """A file and what it holds.  error: why it has no pages; it then counts as one, which fails."""

    found: Found
    content_hash: str
    pages: int
    error: PageError | None = None

    @property
    def refs(self) -> list[PageRef]:
        """Its pages; the whole document as one where it did not open."""
        numbers = range(self.pages) if self.error is None else [WHOLE_DOCUMENT]
        return [PageRef(self.content_hash, page, self.found.path.name) for page in numbers]


PasswordOf = Callable[[str, PurePath], str | None]


def find_files(
    inputs: Iterable[str | Path], cache: InputCache | None = None, password_of: PasswordOf = lambda label, place: None
) -> list[Found]:
    """The files that inputs name: files, folders, globs, @lists, archives and addresses.  Raises InputError.

    Folders are walked in the order of names.  cache: where members of archives and files at addresses will lie; without
    one, only files of this machine are found.  password_of: of an archive.
    """
    finder = _Finder(cache, password_of)
    for text in inputs:
        finder.add(os.fspath(text))
    if finder.missing:
        more = len(finder.missing) - MOST_NAMED
        names = ", ".join(map(printable, finder.missing[:MOST_NAMED])) + (f" and {more} more" if more > 0 else "")
        raise InputError(f"expected a file or a folder, found nothing at: {names}; check the spelling")
    if not finder.found:
        raise InputError(f"expected documents to read, found none; name files, or folders with {' '.join(sorted(SUFFIXES))}")
    return list(finder.found.values())


def open_documents(
    files: Iterable[Found], count_pages: CountPages, max_pages: int, ensure: Callable[[Path], None] = lambda path: None
) -> Iterator[Document]:
    """Each file hashed and its pages counted; a bad one carries its error.  ensure: brings a file to its place."""
    for file in files:
        try:
            if file.error is not None:
                raise file.error
            ensure(file.path)
            content_hash = hash_content(file.path)
        except PageError as error:
            yield _unopened(file, error)
            continue
        except OSError as error:
            yield _unopened(file, Unreadable(f"the file cannot be read: {error.strerror or error}; check its rights"))
            continue
        try:
            pages = count_pages(file.path)
        except PageError as error:
            yield Document(file, content_hash, 1, error)
            continue
        if pages > max_pages:
            many = TooLarge(f"expected at most {max_pages} pages, found {pages}; split it, or raise input.max_pages")
            yield Document(file, content_hash, 1, many)
        else:
            yield Document(file, content_hash, pages)


def is_document(name: str) -> bool:
    """By its name, for files that nobody named one by one."""
    return PurePath(name).suffix.lower() in SUFFIXES


def _unopened(file: Found, error: PageError) -> Document:
    return Document(file, hashlib.sha256(file.source.encode("utf-8")).hexdigest(), 1, error)


class _Finder:
    """Collects files once each, in order.  missing: inputs that name nothing."""

    def __init__(self, cache: InputCache | None, password_of: PasswordOf) -> None:
        self._local_cache, self._password_of = cache, password_of
        self.found: dict[str, Found] = {}
        self.missing: list[str] = []

    @property
    def _cache(self) -> InputCache:
        if self._local_cache is None:
            raise InputError("expected files and folders of this machine here, found an address or an archive; unpack it first")
        return self._local_cache

    def add(self, text: str) -> None:
        """One input as people write it."""
        if is_url(text):
            self._add_remote(text)
        elif text.startswith(LIST_SIGN) and not os.path.lexists(text):
            self._add_list(Path(text.removeprefix(LIST_SIGN)))
        else:
            self._add_path(text, None)

    def _add_path(self, text: str, base: Path | None) -> None:
        """A file, folder or glob.  base: the folder that its place is relative to, its own where None."""
        path = Path(text)
        if path.is_dir():
            for file in _walk(path):
                self._add_file(file, path if base is None else base)
        elif os.path.lexists(path):
            self._add_file(path, path.parent if base is None else base)
        elif _MAGIC.search(text):
            self._add_glob(text, base)
        else:
            self.missing.append(text)

    def _add_glob(self, pattern: str, base: Path | None) -> None:
        """Every match; files of other kinds only where the pattern ends in their suffix."""
        matches = sorted(glob.glob(pattern, recursive=True))
        fixed = Path(pattern[: re.search(_MAGIC, pattern).start()] + "x").parent  # type: ignore[union-attr]
        suffix = PurePath(pattern).suffix
        is_named = bool(suffix) and not _MAGIC.search(suffix)
        files = [
            match
            for match in map(Path, matches)
            if match.is_file() and (is_named or is_document(match.name) or is_archive(match.name))
        ]
        for file in files:
            self._add_file(file, base or fixed)
        if not files:
            self.missing.append(pattern)

    def _add_list(self, path: Path) -> None:
        """A text file of inputs, one a line, relative to itself; empty lines and those that begin with "#" are skipped."""
        try:
            lines = path.read_bytes().split(b"\n")
        except OSError as error:
            raise InputError(f"{path}: expected a list of inputs, one a line, found: {error.strerror or error}") from error
        for line in lines:
            text = os.fsdecode(line.rstrip(b"\r"))
            if not text.strip() or text.startswith("#"):
                continue
            if is_url(text):
                self._add_remote(text)
            else:
                self._add_path(str(path.parent / text), path.parent)

    def _add_file(self, path: Path, base: Path) -> None:
        place = PurePath(os.path.relpath(path, base))
        if ".." in place.parts:
            place = PurePath(path.name)
        if is_archive(path.name):
            label = printable(os.path.abspath(path))
            self._add_archive(Archive(lambda: path, label, self._password_of(label, place)), place)
        else:
            self._keep(Found(path, place))

    def _add_remote(self, url: str) -> None:
        files = find_remote(url, lambda name: is_document(name) or is_archive(name))
        if not files:
            self.missing.append(url)
        for remote, place in files:
            path = self._cache.place(remote)
            if is_archive(remote.file_name):
                self._add_archive(
                    Archive(lambda path=path: self._fetched(path), remote.label, self._password_of(remote.label, place)),  # type: ignore[misc]
                    PurePath(place),
                )
            else:
                self._keep(Found(path, PurePath(place), remote))

    def _fetched(self, path: Path) -> Path:
        self._cache.ensure(path)
        return path

    def _add_archive(self, archive: Archive, place: PurePath) -> None:
        self._cache.keep_archive(archive)
        try:
            entries = archive.documents(is_document)
        except PageError as error:
            self._keep(Found(Path(archive.label), place, None, error))
            return
        for entry in entries:
            member = Member(archive, entry)
            self._keep(Found(self._cache.place(member), place / entry.name, member, entry.error))

    def _keep(self, file: Found) -> None:
        self.found.setdefault(file.source, file)


def _walk(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith((".", "~$")) and (is_document(name) or is_archive(name)):
                yield Path(parent, name)
