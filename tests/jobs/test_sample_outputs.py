"""The samples, read by the sample model into every format: each file is valid, and holds what the text file holds."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pypdfium2
import pytest
from lxml import etree

from pagemill.pipeline.sinks import SINKS
from tests.pipeline.test_sinks_schemas import CHECKS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ROOT / "samples" / "documents"
TRUTH = ROOT / "samples" / "truth"
PAGES = {path.stem: (TRUTH / f"{path.name}.txt").read_text("utf-8").count("\f") + 1 for path in DOCUMENTS.iterdir()}


@pytest.fixture(scope="module", params=["document", "page"])
def output(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("samples")
    job = folder / "job.yaml"
    job.write_text(
        f"input: {{paths: ['{DOCUMENTS}']}}\noutput: {{folder: out, formats: [{', '.join(SINKS)}], per: {request.param}}}\n"
        "run: {progress: none}\n",
        "utf-8",
    )
    done = subprocess.run(
        [sys.executable, "-m", "pagemill", "run", str(job)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "out"


def files(output: Path, name: str) -> list[Path]:
    return sorted(path for path in output.iterdir() if path.name.endswith(SINKS[name].suffix))


@pytest.mark.parametrize("name", CHECKS)
def test_every_file_is_valid(output: Path, name: str) -> None:
    found = files(output, name)
    assert len(found) in (len(PAGES), sum(PAGES.values()))
    assert {path.name: CHECKS[name](path.read_bytes()) for path in found if CHECKS[name](path.read_bytes())} == {}


def test_mets_lists_files_that_are_there_as_they_are(output: Path) -> None:

    for path in files(output, "mets"):
        root = etree.parse(path)
        listed = [file for file in root.iter("{http://www.loc.gov/METS/}file") if file.get("ID") != "original"]
        assert len(listed) >= len(SINKS) - 1
        for file in listed:
            content = (output / unquote(file[0].get("{http://www.w3.org/1999/xlink}href"))).read_bytes()
            assert hashlib.sha256(content).hexdigest() == file.get("CHECKSUM")
            assert str(len(content)) == file.get("SIZE")


def test_searchable_pdf_has_the_text_and_the_original_pages(output: Path) -> None:
    for name, count in PAGES.items():
        text = "".join(path.read_text("utf-8") + "\f" for path in files(output, "text") if path.name.split(".")[0] == name)
        pages = text.removesuffix("\f").split("\f")
        pdf = pypdfium2.PdfDocument(output / f"{name}.searchable.pdf")
        assert len(pdf) == len(pages) == count
        original = DOCUMENTS / f"{name}.pdf"
        for number in range(count):
            wanted = pages[number].split()
            assert pdf[number].get_textpage().get_text_range().split()[: len(wanted)] == wanted
            if original.exists():
                drawn = pypdfium2.PdfDocument(original)[number].render(scale=2).to_numpy()
                assert np.array_equal(drawn, pdf[number].render(scale=2).to_numpy())
