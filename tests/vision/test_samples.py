"""The sample pages read with int8 products in the encoder, against the same pages in float32."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.answers import ROOT
from tests.house.test_readme import score

pytestmark = pytest.mark.slow


def errors(output: Path, precision: str) -> tuple[int, int]:
    """Characters read wrong, and characters in all."""
    command = [sys.executable, "-m", "jobs", "run", "samples/jobs/samples.yaml", "-o", str(output), "--progress", "none"]
    environment = {**os.environ, "PAGEMILL_VISION__PRECISION": precision}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = score(output).values()
    return sum(page.errors for page in pages), sum(page.characters for page in pages)


def test_int8_reads_the_samples_within_a_thousandth_of_float32(tmp_path: Path) -> None:
    exact, characters = errors(tmp_path / "f32", "f32")
    rounded, _ = errors(tmp_path / "int8", "int8")
    assert rounded - exact <= 0.001 * characters
