"""An output folder for tests of the review page: a run of three documents with every kind of page."""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageDraw

from pagemill.jobs.ledger.ledger import Ledger, Outcome
from pagemill.jobs.ledger.output_folder import OutputFolder
from pagemill.jobs.ledger.owner import this_process
from pagemill.jobs.ledger.records import StoredPages
from pagemill.pipeline.documents.content import hash_content
from pagemill.pipeline.page import PageRef, PageText

MODEL, SETTINGS = "m" * 64, "s" * 64
HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=document.title='owned'> & \u2028 \x00 \ud800"


def make_inputs(folder: Path) -> list[Path]:
    """A TIFF of four frames, a picture, and one that is not there any more."""
    folder.mkdir()
    frames = [Image.new("L", (300, 200), 255) for _ in range(4)]
    for page, frame in enumerate(frames):
        ImageDraw.Draw(frame).text((20, 20), f"frame {page + 1}", fill=0)
    frames[0].save(folder / "four.tif", save_all=True, append_images=frames[1:])
    frames[0].save(folder / "one.png")
    (folder / "gone.png").write_bytes(b"some picture")
    return [folder / "four.tif", folder / "one.png", folder / "gone.png"]


def make_run(output: Path, inputs: list[Path], last_words: str = "and the last page") -> None:
    """The folder as a run leaves it; ``gone.png`` is removed after it."""
    four, one, gone = inputs
    pages = [
        (four, 0, PageText(ref(four, 0), "# First\n\n| a | b |\n|---|---|\n| sure | unsure |", "ok", "", 9, -0.01)),
        (four, 1, PageText(ref(four, 1), "", "blank", "no ink on the page (0 marked pixels)")),
        (four, 2, PageText(ref(four, 2), f"three {last_words}", "ok", "", 4, -0.2, word_confidences=(100, 70, 40, 99, 98))),
        (four, 3, PageText(ref(four, 3), "do. do. do.", "looped", "the last 2 tokens repeat", 99, -1.5)),
        (one, 0, PageText(ref(one, 0), HOSTILE, "low_confidence", "confidence 0.05", 4, -3.0)),
        (gone, 0, PageText(ref(gone, 0), "", "failed", "not a document: <b>")),
    ]
    ledger = Ledger(OutputFolder(output).ledger, this_process())
    try:
        ledger.begin(MODEL, SETTINGS, "{}", 0.0)
        ledger.want([text.ref for _, _, text in pages], [str(path) for path, _, _ in pages])
        store = StoredPages(OutputFolder(output).pages(MODEL, SETTINGS))
        store.put([text for _, _, text in pages])
        store.close()
        texts = {text.ref: text for _, _, text in pages}
        claims = ledger.claim(0.0, 99, 60.0)
        chosen = [texts[claim.ref] for claim in claims]
        ledger.finish([(claim, Outcome(text.status, text.reason)) for claim, text in zip(claims, chosen, strict=True)], 1.0)
        ledger.end("finished", 2.0)
    finally:
        ledger.close()


def ref(path: Path, page: int) -> PageRef:
    """A page of a file."""
    return PageRef(hash_content(path), page, path.name)
