"""``pagemill models``: which models are known, their files fetched, and where they lie."""

from __future__ import annotations

import sys
from pathlib import Path

from pagemill.jobs.errors import ConfigError
from pagemill.jobs.models.pulling import Choice, pull
from pagemill.jobs.settings.registry import FileFacts, KnownModel, installed, known_model, known_models, models_folder

UNKNOWN = "not known"


def list_models(folder: Path | None) -> int:
    """Prints every model of the registry, a paragraph each."""
    place = models_folder(None if folder is None else str(folder))
    print(f"models are kept in {place}\n")
    for model in known_models().values():
        print(f"{model.name}: {model.title}")
        for name, value in _facts(model, place):
            print(f"  {name:9} {value}")
        print()
    return 0


def pull_model(name: str, folder: Path | None, choice: Choice) -> int:
    """Fetches a model's files and prints where they are, as ``path`` does."""
    place = models_folder(None if folder is None else str(folder))
    pair = pull(known_model(name), place, lambda text: print(text, file=sys.stderr), choice)
    print(f"{pair.text}\n{pair.mmproj}")
    return 0


def print_path(name: str, folder: Path | None) -> int:
    """Prints the text model's path and the mmproj's, a line each; reads no network."""
    pair = installed(known_model(name), models_folder(None if folder is None else str(folder)))
    print(f"{pair.text}\n{pair.mmproj}")
    return 0


def _facts(model: KnownModel, folder: Path) -> list[tuple[str, str]]:
    settings = [f"{section}.{key}: {value!r}" for section, values in model.settings.items() for key, value in values.items()]
    facts = [
        ("weights", model.weights),
        ("gguf", model.gguf or "none known"),
        ("files", f"{_file(model.text)}; {_file(model.mmproj)}"),
        ("licence", model.licence or UNKNOWN),
        ("pages", UNKNOWN if model.longest_edge_px is None else f"longest side {model.longest_edge_px} px"),
        ("context", UNKNOWN if model.context is None else f"{model.context} tokens"),
        ("settings", ", ".join(settings) or UNKNOWN),
        ("note", model.note),
    ]
    return [*facts, ("here", _place(model, folder))]


def _place(model: KnownModel, folder: Path) -> str:
    if not model.runs:
        return "does not run in this version"
    try:
        return str(installed(model, folder).text.parent)
    except ConfigError:
        return "no"


def _file(facts: FileFacts) -> str:
    size = f"size {UNKNOWN}" if facts.about_mb is None else f"about {facts.about_mb} MB"
    return f"{facts.file[0]} ({size})"
