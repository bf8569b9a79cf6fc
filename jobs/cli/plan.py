"""``pagemill plan``: how a model would run, from its header."""

from __future__ import annotations

from pathlib import Path

from pagemill.jobs.models.fit import text_plan


def print_plan(path: Path, kv_cache: str) -> int:
    """Prints the plan as a table of facts.  Raises ModelError with every reason to refuse."""
    rows = text_plan(path, kv_cache=kv_cache).describe()
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:{width}}  {value}")
    return 0
