"""Traces: what viewers expect of the format, readable also after a kill, nothing where none was asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pagemill.pipeline.trace import NO_TRACE, ChromeTrace, open_trace


def test_spans_lie_on_the_tracks_of_their_workers(tmp_path: Path) -> None:
    trace = ChromeTrace(tmp_path / "new" / "trace.json")
    with trace.span("writer", "a.pdf, page 1"):
        pass
    trace.add("engine", "decode", 10.0, 10.5, prompt_rows=0, decoded_rows=16)
    trace.add("writer", "again", 11.0, 11.25)
    trace.close()
    events = json.loads((tmp_path / "new" / "trace.json").read_text())
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    spans = [event for event in events if event["ph"] == "X"]
    assert [(names[span["tid"]], span["name"]) for span in spans] == [
        ("writer", "a.pdf, page 1"),
        ("engine", "decode"),
        ("writer", "again"),
    ]
    assert [span["dur"] for span in spans[1:]] == [500_000, 250_000]
    assert spans[2]["ts"] - spans[1]["ts"] == 1_000_000
    assert spans[1]["args"] == {"prompt_rows": 0, "decoded_rows": 16}


def test_a_span_ends_also_when_its_work_fails(tmp_path: Path) -> None:
    trace = ChromeTrace(tmp_path / "trace.json")
    with pytest.raises(ZeroDivisionError), trace.span("writer", "page"):
        raise ZeroDivisionError
    trace.close()
    assert json.loads((tmp_path / "trace.json").read_text())[-1]["name"] == "page"


def test_without_a_file_nothing_is_noted() -> None:
    trace = open_trace(None)
    assert trace is NO_TRACE
    with trace.span("writer", "page"):
        trace.add("writer", "page", 0.0, 1.0)
    trace.close()
