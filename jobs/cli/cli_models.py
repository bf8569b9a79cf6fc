"""The command line of ``pagemill models``, a part of ``cli``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ModelName = Annotated[str, typer.Argument(metavar="NAME", help="As 'models list' names it.", show_default=False)]
ModelsFolder = Annotated[
    Path | None, typer.Option("--folder", help="Where models are kept.  [default: the user's data folder]", show_default=False)
]
models_app = typer.Typer(help="Real models by name: list them, fetch their files, say where they lie.", no_args_is_help=True)


@models_app.command("list")
def list_models(folder: ModelsFolder = None) -> int:
    """List the models that are known, and which are here."""
    from pagemill.jobs.cli.models import list_models

    return list_models(folder)


@models_app.command("pull")
def pull_model(
    name: ModelName,
    text: Annotated[
        str | None, typer.Option(help="Another text model of the repository, for example '*Q4_K_M.gguf'.", show_default=False)
    ] = None,
    mmproj: Annotated[str | None, typer.Option(help="Another encoder of the repository.", show_default=False)] = None,
    folder: ModelsFolder = None,
) -> int:
    """Fetch a model's files from the Hugging Face hub; the same command again goes on where it stopped."""
    from pagemill.jobs.cli.models import pull_model
    from pagemill.jobs.models.pulling import Choice

    return pull_model(name, folder, Choice(text, mmproj))


@models_app.command("path")
def print_path(name: ModelName, folder: ModelsFolder = None) -> int:
    """Print where a model's two files lie."""
    from pagemill.jobs.cli.models import print_path

    return print_path(name, folder)
