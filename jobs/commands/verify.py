"""``pagemill verify``: are the outputs still what was written, and is every finished page's record there?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from jobs.cli import NOT_AS_WRITTEN
from jobs.identity import hash_file
from jobs.ledger import OutputFile
from jobs.ledger_view import LedgerView, Run, open_view
from jobs.records import StoredPages
from jobs.runner import WHOLE_DOCUMENT
from jobs.spec import LEDGER_NAME, pages_folder


def verify_folder(folder: Path) -> int:
    """Prints a line for everything that is not as the ledger says; returns the exit code."""
    with open_view(folder) as view:
        wrong = [f"damaged: {LEDGER_NAME}: {text}" for text in view.damage()]
        files = view.output_files()
        wrong += [told for file in files if (told := check_file(folder, file))]
        run = view.last_run()
        pages = 0
        if run is not None:
            wrong += [f"never written: outputs of {source}" for source in view.unwritten(run)]
            records = list(_missing_records(folder, view, run))
            wrong += records
            pages = sum(1 for page in view.pages(run))
    for line in wrong:
        print(line)
    print(f"{len(files)} files and {pages} pages checked: {len(wrong) or 'nothing'} wrong")
    if wrong:
        print("give the run command again: it writes what is missing; move a changed file away first, to have it written again")
    return NOT_AS_WRITTEN if wrong else 0


def check_file(folder: Path, file: OutputFile) -> str:
    """What is wrong with an output, "" when nothing is."""
    path = folder / file.path
    try:
        size = path.stat().st_size
        if size == file.size_bytes and hash_file(path) == file.sha256:
            return ""
    except FileNotFoundError:
        return f"missing: {file.path}"
    except OSError as error:
        return f"unreadable: {file.path}: {error.strerror}"
    return f"changed: {file.path}: expected {file.size_bytes} bytes, found {size}" + (
        " others" if size == file.size_bytes else ""
    )


def _missing_records(folder: Path, view: LedgerView, run: Run) -> Iterator[str]:
    """Finished pages without a record; a page is done again by the next run."""
    place = pages_folder(folder, run.model_hash, run.settings_hash)
    if not place.is_dir():
        yield f"missing: {place.relative_to(folder)}: the finished pages"
        return
    store = StoredPages(place)
    records: dict[str, set[int]] = {}
    try:
        for page in view.pages(run):
            if page.settings_hash not in (run.settings_hash, WHOLE_DOCUMENT) or page.status in ("left", "in work"):
                continue
            if page.document_hash not in records:
                records[page.document_hash] = store.pages(page.document_hash)
            if page.page not in records[page.document_hash]:
                yield f"missing: the record of {page.source}, page {page.page + 1}"
    finally:
        store.close()
