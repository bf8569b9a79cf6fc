"""Which password opens which document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path, PurePath

from pagemill.jobs.inputs.discover import Found
from pagemill.jobs.settings.config import InputSection


def password_for(section: InputSection, label: str, place: PurePath) -> str | None:
    """Of the first pattern of ``input.passwords`` that fits, else ``input.password``.

    A pattern is compared with a document's whole path or address, its place below the input that named it, and its name.
    """
    for pattern, password in section.passwords:
        if any(fnmatchcase(name, pattern) for name in (label, place.as_posix(), place.name)):
            return password
    return section.password


class Passwords:
    """Passwords by a document's path on this machine."""

    def __init__(self, section: InputSection, files: Iterable[Found]) -> None:
        self._section = section
        self._by_path: Mapping[Path, str] = {
            file.path: password
            for file in files
            if (password := password_for(section, file.label, file.relative)) not in (None, section.password)
        }

    def __call__(self, path: Path) -> str | None:
        """The password of the document at ``path``."""
        return self._by_path.get(path, self._section.password)
