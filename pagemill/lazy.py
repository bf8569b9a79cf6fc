"""Names of a package that are imported when they are first used.

Rendering children and ``--help`` import these packages too, and must load neither numba nor the engine (PEP 562).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module


def exports(package: str, names: Mapping[str, str]) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of a package.  names: of its modules -> their names, between spaces."""
    where = {name: module for module, group in names.items() for name in group.split()}

    def find(name: str) -> object:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{where[name]}"), name)

    return sorted(where), find, lambda: sorted(where)
