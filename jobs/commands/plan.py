"""``pagemill plan``: how a model would run, from its header."""

from __future__ import annotations

from pathlib import Path

from decoder.files import open_file
from decoder.plan import plan


def print_plan(path: Path, kv_cache: str) -> int:
    """Prints the plan as a table of facts.  Raises ModelError with every reason to refuse."""
    header, _ = open_file(path)
    rows = plan(header, kv_cache=kv_cache).describe()
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:{width}}  {value}")
    return 0
