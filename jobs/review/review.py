"""What a review page shows: each page's image, text, status and confidence, and how it differs from another run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from rapidfuzz.distance import Indel

from pagemill.jobs.errors import InputError
from pagemill.jobs.ledger.ledger_view import PageRow, open_view
from pagemill.jobs.ledger.output_folder import OutputFolder
from pagemill.jobs.ledger.records import StoredPages
from pagemill.pipeline import PageRef, PageText, confidence_of, facts_of, hash_content, to_html, without_boxes, xml_text

MOST_COMPARED_WORDS = 20_000  # of a page; beyond that it only says that it differs


@dataclass(frozen=True, slots=True)
class Reviewed:
    """One page of the last run in a folder.  text: None where it has no record.  label: its document's name, made short."""

    page: PageRow
    label: str
    text: PageText | None


def read_pages(folder: Path) -> list[Reviewed]:
    """Every page of the folder's last run, in order.  Raises InputError, LedgerError."""
    with open_view(folder) as view:
        run = view.last_run()
        if run is None:
            raise InputError(f"{folder}: expected a run to review, found none in its ledger")
        pages = list(view.pages(run))
    records = OutputFolder(folder).pages(run.model_hash, run.settings_hash)
    labels = _short_names({page.source for page in pages})
    if not records.is_dir():
        return [Reviewed(page, labels[page.source], None) for page in pages]
    store = StoredPages(records)
    try:
        return [Reviewed(page, labels[page.source], store.get(page.ref)) for page in pages]
    finally:
        store.close()


def present_originals(pages: Iterable[Reviewed]) -> Iterator[PageRow]:
    """The pages whose document is still at its path, unchanged."""
    for source, group in groupby((one.page for one in pages), key=lambda page: page.source):
        members = list(group)
        path = Path(source)
        try:
            same = path.is_file() and hash_content(path) == members[0].ref.document_hash
        except OSError:
            same = False
        if same:
            yield from members


def as_json(pages: Sequence[Reviewed], images: Mapping[tuple[str, int], str], others: Mapping[PageRef, str] | None) -> str:
    """The pages for the review page's script, safe inside a script element.

    images: (source, page) -> place of the image, relative to the review page.  others: the texts of the run to compare with.
    """
    shown = [_page(one, images.get((one.page.source, one.page.ref.page)), others) for one in pages]
    text = json.dumps({"compared": others is not None, "pages": shown}, ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def texts_of(pages: Iterable[Reviewed]) -> dict[PageRef, str]:
    """The Markdown of each page, for comparing."""
    return {one.page.ref: _markdown(one) for one in pages}


def differences(old: str, new: str) -> list[tuple[str, str]]:
    """(sign, words) in order: "=" in both, "-" only in the old text, "+" only in the new one."""
    before, after = old.split(), new.split()
    if len(before) + len(after) > MOST_COMPARED_WORDS:
        return [("-", old), ("+", new)]
    found: list[tuple[str, str]] = []
    gone: list[str] = []
    new_words: list[str] = []
    for change in Indel.opcodes(before, after):
        if change.tag != "equal":
            gone += before[change.src_start : change.src_end]
            new_words += after[change.dest_start : change.dest_end]
            continue
        found += _changed(gone, new_words)
        found.append(("=", " ".join(after[change.dest_start : change.dest_end])))
        gone, new_words = [], []
    return found + _changed(gone, new_words)


def _changed(gone: Sequence[str], added: Sequence[str]) -> list[tuple[str, str]]:
    """What went, then what came in its place."""
    return [(sign, " ".join(words)) for sign, words in (("-", gone), ("+", added)) if words]


def _page(one: Reviewed, image: str | None, others: Mapping[PageRef, str] | None) -> dict[str, Any]:
    markdown = _markdown(one)
    confidence = confidence_of(one.text) if one.text else None
    row: dict[str, Any] = {
        "document": xml_text(one.label),
        "page": one.page.ref.number,
        "status": one.page.status,
        "reason": xml_text(one.page.reason),
        "confidence": None if confidence is None else round(confidence, 4),
        "image": image,
        "html": to_html(markdown),
        "words": _words(one),
        "facts": facts_of(one.text) if one.text else [],
    }
    if others is not None:
        other = others.get(one.page.ref)
        row["only_here"] = other is None
        row["changes"] = differences(xml_text(other), xml_text(markdown)) if other is not None and other != markdown else []
    return row


def _words(one: Reviewed) -> list[list[tuple[str, int | None]]]:
    """The text as the model wrote it, line by line, each word with its confidence in percent."""
    text = one.text.text if one.text else ""
    known = one.text.word_confidences if one.text else ()
    confidences: Iterator[int | None] = iter(known if len(known) == len(text.split()) else [None] * len(text.split()))
    return [[(xml_text(word), next(confidences)) for word in line.split()] for line in text.split("\n")]


def _markdown(one: Reviewed) -> str:
    return without_boxes(one.text.text) if one.text else ""


def _short_names(sources: set[str]) -> dict[str, str]:
    """Each source without what all have in common before their names."""
    folders = {os.path.dirname(source) for source in sources}
    try:
        common = os.path.commonpath(folders) if folders else ""
    except ValueError:  # addresses among paths
        common = ""
    return {source: os.path.relpath(source, common) if common and os.path.isabs(source) else source for source in sources}
