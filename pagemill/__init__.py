"""Pagemill transcribes document archives with vision-language OCR models on the machines people own."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("pagemill")
except PackageNotFoundError:  # a source tree that is not installed
    __version__ = "0+source"

__all__ = ["__version__"]
