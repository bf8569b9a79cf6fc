"""A document's texts in the output folder: named for good, written when its pages are done, again when one was redone.

A page's record is dated when it is made, and outputs take their dates from the records, so that writing them again gives the
same bytes.  ``SOURCE_DATE_EPOCH`` (seconds since 1970) replaces the clock, for runs that have to be alike in their dates too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from pagemill.jobs.inputs.discover import Document
from pagemill.jobs.ledger.disk import cannot_write
from pagemill.jobs.ledger.ledger import Ledger
from pagemill.jobs.ledger.records import StoredPages
from pagemill.pipeline import (
    SINKS,
    OutputFile,
    PageError,
    Per,
    SourceDocument,
    name_key,
    output_names,
    output_names_of,
    write_document,
)

PERS: tuple[Per, ...] = ("document", "page")


class DocumentOutputs:
    """Writes outputs under names that the ledger remembers.

    open_original: makes sure that a document's file is there, and returns its password; may raise PageError.

    A name once given stays its document's, and no name is given that another document of any run owns, or under which a
    file lies that is not ours: nothing is overwritten but our own earlier text of the same document.
    """

    def __init__(
        self,
        folder: Path,
        formats: Sequence[str],
        ledger: Ledger,
        store: StoredPages,
        per: Per = "document",
        open_original: Callable[[Path], str | None] = lambda path: None,
    ) -> None:
        self._folder, self._formats, self._ledger, self._store = folder, tuple(formats), ledger, store
        self._per, self._open_original = per, open_original
        self._names: dict[str, str] = {}  # source -> name

    def name_documents(self, documents: Sequence[Document]) -> None:
        """Give every document its output name; call it before any ``settle``."""
        places = {document.found.source: document.found.relative for document in documents}
        wanted = output_names(places, [sink.suffix for sink in SINKS.values()])

        def choose(owned: Mapping[str, str]) -> dict[str, str]:
            taken = {name_key(name) for name in owned.values()}
            new: dict[str, str] = {}
            for document in documents:
                source = document.found.source
                if source not in owned:
                    names = _candidates(wanted[source], source)
                    new[source] = next(name for name in names if name_key(name) not in taken and not self._is_there(name))
                    taken.add(name_key(new[source]))
            return new

        self._names = self._ledger.name_outputs(choose, name_key)

    def settle(self, document: Document) -> None:
        """Write a document's outputs unless they are there and fresh.  Raises OutputError."""
        source = document.found.source
        stamp = self._ledger.stamp(document.content_hash)

        def write(last_stamp: str) -> Sequence[OutputFile] | None:
            return None if self._is_fresh(document, last_stamp == stamp) else self._write(document)

        if not self._is_fresh(document, self._ledger.output_stamp(source) == stamp):
            self._ledger.write_output(source, stamp, write)

    def _is_fresh(self, document: Document, is_same: bool) -> bool:
        name = self._names[document.found.source]
        return is_same and all(path.exists() for path in self._paths(name, self._formats, self._per, document.pages))

    def _write(self, document: Document) -> list[OutputFile] | None:
        """The files, None when a record has just gone; the next run makes it again."""
        pages = [page for page in map(self._store.get, document.refs) if page is not None]
        if len(pages) != document.pages:
            return None
        found = document.found
        original = SourceDocument(
            found.relative.as_posix(),
            found.path,
            document.content_hash,
            document.pages,
            self._password(found.path),
            self._names[found.source],
        )
        try:
            return write_document(self._folder, original, pages, self._formats, self._per)
        except OSError as error:
            raise cannot_write(self._folder, error) from error

    def _password(self, path: Path) -> str | None:
        """Asked only for outputs that open the original; they report one that cannot be had."""
        if not any(SINKS[name].needs_original for name in self._formats):
            return None
        try:
            return self._open_original(path)
        except PageError:
            return None

    def _is_there(self, name: str) -> bool:
        return any(path.exists() for per in PERS for path in self._paths(name, SINKS, per, 1))

    def _paths(self, name: str, formats: Iterable[str], per: Per, pages: int) -> list[Path]:
        return [self._folder / one for one in output_names_of(name, formats, per, pages)]


def _candidates(name: str, source: str) -> Iterator[str]:
    yield name
    digest = hashlib.sha256(source.encode("utf-8")).hexdigest()
    for length in range(8, len(digest) + 1, 8):
        yield f"{name}-{digest[:length]}"
