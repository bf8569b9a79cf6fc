"""A document's texts in the output folder: named for good, written when its pages are done, again when one was redone."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from jobs.discover import Document
from jobs.errors import OutputError
from jobs.ledger import Ledger, Work
from pipeline.page import PageRef, PageText
from pipeline.sinks import SINKS, write_document
from pipeline.sinks.names import output_names
from pipeline.store import PageStore


class StoredPages:
    """The page store, whose disk may be full or gone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._store = PageStore(folder)

    def put(self, page: PageText) -> None:
        """Make a page durable.  Raises OutputError."""
        try:
            self._store.put(page)
        except OSError as error:
            raise cannot_write(self._folder, error) from error

    def get(self, ref: PageRef) -> PageText | None:
        """The page, None where no whole record lies."""
        try:
            return self._store.get(ref)
        except OSError as error:
            raise cannot_write(self._folder, error) from error


class DocumentOutputs:
    """Writes outputs under names that the ledger remembers.

    A name once given stays its document's, and no name is given that another document of any run owns, or under which a
    file lies that is not ours: nothing is overwritten but our own earlier text of the same document.
    """

    def __init__(self, folder: Path, formats: Sequence[str], ledger: Ledger, store: StoredPages) -> None:
        self._folder, self._formats, self._ledger, self._store = folder, tuple(formats), ledger, store
        self._names: dict[str, str] = {}  # source -> name

    def name_documents(self, documents: Sequence[Document]) -> None:
        """Give every document its output name; call it before any ``settle``."""
        owned = self._ledger.output_names()
        taken = {name_key(name) for name in owned.values()}
        wanted = output_names({document.found.path: document.found.relative for document in documents})
        for document in documents:
            source = document.found.source
            name = owned.get(source)
            if name is None:
                name = next(
                    name
                    for name in _candidates(wanted[document.found.path], source)
                    if name_key(name) not in taken and not any(path.exists() for path in self._paths(name, SINKS))
                )
                self._ledger.own_name(source, name, name_key(name))
                taken.add(name_key(name))
            self._names[source] = name

    def settle(self, document: Document, work: Work) -> None:
        """Write a document's outputs unless they are there and fresh.  Raises OutputError."""
        source = document.found.source
        name = self._names[source]
        stamp = self._ledger.stamp(work)
        try:
            if self._ledger.output_stamp(source) == stamp and all(path.exists() for path in self._paths(name, self._formats)):
                return
            refs = [PageRef(document.found.path, document.content_hash, page) for page in range(document.pages)]
            pages = [page for page in map(self._store.get, refs) if page is not None]
            if len(pages) != len(refs):
                return  # a record has just gone; the next run makes it again
            label = document.found.relative.as_posix()
            write_document(self._folder, name, label, pages, self._formats)
        except OSError as error:
            raise cannot_write(self._folder, error) from error
        self._ledger.set_output_stamp(source, stamp)

    def _paths(self, name: str, formats: Iterable[str]) -> list[Path]:
        return [self._folder / (name + SINKS[one].suffix) for one in formats]


def name_key(name: str) -> str:
    """Equal for two names that one file system may take for the same."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def cannot_write(folder: Path, error: OSError) -> OutputError:
    """The error of a folder that does not take what was made."""
    return OutputError(
        f"{folder}: expected a folder that can be written, found: {error.strerror or error}; free the disk or mend its "
        "rights, then give the same command again"
    )


def _candidates(name: str, source: str) -> Iterator[str]:
    yield name
    digest = hashlib.sha256(source.encode("utf-8")).hexdigest()
    for length in range(8, len(digest) + 1, 8):
        yield f"{name}-{digest[:length]}"
