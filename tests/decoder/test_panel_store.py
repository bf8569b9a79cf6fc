"""Repacked weights kept on disk: the same weights, dropped when the file changes, harmless where nothing can be written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pagemill.decoder.model import Model, open_model
from pagemill.decoder.weights.panels import Panels
from tests.answers import oracle_files

ROOT = Path(__file__).parents[2]
STORE = "*.panels"


@pytest.fixture
def model_path(tmp_path: Path) -> Path:
    """A copy of a model with several formats."""
    return Path(shutil.copy(oracle_files("formats/qwen3-Q4_K_M.gguf")[0], tmp_path / "model.gguf"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where stores lie."""
    monkeypatch.setenv("PAGEMILL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "panels"


def panels(model: Model) -> list[Panels]:
    """All of a model's panels."""
    matrices = [model.weights.output]
    for layer in model.weights.layers:
        matrices += [layer.qkv, layer.attn_output, layer.gate_up, layer.down]
    return [part.panels for matrix in matrices for part in matrix.parts]


def equal(one: Model, other: Model) -> bool:
    return all(
        (a.format, a.rows, a.width) == (b.format, b.rows, b.width) and np.array_equal(a.data, b.data)
        for a, b in zip(panels(one), panels(other), strict=True)
    )


def is_mapped(model: Model) -> bool:
    """Whether the weights lie in a mapped file, at whole cache lines."""
    return all(not part.data.flags.writeable and part.data.ctypes.data % 64 == 0 for part in panels(model))


def test_the_second_start_maps_what_the_first_repacked(model_path: Path, folder: Path) -> None:
    plain, first, second = (open_model(model_path, cached=cached) for cached in (False, True, True))
    assert not is_mapped(first)
    assert is_mapped(second)
    assert equal(plain, first)
    assert equal(plain, second)
    assert len(list(folder.glob(STORE))) == 1


def test_without_being_asked_nothing_is_kept(model_path: Path, folder: Path) -> None:
    open_model(model_path)
    assert not folder.exists()


def test_a_changed_model_has_a_store_of_its_own_and_the_old_one_goes(model_path: Path, folder: Path) -> None:
    open_model(model_path, cached=True)
    (old,) = folder.glob(STORE)
    os.utime(model_path, ns=(1, 1))
    assert not is_mapped(open_model(model_path, cached=True))
    (new,) = folder.glob(STORE)
    assert new != old


def test_exact_weights_are_kept_apart(model_path: Path, folder: Path) -> None:
    for exact in (False, True):
        open_model(model_path, cached=True, exact=exact)
    assert len(list(folder.glob(STORE))) == 2


@pytest.mark.parametrize("damage", ["truncated", "empty", "other"])
def test_a_damaged_store_is_made_again(model_path: Path, folder: Path, damage: str) -> None:
    plain = open_model(model_path, cached=True)
    (store,) = folder.glob(STORE)
    content = store.read_bytes()
    store.write_bytes({"truncated": content[:-100], "empty": b"", "other": b"x" * 1000}[damage])
    assert equal(plain, open_model(model_path, cached=True))
    assert store.read_bytes() == content


START = """
import sys
from pagemill.decoder.model import open_model
from pagemill.decoder.engine import logits
model = open_model(sys.argv[1], cached=True)
print(float(logits(model, [1, 2, 3, 4], threads=1).sum()))
"""


def start(model_path: Path, **environment: str) -> subprocess.Popen[str]:
    """A process that opens the model with the cache, and runs it."""
    variables = {name: value for name, value in os.environ.items() if name not in ("PAGEMILL_CACHE", "XDG_CACHE_HOME")}
    return subprocess.Popen(
        [sys.executable, "-c", START, str(model_path)],
        cwd=ROOT,
        env={**variables, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer(process: subprocess.Popen[str]) -> float:
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return float(out)


@pytest.mark.slow
def test_processes_that_start_together_share_a_cache(model_path: Path, tmp_path: Path) -> None:
    together = [start(model_path, PAGEMILL_CACHE=str(tmp_path / "shared")) for _ in range(2)]
    answers = [answer(process) for process in together]
    answers.append(answer(start(model_path, PAGEMILL_CACHE=str(tmp_path / "shared"))))
    assert len(set(answers)) == 1
    assert [path.name for path in (tmp_path / "shared").rglob("writing-*")] == []
    assert list((tmp_path / "shared" / "kernels").glob("*.o"))


@pytest.mark.slow
@pytest.mark.parametrize("home", ["a file", "read-only"])
def test_a_home_that_cannot_be_written_costs_time_only(model_path: Path, tmp_path: Path, home: str) -> None:
    place = tmp_path / "home"
    if home == "a file":
        place.write_text("not a folder")
    else:
        place.mkdir()
        place.chmod(0o555)
    before = answer(start(model_path, PAGEMILL_CACHE=str(tmp_path / "other")))
    (tmp_path / "temporary").mkdir()
    assert answer(start(model_path, HOME=str(place), TMPDIR=str(tmp_path / "temporary"))) == before
    assert list((tmp_path / "temporary").iterdir()) == []  # a private cache goes with its process
