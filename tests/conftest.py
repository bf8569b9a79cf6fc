"""Fixtures that all tests share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # so that tests import tests.build and tests.answers however pytest was started
    sys.path.insert(0, str(ROOT))

from tests.answers import ORACLE_DIRS  # noqa: E402 - needs the path above


@pytest.fixture(scope="session")
def oracle_dirs() -> list[Path]:
    """Folders of recorded answers: tests/oracles first; each has archs/, formats/, cache/, vision/, tokenizer/, real/."""
    return ORACLE_DIRS
