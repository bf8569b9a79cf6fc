"""Settings of one folder among the watched ones: a ``pagemill.yaml`` in it, for its files and those below.

The nearest folder beats those above it, these beat the job file; the environment and flags beat them all, as ever.  What
concerns the whole watch cannot be said there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pagemill.jobs.errors import ConfigError
from pagemill.jobs.settings.config import Config
from pagemill.jobs.settings.job_file import read_job_file
from pagemill.jobs.settings.layers import check_layer, environment_layer, flag_layer, merge_layers
from pagemill.jobs.settings.places import SettingsLayer
from pagemill.jobs.watch.arrivals import FOLDER_FILE

WHOLE_WATCH: tuple[tuple[str, str | None], ...] = (
    *(("input", "paths"), ("output", "folder"), ("engine", "threads"), ("run", None), ("watch", None)),
)


class FolderSettings:
    """The settings of a file, read anew whenever a batch is made."""

    def __init__(self, job_file: Path | None, environment: Mapping[str, str], flags: Mapping[tuple[str, str], object]) -> None:
        self._below = [read_job_file(job_file)] if job_file else []
        self._above = [environment_layer(environment), flag_layer(flags)]

    def of(self, root: Path, file: Path) -> Config:
        """Raises ConfigError with every problem of the folder files that concern ``file``."""
        folders = [folder for folder in reversed(file.parents) if folder == root or root in folder.parents]
        layers = [read_job_file(path) for folder in folders if _is_file(path := folder / FOLDER_FILE)]
        problems = [problem for layer in layers for problem in (*check_layer(layer), *_misplaced(layer))]
        if problems:
            raise ConfigError(problems)
        return merge_layers([*self._below, *layers, *self._above])


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read ({error.strerror or error})"]) from error


def _misplaced(layer: SettingsLayer) -> list[str]:
    found = []
    for section, key in WHOLE_WATCH:
        values = layer.tree.get(section)
        if values is not None and (key is None or (isinstance(values, dict) and key in values)):
            name = f"{section}.{key}" if key else section
            place = layer.place((section, key) if key else (section,))
            found.append(
                f"{place}: {name}: expected settings of one folder, found one of the whole watch; say it in the job file"
            )
    return found
