"""``pagemill models``: which models are known, their files fetched, and where they lie."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pagemill.jobs.cli.options import path_text
from pagemill.jobs.errors import ConfigError
from pagemill.jobs.models.pulling import Choice, pull
from pagemill.jobs.settings.registry import FileFacts, KnownModel, installed, known_model, known_models, models_folder

UNKNOWN = "not known"

ModelName = Annotated[str, typer.Argument(metavar="NAME", help="As 'models list' names it.", show_default=False)]
ModelsFolder = Annotated[
    Path | None, typer.Option("--folder", help="Where models are kept.  [default: the user's data folder]", show_default=False)
]
command = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@command.command("list")
def list_models(folder: ModelsFolder = None) -> int:
    """List the models that are known, and which are here."""
    place = models_folder(path_text(folder))
    print(f"models are kept in {place}\n")
    for model in known_models().values():
        print(f"{model.name}: {model.title}")
        for name, value in _facts(model, place):
            print(f"  {name:9} {value}")
        print()
    return 0


@command.command("pull")
def pull_model(
    name: ModelName,
    text: Annotated[
        str | None, typer.Option(help="Another text model of the repository, for example '*Q4_K_M.gguf'.", show_default=False)
    ] = None,
    mmproj: Annotated[str | None, typer.Option(help="Another encoder of the repository.", show_default=False)] = None,
    folder: ModelsFolder = None,
) -> int:
    """Fetch a model's files from the Hugging Face hub; the same command again goes on where it stopped."""
    place = models_folder(path_text(folder))
    pair = pull(known_model(name), place, lambda text: print(text, file=sys.stderr), Choice(text, mmproj))
    print(f"{pair.text}\n{pair.mmproj}")
    return 0


@command.command("path")
def print_path(name: ModelName, folder: ModelsFolder = None) -> int:
    """Print where a model's two files lie, a line each; reads no network."""
    pair = installed(known_model(name), models_folder(path_text(folder)))
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
