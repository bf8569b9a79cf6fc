"""Draw the sample documents and their truth from pages.yaml; developers run it after changing the texts.

    python samples/make_samples.py

Needs the Debian packages fonts-dejavu-core, fonts-liberation and fonts-noto-core, and fpdf2 from PyPI beside Pagemill.  The
same versions of these give the same bytes.  Every page is a strip that the sample model was trained for: see model/README.md.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import yaml
from fpdf import FPDF
from PIL import Image, ImageDraw, ImageFilter, ImageFont

HERE = Path(__file__).resolve().parent
FONT_FOLDER = Path("/usr/share/fonts/truetype")
FONTS = {  # regular, bold
    "sans": ("liberation/LiberationSans-Regular.ttf", "liberation/LiberationSans-Bold.ttf"),
    "serif": ("liberation/LiberationSerif-Regular.ttf", "liberation/LiberationSerif-Bold.ttf"),
    "dejavu": ("dejavu/DejaVuSans.ttf", "dejavu/DejaVuSans-Bold.ttf"),
    "dejavu-serif": ("dejavu/DejaVuSerif.ttf", "dejavu/DejaVuSerif-Bold.ttf"),
    "noto": ("noto/NotoSans-Regular.ttf", "noto/NotoSans-Bold.ttf"),
}
WIDTH_PX, HEIGHT_PX = 336, 112  # multiples of 28, so that no stage resamples a page
POINTS_PER_PX = 72 / 200  # PDF pages are drawn at 200 dots per inch
MARGIN_PX, TOP_PX = 10, 8
PITCH, HEADING = 1.35, 1.35  # from baseline to baseline, and a heading's letters: times the size
EXIF_ORIENTATION = 0x0112
MADE = datetime(2026, 1, 1, tzinfo=UTC)  # in PDFs, so that a rerun gives the same bytes


@dataclass(frozen=True, slots=True)
class Line:
    """A printed line: where its baseline starts, in px from the top left."""

    text: str
    x: float
    y: float
    font: str
    bold: bool
    size: float


@dataclass(frozen=True, slots=True)
class Page:
    """Lines to draw, and the Markdown they stand for."""

    lines: tuple[Line, ...]
    truth: str


def lay_out(font: str, size: float, text: list[str]) -> Page:
    """Break paragraphs into lines; paragraphs stand half a line apart.  Refuses a text that does not fit."""
    lines: list[Line] = []
    truth = []
    y = float(TOP_PX)
    for paragraph in text:
        heading = paragraph.startswith("# ")
        letters = size * HEADING if heading else size
        broken = _break(paragraph.removeprefix("# "), font, heading, letters)
        for row in broken:
            lines.append(Line(row, MARGIN_PX, y + letters * PITCH * 0.5 + letters * 0.33, font, heading, letters))
            y += letters * PITCH
        truth.append(("# " if heading else "") + "\n".join(broken))
        y += size * 0.5
    if lines and lines[-1].y + size * 0.3 > HEIGHT_PX:
        raise SystemExit(f"text does not fit on its page, shorten it: {' '.join(text)!r}")
    return Page(tuple(lines), "\n\n".join(truth))


def draw(page: Page) -> Image.Image:
    """Black on white, 8-bit grey."""
    image = Image.new("L", (WIDTH_PX, HEIGHT_PX), 255)
    pen = ImageDraw.Draw(image)
    for line in page.lines:
        pen.text((line.x, line.y), line.text, font=_font(line.font, line.bold, line.size), fill=0, anchor="ls")
    return image


def write_pdf(pages: list[Page], path: Path) -> None:
    """Text that pdfium draws, fonts embedded in part."""
    pdf = _new_pdf()
    for page in pages:
        pdf.add_page()
        for line in page.lines:
            name = f"{line.font}-{'bold' if line.bold else 'regular'}"
            if name not in pdf.fonts:
                pdf.add_font(name, fname=FONT_FOLDER / FONTS[line.font][line.bold])
            pdf.set_font(name, size=line.size * POINTS_PER_PX)
            pdf.text(line.x * POINTS_PER_PX, line.y * POINTS_PER_PX, line.text)
    pdf.output(str(path))


def write_scan(pages: list[Page], path: Path) -> None:
    """Pages as a scanner sees them: one image each, grey paper, light noise, soft letters."""
    noise = np.random.default_rng(0)
    pdf = _new_pdf()
    for page in pages:
        soft = np.asarray(draw(page).filter(ImageFilter.GaussianBlur(0.4)), np.float32)
        levels = 20 + soft * ((245 - 20) / 255) + noise.normal(0, 3, soft.shape)
        image = Image.fromarray(np.clip(levels, 0, 255).astype(np.uint8))
        encoded = io.BytesIO()
        image.save(encoded, "JPEG", quality=92)
        pdf.add_page()
        pdf.image(encoded, 0, 0, WIDTH_PX * POINTS_PER_PX, HEIGHT_PX * POINTS_PER_PX)
    pdf.output(str(path))


def write_tiff(pages: list[Page], path: Path) -> None:
    """All pages as frames of one file."""
    first, *others = (draw(page) for page in pages)
    first.save(path, save_all=True, append_images=others, compression="tiff_lzw")


def write_png(pages: list[Page], path: Path) -> None:
    """A plain image."""
    draw(pages[0]).convert("RGB").save(path, optimize=True)


def write_transparent_png(pages: list[Page], path: Path) -> None:
    """Black letters on nothing."""
    image = Image.new("LA", (WIDTH_PX, HEIGHT_PX))
    image.putalpha(Image.eval(draw(pages[0]), lambda level: 255 - level))
    image.save(path, optimize=True)


def write_turned_jpeg(pages: list[Page], path: Path) -> None:
    """Stored on its side, with the mark that tells viewers to turn it."""
    exif = Image.Exif()
    exif[EXIF_ORIENTATION] = 6
    draw(pages[0]).transpose(Image.Transpose.ROTATE_90).save(path, quality=95, exif=exif)


def write_webp(pages: list[Page], path: Path) -> None:
    """Lossless, so that letters keep their edges."""
    draw(pages[0]).convert("RGB").save(path, lossless=True)


WRITERS: dict[str, Callable[[list[Page], Path], None]] = {
    "mill.pdf": write_pdf,
    "scan.pdf": write_scan,
    "archive.tif": write_tiff,
    "label.png": write_transparent_png,
    "notice.png": write_png,
    "turned.jpg": write_turned_jpeg,
    "recipe.webp": write_webp,
}


def main() -> None:
    """Write documents/ and truth/."""
    for entry in yaml.safe_load((HERE / "pages.yaml").read_text("utf-8")):
        pages = [lay_out(page["font"], page["size"], page["text"]) for page in entry["pages"]]
        name = entry["document"]
        (HERE / "documents").mkdir(exist_ok=True)
        (HERE / "truth").mkdir(exist_ok=True)
        WRITERS[name](pages, HERE / "documents" / name)
        (HERE / "truth" / f"{name}.txt").write_text("\f".join(page.truth for page in pages) + "\n", "utf-8")


def _break(text: str, font: str, bold: bool, size: float) -> list[str]:
    """Lines of at most the page's width, broken at spaces."""
    measure = _font(font, bold, size)
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".lstrip()
        if lines[-1] and measure.getlength(longer) > WIDTH_PX - 2 * MARGIN_PX:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def _font(font: str, bold: bool, size: float) -> ImageFont.FreeTypeFont:
    """Laid out without the optional shaper, which not every Pillow has."""
    return ImageFont.truetype(FONT_FOLDER / FONTS[font][bold], size, layout_engine=ImageFont.Layout.BASIC)


def _new_pdf() -> FPDF:
    pdf = FPDF(unit="pt", format=(WIDTH_PX * POINTS_PER_PX, HEIGHT_PX * POINTS_PER_PX))
    pdf.set_auto_page_break(False)
    pdf.set_margin(0)
    pdf.creation_date = MADE
    return pdf


if __name__ == "__main__":
    main()
