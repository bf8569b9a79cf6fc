"""Tesseract's reading of the same pages, as something to measure against; only where it is installed."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from PIL import Image

from pagemill.jobs.errors import InputError
from pagemill.jobs.evaluate.readings import Transcript, Transcripts
from pagemill.jobs.inputs.discover import Found, open_documents
from pagemill.jobs.watch.arrivals import relative_to, scan
from pagemill.pipeline import Inspector, PageFailure, PageImage, Producer, RenderRequest, RenderSettings

PROGRAM = "tesseract"
SECONDS = 300.0  # for one page
LONGEST_EDGE_PX = 4000  # it wants some 300 dpi, more than a model takes
MAX_DPI = 300.0
MAX_PAGES = 20_000


def read_with_tesseract(documents: Path, languages: str) -> Transcripts:
    """Reads every page below ``documents``.  Raises InputError where it is not installed or does not run."""
    program = shutil.which(PROGRAM)
    if program is None:
        raise InputError(f"--tesseract: expected the program {PROGRAM} in the search path, found none; install it")
    if not documents.is_dir():
        raise InputError(f"--tesseract: expected the folder of the documents, found none at {documents}")
    files = [Found(path, relative_to(path, documents)) for path in sorted(scan([documents]).stamps)]
    found: dict[str, dict[int, Transcript]] = {}
    with tempfile.TemporaryDirectory(prefix="pagemill-") as folder:
        for name, image in _images(files):
            reading = Transcript("", "failed")
            if isinstance(image, PageImage):
                picture = Path(folder, "page.png")
                Image.fromarray(image.pixels).save(picture, dpi=(image.source_dpi or MAX_DPI,) * 2)
                reading = Transcript(_read(program, picture, languages), "ok")
            found.setdefault(name, {})[image.ref.number] = reading
    return Transcripts(PROGRAM, found)


def _images(files: Sequence[Found]) -> Iterator[tuple[str, PageImage | PageFailure]]:
    """Every page of every document, with the document's name below the folder; rendered once for each of its names."""
    settings = RenderSettings(longest_edge_px=LONGEST_EDGE_PX, multiple_px=1, max_dpi=MAX_DPI)
    with Inspector() as inspector, Producer(ahead=2) as producer:
        for document in open_documents(files, lambda path: inspector.inspect(path).pages, MAX_PAGES):
            requests = (RenderRequest(ref, document.found.path, settings) for ref in document.refs)
            yield from ((document.found.relative.as_posix(), page) for page in producer.render(requests))


def _read(program: str, picture: Path, languages: str) -> str:
    command = [program, str(picture), "stdout", "-l", languages]
    try:
        done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=True)
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode("utf-8", "replace").strip().splitlines()
        raise InputError(
            f"{PROGRAM}: it failed: {lines[-1] if lines else error}; are its languages ({languages}) installed?"
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{PROGRAM}: it did not read a page: {error}") from error
    return done.stdout.decode("utf-8", "replace").replace("\f", "").strip("\n")
