"""The sample strips read with int8 products in the encoder, against the same strips in float32.

Whole pages are left out: one that is read badly takes another way at the first doubt, whatever the rounding.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.answers import ROOT
from tests.house.test_readme import STRIP_PX, score

pytestmark = pytest.mark.slow


def errors(output: Path, precision: str) -> tuple[int, int]:
    """Characters read wrong, and characters in all."""
    command = [sys.executable, "-m", "pagemill", "run", "samples/jobs/samples.yaml", "-o", str(output), "--progress", "none"]
    environment = {**os.environ, "PAGEMILL_VISION__PRECISION": precision}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    strips = [page for page in score(output).values() if page.size == STRIP_PX]
    return sum(strip.errors for strip in strips), sum(strip.characters for strip in strips)


def test_int8_reads_the_strips_within_a_thousandth_of_float32(tmp_path: Path) -> None:
    exact, characters = errors(tmp_path / "f32", "f32")
    rounded, _ = errors(tmp_path / "int8", "int8")
    assert rounded - exact <= 0.001 * characters
