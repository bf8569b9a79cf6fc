"""Texts to measure: the truth of documents, and what runs made of them, matched page by page.

Truth is a folder of ``NAME.txt`` or ``NAME.md``, NAME being a document's name with or without its extension, its pages
separated by form feeds.  A run is its output folder (JSON Lines, or else Dolma, text or Markdown) or one of its files;
files of single pages, ``NAME.p0003.txt``, are pages of NAME.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pagemill.jobs.errors import InputError

PAGE_SEPARATOR = "\f"
OUTPUT_SUFFIXES = (".jsonl", ".dolma.jsonl", ".txt", ".md")  # the first that a document has is read
_OF_A_PAGE = re.compile(r"(.+)\.p(\d{4,})")
_PAGE_COMMENT = re.compile(r"^<!-- (?:page (\d+))?(?:: )?(.*?) ?-->\n*", re.MULTILINE)
_STATUS = re.compile(r"(ok|blank|truncated|looped|failed|low_confidence|retried)\b")


@dataclass(frozen=True, slots=True)
class Transcript:
    """What one page was read as.  status: "" where the file does not say."""

    text: str
    status: str = ""
    mean_log_prob: float | None = None


@dataclass(frozen=True, slots=True)
class Transcripts:
    """One run.  documents: name -> pages by number from 1."""

    name: str
    documents: Mapping[str, Mapping[int, Transcript]]


@dataclass(frozen=True, slots=True)
class Pair:
    """A page that has a truth and a reading."""

    document: str
    page: int
    truth: str
    reading: Transcript


@dataclass(frozen=True, slots=True)
class Matched:
    """A run against the truth.  unread: truth without a reading; untold: readings without a truth; (document, page)."""

    pairs: tuple[Pair, ...]
    unread: tuple[tuple[str, int], ...]
    untold: tuple[tuple[str, int], ...]


def read_truth(folder: Path) -> dict[str, dict[int, str]]:
    """Document name -> pages by number.  Raises InputError."""
    if not folder.is_dir():
        raise InputError(f"{folder}: expected a folder of truth files, found none")
    found: dict[str, dict[int, str]] = {}
    for path in _files(folder, (".txt", ".md")):
        name = path.relative_to(folder).with_suffix("").as_posix()
        if name in found:
            raise InputError(f"{path}: expected one truth a document, found another for {name}; remove one")
        pages = _text(path).removesuffix("\n").split(PAGE_SEPARATOR)
        found[name] = {number: page.strip("\n") for number, page in enumerate(pages, 1)}
    if not found:
        raise InputError(f"{folder}: expected truth files NAME.txt or NAME.md, found none")
    return found


def read_run(output: Path) -> Transcripts:
    """A run's pages from its folder or one of its files.  Raises InputError."""
    if output.is_dir():
        places = [(path, path.relative_to(output)) for path in _files(output, OUTPUT_SUFFIXES)]
    elif output.is_file():
        places = [(output, Path(output.name))]
    else:
        raise InputError(f"{output}: expected an output folder or file, found nothing there")
    best: dict[str, tuple[int, Path]] = {}
    for path, place in places:
        suffix = _suffix(path)
        if suffix is None:
            raise InputError(f"{path}: expected a file with one of {', '.join(OUTPUT_SUFFIXES)}")
        name, rank = place.as_posix().removesuffix(suffix), OUTPUT_SUFFIXES.index(suffix)
        if name not in best or rank < best[name][0]:
            best[name] = rank, path
    documents: dict[str, dict[int, Transcript]] = {}
    for name, (rank, path) in best.items():
        for document, number, reading in READERS[OUTPUT_SUFFIXES[rank]](path, name):
            if number in documents.setdefault(document, {}):
                raise InputError(f"{path}: expected page {number} of {document} once, found it again; give one output")
            documents[document][number] = reading
    if not documents:
        raise InputError(f"{output}: expected outputs of a run, found none")
    return Transcripts(str(output), documents)


def match(truth: Mapping[str, Mapping[int, str]], run: Transcripts) -> Matched:
    """Pairs pages by document and number; a name with its extension fits the same name without, where only one does."""
    names = names_in(truth, run.documents)
    pairs: list[Pair] = []
    unread: list[tuple[str, int]] = []
    untold: list[tuple[str, int]] = []
    for document, pages in sorted(truth.items()):
        read = run.documents.get(names.get(document, ""), {})
        for number in sorted(pages.keys() | read.keys()):
            if number not in read:
                unread.append((document, number))
            elif number not in pages:
                untold.append((document, number))
            else:
                pairs.append(Pair(document, number, pages[number], read[number]))
    matched = set(names.values())
    untold += [
        (document, page) for document in sorted(run.documents.keys() - matched) for page in sorted(run.documents[document])
    ]
    return Matched(tuple(pairs), tuple(unread), tuple(untold))


def names_in(wanted: Iterable[str], documents: Iterable[str]) -> dict[str, str]:
    """Wanted name -> the document of that name: the same, else the only one that differs by an extension alone.

    A document that two wanted names would take goes to neither: it is ambiguous.
    """
    exact = set(documents)
    stems: dict[str, list[str]] = {}
    for name in exact:
        stems.setdefault(_stem(name), []).append(name)
    takers: dict[str, list[str]] = {}
    for name in wanted:
        near = {name} if name in exact else {*stems.get(name, []), *({_stem(name)} & exact)}
        if len(near) == 1:
            takers.setdefault(near.pop(), []).append(name)
    return {names[0]: document for document, names in takers.items() if len(names) == 1}


def _jsonl(path: Path, name: str) -> Iterator[tuple[str, int, Transcript]]:
    for number, line in enumerate(_text(path).split("\n"), 1):
        if not line:
            continue
        try:
            record = json.loads(line)
            log_prob = record.get("mean_log_prob")
            reading = Transcript(
                str(record["text"]).strip("\n"),
                str(record.get("status", "")),
                float(log_prob) if isinstance(log_prob, int | float) else None,
            )
            yield str(record["document"]), int(record["page"]), reading
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"{path}:{number}: expected a page's record with document, page and text, found: {error}"
            ) from error


def _dolma(path: Path, name: str) -> Iterator[tuple[str, int, Transcript]]:
    """Pages by the spans of their characters."""
    try:
        record = json.loads(_text(path))
        document, text = str(record["metadata"]["source_file"]), record["text"]
        for start, end, number in record["attributes"]["pdf_page_numbers"]:
            yield document, int(number), Transcript(text[start:end].strip("\n"))
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: expected a Dolma record with spans of pages, found: {error!r}") from error


def _plain(path: Path, name: str) -> Iterator[tuple[str, int, Transcript]]:
    document, first = _of_a_page(name)
    for number, page in enumerate(_text(path).split(PAGE_SEPARATOR), first):
        yield document, number, Transcript(page.strip("\n"))


def _of_a_page(name: str) -> tuple[str, int]:
    """The document, and the number of the file's first page."""
    found = _OF_A_PAGE.fullmatch(name)
    return (found[1], int(found[2])) if found else (name, 1)


def _markdown(path: Path, name: str) -> Iterator[tuple[str, int, Transcript]]:
    """Pages by their comments; a file without one is one page."""
    text, (document, first) = _text(path), _of_a_page(name)
    comments = [found for found in _PAGE_COMMENT.finditer(text) if found[1] or _STATUS.match(found[2])]
    if not comments or comments[0].start() > 0:
        yield document, first, Transcript(text.strip("\n"))
        return
    ends = [*(comment.start() for comment in comments[1:]), len(text)]
    for comment, end in zip(comments, ends, strict=True):
        status = _STATUS.match(comment[2])
        page = text[comment.end() : end].strip("\n")
        yield document, int(comment[1] or first), Transcript(page, status[1] if status else "ok")


READERS: dict[str, Callable[[Path, str], Iterator[tuple[str, int, Transcript]]]] = {
    ".jsonl": _jsonl,
    ".dolma.jsonl": _dolma,
    ".txt": _plain,
    ".md": _markdown,
}


def _files(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.name.endswith(suffixes)
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]


def _suffix(path: Path) -> str | None:
    """The longest of OUTPUT_SUFFIXES that a file has."""
    return max((suffix for suffix in OUTPUT_SUFFIXES if path.name.endswith(suffix)), key=len, default=None)


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8").replace("\r\n", "\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: expected UTF-8 text, found byte {error.object[error.start]:#04x}") from error


def _stem(name: str) -> str:
    return PurePosixPath(name).with_suffix("").as_posix() if PurePosixPath(name).suffix else name
