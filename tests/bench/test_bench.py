"""The bench itself: workers, fits, ratios, and what it reads out of llama.cpp's programs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.fits import fit
from tests.bench.llama_programs import json_lines, page_figures
from tests.bench.report import RATIOS, Report
from tests.bench.sections import SECTIONS
from tests.bench.workers import ROOT, Worker, WorkerFailed

SERVER = """
from tests.bench.serve import serve
def double(x): print("chatter"); return {"x": 2 * x}
def die(): raise SystemExit(3)
serve({"double": double, "die": die})
"""

MTMD = """
main: loading model
image slice encoded in 71200 ms
image decoded (batch 1/1) in 9950 ms
common_perf_print: prompt eval time =   10100.00 ms /  1380 tokens (    7.32 ms per token,   136.6 tokens per second)
common_perf_print:        eval time =   17970.00 ms /   255 runs   (   70.47 ms per token,    14.2 tokens per second)
"""


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    return Worker("test", (sys.executable, "-c", SERVER), tmp_path / "log")


def test_a_worker_answers_and_its_errors_do_not_end_it(worker: Worker, tmp_path: Path) -> None:
    assert worker.ask("double", x=21)["x"] == 42
    with pytest.raises(WorkerFailed, match="test: double: TypeError"):
        worker.ask("double", y=1)
    assert worker.ask("double", x=1)["x"] == 2
    assert worker.peak_bytes > 1 << 20
    worker.close()
    assert "chatter" in (tmp_path / "log").read_text()


def test_a_dead_worker_is_told(worker: Worker) -> None:
    with pytest.raises(WorkerFailed, match="gave no answer"):
        worker.ask("die")
    with pytest.raises(WorkerFailed, match="gave no answer"):
        worker.ask("double", x=1)
    worker.close()


def test_fits_find_how_cost_grows() -> None:
    points = [(float(n), 2.0 + 0.5 * n + 0.001 * n * n) for n in (10, 100, 500, 1000)]
    found = fit(points, 2)
    assert found["coefficients"] == pytest.approx([2.0, 0.5, 0.001])
    assert found["largest_error"] < 1e-9
    assert found["text"] == "2 + 0.5 n^1 + 0.001 n^2 (within 0%)"
    assert fit(points[:1], 2)["coefficients"] == pytest.approx([points[0][1]])


def test_figures_of_llama_programs() -> None:
    assert page_figures(MTMD) == {"seconds": 71.2, "encode": 71.2, "read": 9.95, "decode": 17.97}
    newer = MTMD.replace("image slice encoded in", "0.01.178.150 I mtmd batch encoding done in")
    assert page_figures(newer) == page_figures(MTMD)
    with pytest.raises(RuntimeError, match="does not say"):
        page_figures("nothing")
    assert json_lines('warming up\n{"t_tg": 1.5}\nmain: n_kv\n') == [{"t_tg": 1.5}]


def test_ratios_are_ours_over_the_peers_where_both_are_measured(tmp_path: Path) -> None:
    report = Report(tmp_path / "bench.json", {"sections": {}, "machine": {}})
    report.add("prefill", {"prefill_1400": {"ours": 400.0, "llama.cpp": 200.0, "unit": "tokens/s"}})
    report.add("decode_short", {"decode_b1_16_f16": {"ours": 60.0, "unit": "tokens/s"}})
    report.write()
    written = json.loads((tmp_path / "bench.json").read_text())
    assert written["ratios"] == {"prefill_1400": 2.0}
    assert set(written["sections"]) == {"prefill", "decode_short"}


def test_the_ratios_that_are_promised_exist() -> None:
    promised = {
        *("prefill_1400", "decode_b1", "decode_b16_1400_f16", "decode_b16_1400_q8_0", "vision_1036_bf16", "job_12_pages")
    }
    assert promised <= set(RATIOS)


@pytest.mark.slow
def test_a_small_run_measures_every_section(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.bench",
        "--small",
        "--quick",
        "--threads",
        "1",
        "--json",
        str(tmp_path / "all.json"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(json.loads((tmp_path / "all.json").read_text())["sections"]) == set(SECTIONS)
