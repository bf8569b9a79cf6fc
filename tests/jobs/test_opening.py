"""From settings to an open reader: memory, CPU and trace, on the sample model."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path

import numpy as np
import pytest

from pagemill.decoder.kernels.isa import PORTABLE
from pagemill.jobs.errors import ConfigError, OutputError
from pagemill.jobs.run.job import provenance_of
from pagemill.jobs.run.opening import open_reader
from pagemill.jobs.run.spec import JobSpec, resolve_job
from pagemill.jobs.settings.config import Config
from pagemill.pipeline.page import PageImage, PageRef

WAIT_SECONDS = 120.0


def job(**sections: object) -> JobSpec:
    engine = {"context": 512, "threads": 1, "max_tokens": 8}
    return resolve_job(Config.model_validate({"engine": engine, **sections}))


def page() -> PageImage:
    """Strokes on white."""
    pixels = np.full((56, 140, 3), 255, np.uint8)
    pixels[20:36, 16:120:8] = 0
    return PageImage(PageRef("a", 0, "a.png"), pixels, "hash", 72.0, 0.25)


def test_a_trace_names_the_workers_and_what_they_did(tmp_path: Path) -> None:
    spec = job(run={"trace": str(tmp_path / "trace.json")})
    with open_reader(spec, provenance_of(spec)) as opened:
        opened.reader.submit(page())
        end = time.monotonic() + WAIT_SECONDS
        while not opened.reader.step() and time.monotonic() < end:
            pass
    events = json.loads((tmp_path / "trace.json").read_text())
    tracks = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    spans = {(tracks[event["tid"]], event["name"]) for event in events if event["ph"] == "X"}
    assert {("opening", "text model"), ("opening", "encoder"), ("engine", "prefill"), ("engine", "decode")} <= spans
    assert any(track == "encoder" and name.startswith("a.png") for track, name in spans)
    rows = sum(event["args"].get("prompt_rows", 0) for event in events if event["name"] == "prefill")
    assert rows >= 2 * 5  # the page's rows at least


def test_a_trace_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    spec = job(run={"trace": str(tmp_path / "file" / "trace.json")})
    with pytest.raises(OutputError, match=r"run\.trace"), open_reader(spec, provenance_of(spec)):
        pass


def test_a_short_budget_takes_fewer_pages_at_once_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigError, match="GB are missing"), open_reader(spec := job(memory={"budget": 200 << 20}), {}):
        pass
    assert spec.config.engine.slots == 16
    with caplog.at_level(logging.WARNING, "pagemill"), open_reader(job(memory={"budget": 1 << 40}), {}):
        pass
    assert not caplog.records


def test_an_unknown_cpu_is_said_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("pagemill.decoder.kernels.isa.detect", lambda: PORTABLE)
    with caplog.at_level(logging.WARNING, "pagemill"), open_reader(spec := job(), provenance_of(spec)):
        pass
    assert [record.getMessage() for record in caplog.records if record.getMessage().startswith("cpu:")] == [
        "cpu: Pagemill has no kernels for this CPU in particular; the portable ones are slow"
    ]
