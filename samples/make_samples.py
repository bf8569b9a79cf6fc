"""Draw the sample documents and their truth from pages.yaml; developers run it after changing the texts.

    python samples/make_samples.py

Needs the Debian packages fonts-dejavu-core, fonts-liberation and fonts-noto-core, and fpdf2 from PyPI beside Pagemill.  The
same versions of these give the same bytes.  Most pages are strips that the sample model was trained for: see model/README.md.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import yaml
from drawing import images, pdfs
from drawing.typeset import Page, lay_out

HERE = Path(__file__).resolve().parent
WRITERS: dict[str, Callable[[list[Page], Path], None]] = {
    "text PDF": pdfs.write_pdf,
    "turned PDF": pdfs.write_turned_pdf,
    "locked PDF": pdfs.write_locked_pdf,
    "scanned PDF": pdfs.write_scanned_pdf,
    "TIFF": images.write_tiff,
    "fax TIFF": images.write_fax,
    "PNG": images.write_png,
    "transparent PNG": images.write_transparent_png,
    "palette PNG": images.write_palette_png,
    "16-bit PNG": images.write_deep_png,
    "turned JPEG": images.write_turned_jpeg,
    "CMYK JPEG": images.write_cmyk_jpeg,
    "yellowed JPEG": images.write_yellowed_jpeg,
    "WebP": images.write_webp,
}


def main() -> None:
    """Write documents/, locked/ and truth/."""
    for entry in yaml.safe_load((HERE / "pages.yaml").read_text("utf-8")):
        pages = [lay_out(page) for page in entry["pages"]]
        path = HERE / entry["document"]
        path.parent.mkdir(exist_ok=True)
        WRITERS[entry["as"]](pages, path)
        truth = HERE / "truth" / f"{path.name}.txt"
        truth.parent.mkdir(exist_ok=True)
        truth.write_text("\f".join(page.truth for page in pages) + "\n", "utf-8")


if __name__ == "__main__":
    main()
