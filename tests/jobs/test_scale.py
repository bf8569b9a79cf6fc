"""Thousands of pages: ledger, records and outputs keep up, memory stays flat, a page takes as long at the end as before."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePath

import pikepdf
import pytest

from pagemill.jobs.inputs.discover import Document, Found
from pagemill.jobs.ledger.ledger import Ledger
from pagemill.jobs.ledger.owner import this_process
from pagemill.jobs.ledger.records import StoredPages
from pagemill.jobs.run.job import OpenReader, run_job
from pagemill.jobs.run.outputs import DocumentOutputs
from pagemill.jobs.run.progress import Snapshot
from pagemill.jobs.run.runner import Rules, Runner, Stages
from pagemill.jobs.run.spec import JobSpec
from pagemill.jobs.settings.config import Config
from pagemill.jobs.settings.registry import ModelFiles
from pagemill.pipeline.page import PageImage, PageText
from pagemill.pipeline.render.preprocess import RenderSettings
from pagemill.pipeline.render.renderer import RenderRequest
from pagemill.pipeline.transcriber import Transcriber
from tests.fakes import PROVENANCE, EchoReader, FakeRendering

FORMATS = ("text", "markdown", "jsonl")
LINE = "The mill stood by the river, and ground the corn of three villages. "
PAGES_PER_SECOND = 400
MEMORY_BYTES = 50 << 20


class FullReader(EchoReader):
    """Pages as long as real ones, 2 kB and 400 words."""

    def _answer(self, image: PageImage) -> PageText:
        text = super()._answer(image)
        words = LINE * 30
        return dataclasses.replace(text, text=f"{text.text}\n{words}", word_confidences=(97,) * len(words.split()))


@pytest.mark.slow
def test_ledger_records_and_outputs_keep_up_with_400_pages_a_second(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / ".pagemill" / "ledger.sqlite3", this_process())
    ledger.begin("m", "s", "{}", 0)
    store = StoredPages(tmp_path / ".pagemill" / "pages")
    outputs = DocumentOutputs(tmp_path, FORMATS, ledger, store)
    documents = [Document(Found(Path(f"/in/{n}.pdf"), PurePath(f"{n}.pdf")), f"hash{n}", 200) for n in range(20)]
    outputs.name_documents(documents)
    rules = Rules("m", "s", 2, 300.0, retry=(), full_disk_wait_seconds=0.0, provenance=PROVENANCE)
    pages = Transcriber(FakeRendering(ahead=16), FullReader(slots=16), lambda request: None)
    stages = Stages(lambda document, ref: RenderRequest(ref, b"", RenderSettings()), pages, store, outputs)
    runner = Runner(documents, ledger, stages, rules)
    runner.start(time.time())
    started = time.perf_counter()
    while runner.step(time.time()):
        pass
    rate = 4000 / (time.perf_counter() - started)
    print(f"{rate:.0f} pages a second")
    assert len(list(tmp_path.glob("*.md"))) == 20
    assert len(runner.outcomes()) == 4000
    store.close()
    ledger.close()
    assert rate >= PAGES_PER_SECOND


class Watcher:
    """Keeps the snapshots of a run, each with the CPU seconds that this process had used."""

    def __init__(self) -> None:
        self.seen: list[Snapshot] = []
        self.cpu_seconds: list[float] = []

    def show(self, snapshot: Snapshot) -> None:
        self.seen.append(snapshot)
        self.cpu_seconds.append(time.process_time())

    def page_cpu_seconds(self, start: int, end: int) -> float:
        """CPU seconds a page between the first and the last snapshot with that many pages done.

        Unlike the clock's, they do not grow with what else the machine does.
        """
        within = [i for i, seen in enumerate(self.seen) if start <= seen.done < end]
        first, last = within[0], within[-1]
        return (self.cpu_seconds[last] - self.cpu_seconds[first]) / (self.seen[last].done - self.seen[first].done)

    def note(self, text: str) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


@pytest.mark.slow
def test_memory_is_flat_and_pages_take_as_long_over_5000_pages(tmp_path: Path) -> None:
    path = tmp_path / "pages5000.pdf"
    with pikepdf.new() as pdf:
        font = pdf.make_indirect(
            pikepdf.Dictionary(Type=pikepdf.Name.Font, Subtype=pikepdf.Name.Type1, BaseFont=pikepdf.Name.Helvetica)
        )
        for number in range(5000):
            page = pdf.add_blank_page(page_size=(160, 100))
            page.Resources = pikepdf.Dictionary(Font=pikepdf.Dictionary(F1=font))
            page.Contents = pdf.make_stream(f"BT /F1 18 Tf 20 40 Td (page {number + 1}) Tj ET".encode())
        pdf.save(path)

    @contextmanager
    def open_echo(job: JobSpec, provenance: Mapping[str, str]) -> Iterator[OpenReader]:
        yield OpenReader(FullReader(slots=16), 280)

    config = Config.model_validate({"output": {"formats": list(FORMATS)}, "render": {"workers": 2, "ahead": 16}})
    job = JobSpec(config, (str(path),), tmp_path / "out", ModelFiles(Path("text"), Path("mmproj")), "model", "settings")
    watcher = Watcher()
    report = run_job(job, open_echo, watcher)
    assert report.counts == {"ok": 5000}
    memory = [snapshot.memory_bytes for snapshot in watcher.seen if 200 <= snapshot.done < 5000 and snapshot.memory_bytes]
    print(f"memory: {min(memory) >> 20} to {max(memory) >> 20} MiB, {report.seconds:.0f} s")
    assert max(memory) - min(memory) < MEMORY_BYTES
    early, late = watcher.page_cpu_seconds(500, 2500), watcher.page_cpu_seconds(3000, 5000)
    print(f"a page: {1000 * early:.2f} CPU ms early, {1000 * late:.2f} late")
    assert late < 1.5 * early
