"""The project's files as the house tests see them: what git tracks, and the four packages parsed."""

from __future__ import annotations

import ast
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("decoder", "vision", "pipeline", "jobs")  # each may import those before it


@dataclass(frozen=True, slots=True)
class Module:
    """A Python file.  path: relative to the root, with slashes."""

    path: str
    text: str
    tree: ast.Module

    @property
    def package(self) -> str:
        """Its top folder."""
        return self.path.split("/", 1)[0]


@cache
def tracked_files() -> tuple[str, ...]:
    """Files under version control; every file of the tree but caches where there is no git, as in an unpacked archive."""
    git = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(git, cwd=ROOT, capture_output=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        names = listed.stdout.decode().rstrip("\0").split("\0")
    else:
        names = [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*") if not _is_cache(path)]
    return tuple(sorted(name for name in names if (ROOT / name).is_file()))


@cache
def modules(*folders: str) -> tuple[Module, ...]:
    """The Python files below these folders."""
    found = []
    for name in tracked_files():
        if name.endswith(".py") and name.startswith(tuple(f"{folder}/" for folder in folders)):
            text = (ROOT / name).read_text("utf-8")
            found.append(Module(name, text, ast.parse(text, name)))
    assert found, f"no Python files below {folders}"
    return tuple(found)


def _is_cache(path: Path) -> bool:
    return any(
        (part.startswith(".") and part != ".ci") or part in ("__pycache__", "out") for part in path.relative_to(ROOT).parts
    )
