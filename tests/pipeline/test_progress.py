"""Progress: what each display shows of the same run."""

from __future__ import annotations

import dataclasses
import io
import json
import sys

import pytest

from pagemill.jobs.run.progress import Kind, Meter, open_progress, resident_bytes


def metered() -> Meter:
    meter = Meter(pages=10, skipped=2, now=100.0)
    for second in range(4):
        meter.count(f"x.pdf, page {second + 1}: ok", failed=second == 0, tokens=50, now=101.0 + second)
    return meter


def test_meter_counts_and_rates() -> None:
    snapshot = metered().snapshot(now=110.0)
    assert (snapshot.done, snapshot.failed, snapshot.skipped, snapshot.left) == (4, 1, 2, 4)
    assert snapshot.pages_per_minute == pytest.approx(24.0)
    assert snapshot.tokens_per_second == pytest.approx(20.0)
    assert snapshot.eta_seconds == pytest.approx(10.0)
    assert snapshot.page == "x.pdf, page 4: ok"


def test_rates_are_those_of_the_last_minute() -> None:
    meter = metered()
    meter.count("y", failed=False, tokens=120, now=1000.0)
    assert meter.snapshot(1010.0).pages_per_minute == pytest.approx(1.0)
    assert meter.snapshot(1010.0).tokens_per_second == pytest.approx(2.0)
    assert meter.snapshot(2000.0).pages_per_minute == 0


def test_nothing_is_promised_before_the_first_page() -> None:
    assert Meter(5, 0, 0.0).snapshot(3.0).eta_seconds is None


@pytest.mark.parametrize("kind", ["rich", "tqdm", "json", "none", "auto"])
def test_every_display_shows_notes_and_ends(kind: Kind) -> None:
    errors, output = io.StringIO(), io.StringIO()
    progress = open_progress(kind, errors, output)
    progress.note("a [bracketed] note")
    for now in (105.0, 106.0):
        progress.show(metered().snapshot(now))
    progress.note("another")
    progress.close()
    shown = output.getvalue() if kind == "json" else errors.getvalue()
    assert "a [bracketed] note" in shown
    assert "another" in shown
    if kind != "none":
        assert "pages" in shown or "6/10" in shown
    assert (output.getvalue() == "") == (kind != "json")


def test_json_lines_are_written_when_a_page_ends() -> None:
    output = io.StringIO()
    progress = open_progress("json", io.StringIO(), output)
    meter = metered()
    for now in (105.0, 106.0):
        progress.show(meter.snapshot(now))
    meter.count("z", failed=False, tokens=1, now=107.0)
    progress.show(meter.snapshot(107.0))
    first, second = [json.loads(line) for line in output.getvalue().splitlines()]
    assert (first["event"], first["done"], first["left"], second["done"]) == ("progress", 4, 4, 5)


def test_auto_is_plain_where_there_is_no_terminal() -> None:
    errors = io.StringIO()
    progress = open_progress("auto", errors, io.StringIO())
    progress.show(metered().snapshot(105.0))
    progress.close()
    assert "\x1b" not in errors.getvalue()


def test_json_lines_go_on_while_a_page_takes_long() -> None:
    output = io.StringIO()
    progress = open_progress("json", io.StringIO(), output)
    for second in range(100, 131):
        progress.show(metered().snapshot(float(second)))
    assert [json.loads(line)["elapsed_seconds"] for line in output.getvalue().splitlines()] == [0, 10, 20, 30]


def test_stages_and_memory_are_shown() -> None:
    snapshot = dataclasses.replace(metered().snapshot(105.0), rendering=3, reading=16, writing=2, memory_bytes=300 << 20)
    errors, output = io.StringIO(), io.StringIO()
    for kind, stream in (("rich", errors), ("json", output)):
        progress = open_progress(kind, errors, output)  # type: ignore[arg-type]
        progress.show(snapshot)
        progress.close()
        assert stream.getvalue()
    assert "3 rendering, 16 reading, 2 writing" in errors.getvalue()
    assert "300 MiB" in errors.getvalue()
    line = json.loads(output.getvalue())
    assert (line["rendering"], line["reading"], line["writing"], line["memory_bytes"]) == (3, 16, 2, 300 << 20)


def test_memory_of_this_process_is_known_on_linux() -> None:
    found = resident_bytes()
    assert found is None if sys.platform != "linux" else found is not None and found > 1 << 20
