"""Settings with the places they come from, so that every error can name its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Key = tuple[str | int, ...]
Tree = dict[str, Any]  # section -> key -> YAML value, unchecked: only job_file and layers see it


@dataclass(frozen=True, slots=True)
class SettingsLayer:
    """One place's settings.  where: key -> how a message names the place, ``job.yaml:3`` for example."""

    name: str
    tree: Tree
    where: Mapping[Key, str] = field(default_factory=dict)

    def place(self, key: Key) -> str:
        """The most precise known place of ``key``."""
        while key and key not in self.where:
            key = key[:-1]
        return self.where.get(key, self.name)


def dotted(key: Key) -> str:
    """A key as people write it: engine.threads."""
    return ".".join(map(str, key)) or "(the whole file)"


def shown(value: object) -> str:
    """A found value, short enough for a message."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
