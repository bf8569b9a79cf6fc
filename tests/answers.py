"""Where the recorded answers are: tests/oracles always, and the whole suite beside the checkout where it is there."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ORACLES = ROOT / "tests" / "oracles"
WHOLE_SUITE = ROOT.parent / "shared" / "oracles" / "open"
ORACLE_DIRS = [ORACLES, *([WHOLE_SUITE] if WHOLE_SUITE.is_dir() else [])]


def oracle_files(pattern: str) -> list[Path]:
    """Files that match ``pattern`` ("formats/*.npz") in every folder of answers, each relative name once, sorted by name."""
    found: dict[str, Path] = {}
    for folder in ORACLE_DIRS:
        for path in folder.glob(pattern):
            found.setdefault(path.relative_to(folder).as_posix(), path)
    return [found[name] for name in sorted(found)]
