"""Every example of docs/api.md and of the rooms' docstrings runs on the sample model."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

from tests.answers import ROOT

BLOCK = re.compile(r"^## (.+?)$.*?^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = dict(BLOCK.findall((ROOT / "docs" / "api.md").read_text("utf-8")))
LONGEST_LINES = 20


@pytest.fixture(autouse=True)
def _in_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = EXAMPLES[name]
    assert code.count("\n") <= LONGEST_LINES
    exec(compile(code, f"docs/api.md: {name}", "exec"), {"__name__": "example"})
    assert capsys.readouterr().out.strip()


def test_a_folder_of_images_is_read_without_jobs() -> None:
    code = EXAMPLES["A folder of page images, without a job"]
    assert "jobs" not in re.findall(r"pagemill\.(\w+)", code)
    assert len([line for line in code.splitlines() if line.strip()]) <= 10


@pytest.mark.parametrize("room", ["decoder", "vision", "pipeline", "jobs"])
def test_the_example_of_every_room_runs(room: str, tmp_path: Path) -> None:
    face = importlib.import_module(f"pagemill.{room}")
    (example,) = doctest.DocTestFinder(recurse=False).find(
        face, room, globs={name: getattr(face, name) for name in face.__all__}
    )
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0
