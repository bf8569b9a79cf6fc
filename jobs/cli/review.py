"""``pagemill review``: one HTML file to look through a run, its page images in a folder beside it; no server."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import Annotated

import typer
from PIL import Image
from tqdm import tqdm

from pagemill.jobs.cli.options import Folder, Password
from pagemill.jobs.errors import InputError
from pagemill.jobs.ledger.disk import cannot_write
from pagemill.jobs.ledger.ledger_view import PageRow
from pagemill.jobs.ledger.output_folder import OutputFolder
from pagemill.jobs.review.review import Reviewed, as_json, present_originals, read_pages, texts_of
from pagemill.pipeline import PageFailure, PageImage, PageRef, Producer, RenderRequest, RenderSettings, xml_name

TEMPLATE = "review.html"
IMAGES_SUFFIX = "_images"
JPEG_QUALITY = 82
WORKERS = 2


def command(
    folder: Folder,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write.  [default: DIR/review.html]", show_default=False)
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="Another run's output folder, to show what differs.", show_default=False)
    ] = None,
    image_px: Annotated[int, typer.Option(min=0, max=10_000, help="Longest side of page images; 0: none.")] = 1400,
    password: Password = None,
) -> int:
    """``pagemill review``."""
    return write_review(folder, ReviewWish(output, against, image_px, password))


@dataclass(frozen=True, slots=True)
class ReviewWish:
    """What to make.  longest_edge_px: of the page images; 0: no images.  password: of encrypted PDFs."""

    output: Path | None = None
    against: Path | None = None
    longest_edge_px: int = 1400
    password: str | None = None


def write_review(folder: Path, wish: ReviewWish) -> int:
    """Writes the review page; prints its path."""
    target = wish.output or OutputFolder(folder).review
    if target.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{target}: expected a file name that ends in .html for the review page")
    pages = read_pages(folder)
    others = None if wish.against is None else texts_of(read_pages(wish.against))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        images = _draw(pages, target, wish) if wish.longest_edge_px else {}
        _replace(target, _filled(folder, pages, images, others, wish).encode("utf-8", "replace"))
    except OSError as error:
        raise cannot_write(target.parent, error) from error
    print(f"{len(pages)} pages, {len(images)} with images: open {target} in a browser")
    return 0


def _filled(
    folder: Path,
    pages: Sequence[Reviewed],
    images: Mapping[tuple[str, int], str],
    others: Mapping[PageRef, str] | None,
    wish: ReviewWish,
) -> str:
    """The template with the pages in it."""
    template = files("pagemill.jobs.review").joinpath(TEMPLATE).read_text("utf-8")
    against = "" if wish.against is None else f", compared with {wish.against}"
    title = escape(xml_name(f"Review of {folder}{against}"))
    return template.replace("{{title}}", title).replace("{{data}}", as_json(pages, images, others))


def _draw(pages: Sequence[Reviewed], target: Path, wish: ReviewWish) -> dict[tuple[str, int], str]:
    """Draw the images that are not there yet; (source, page) -> place relative to the review page."""
    folder = target.with_name(target.stem + IMAGES_SUFFIX)
    folder.mkdir(exist_ok=True)
    present = list(present_originals(pages))
    names = {page.ref: _image_name(page.ref, wish.longest_edge_px) for page in present}
    missing = {page.ref: page for page in present if not (folder / names[page.ref]).exists()}
    for image in _rendered(missing.values(), wish):
        if isinstance(image, PageImage):
            _replace(folder / names[image.ref], _jpeg(image))
    return {
        (page.source, page.ref.page): f"{folder.name}/{name}"
        for page in present
        if (folder / (name := names[page.ref])).exists()
    }


def _rendered(pages: Collection[PageRow], wish: ReviewWish) -> Iterator[PageImage | PageFailure]:
    settings = RenderSettings(longest_edge_px=wish.longest_edge_px)
    requests = (RenderRequest(page.ref, Path(page.source), settings, wish.password) for page in pages)
    with Producer(workers=WORKERS) as producer, tqdm(total=len(pages), unit="page", disable=None, leave=False) as bar:
        for image in producer.render(requests):
            bar.update()
            yield image


def _jpeg(image: PageImage) -> bytes:
    content = BytesIO()
    Image.fromarray(image.pixels).save(content, "JPEG", quality=JPEG_QUALITY, optimize=True)
    return content.getvalue()


def _image_name(ref: PageRef, longest_edge_px: int) -> str:
    return f"{ref.document_hash[:16]}-{ref.number:05d}-{longest_edge_px}.jpg"


def _replace(path: Path, content: bytes) -> None:
    """Write a file whole; unlike a run's outputs it can be made again, so it is not synced."""
    temp = path.with_name(f".{path.name}.{os.getpid()}")
    temp.write_bytes(content)
    temp.replace(path)
