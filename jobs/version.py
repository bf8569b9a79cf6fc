"""Which Pagemill this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def software_version() -> str:
    """The installed version, "0+source" when it runs from a source tree that is not installed."""
    try:
        return version("pagemill")
    except PackageNotFoundError:
        return "0+source"
