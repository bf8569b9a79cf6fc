"""``pagemill verify``: are the outputs still what was written, and is every finished page's record there?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from pagemill.jobs.cli.codes import NOT_AS_WRITTEN
from pagemill.jobs.cli.options import Folder
from pagemill.jobs.ledger.ledger_view import PageRow, open_view
from pagemill.jobs.ledger.output_folder import OutputFolder
from pagemill.jobs.ledger.records import StoredPages
from pagemill.pipeline import OutputFile, hash_content


def command(folder: Folder) -> int:
    """``pagemill verify``."""
    with open_view(folder) as view:
        wrong = [f"damaged: {OutputFolder(folder).ledger.relative_to(folder)}: {text}" for text in view.damage()]
        files = view.output_files()
        wrong += [fault for file in files if (fault := check_file(folder, file))]
        pages = list(view.pages())
        wrong += [f"never written: outputs of {source}" for source in view.unwritten()]
        wrong += _missing_records(folder, pages)
    for line in wrong:
        print(line)
    print(f"{len(files)} files and {len(pages)} pages checked: {len(wrong) or 'nothing'} wrong")
    if wrong:
        print("give the run command again: it writes what is missing; move a changed file away first, to have it written again")
    return NOT_AS_WRITTEN if wrong else 0


def check_file(folder: Path, file: OutputFile) -> str:
    """What is wrong with an output, "" when nothing is."""
    path = folder / file.name
    try:
        size = path.stat().st_size
        if size == file.size_bytes and hash_content(path) == file.sha256:
            return ""
    except FileNotFoundError:
        return f"missing: {file.name}"
    except OSError as error:
        return f"unreadable: {file.name}: {error.strerror}"
    return f"changed: {file.name}: expected {file.size_bytes} bytes, found {size}" + (
        " others" if size == file.size_bytes else ""
    )


def _missing_records(folder: Path, pages: Sequence[PageRow]) -> Iterator[str]:
    """Finished pages without a record; a page is done again by the next run."""
    done = [page for page in pages if page.status not in ("left", "in work")]
    done.sort(key=lambda page: (page.model_hash, page.settings_hash))
    for (model_hash, settings_hash), group in groupby(done, lambda page: (page.model_hash, page.settings_hash)):
        place = OutputFolder(folder).pages(model_hash, settings_hash)
        if place.is_dir():
            yield from _without_record(place, group)
        else:
            yield f"missing: {place.relative_to(folder)}: the finished pages"


def _without_record(place: Path, pages: Iterable[PageRow]) -> Iterator[str]:
    store = StoredPages(place)
    records: dict[str, set[int]] = {}
    try:
        for page in pages:
            ref = page.ref
            if ref.document_hash not in records:
                records[ref.document_hash] = store.pages(ref.document_hash)
            if ref.page not in records[ref.document_hash]:
                yield f"missing: the record of {page.source}, page {ref.number}"
    finally:
        store.close()
