"""The command line of ``pagemill eval``, a part of ``cli``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def evaluate(
    outputs: Annotated[
        list[Path],
        typer.Argument(metavar="OUTPUT...", help="Output folders or files; the first is what others are compared with."),
    ],
    truth: Annotated[
        Path | None,
        typer.Option(help="A folder of NAME.txt for each document, pages separated by form feeds.", show_default=False),
    ] = None,
    tests: Annotated[
        Path | None, typer.Option(help="Page tests of olmOCR-bench: a .jsonl file or a folder of them.", show_default=False)
    ] = None,
    normalise: Annotated[
        str,
        typer.Option(
            help="What to overlook, any of markdown,nfc,nfkc,ligatures,quotes,dashes,hyphens,accents,case,punctuation,"
            "lines,whitespace.  [default: nothing]",
            show_default=False,
        ),
    ] = "",
    tesseract: Annotated[
        Path | None, typer.Option(help="A folder of the documents, for Tesseract to read beside.", show_default=False)
    ] = None,
    languages: Annotated[str, typer.Option(help="Of Tesseract.")] = "eng",
    worst: Annotated[int, typer.Option(min=0, help="How many pages and confusions to list.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Everything as JSON, on standard output.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw a picture (.png, .svg, .pdf); needs the extra: plot.", show_default=False)
    ] = None,
) -> int:
    """Measure how well runs read: character and word error rates with intervals, or page tests."""
    from pagemill.jobs.cli.evaluate import Wanted
    from pagemill.jobs.cli.evaluate import evaluate as run_evaluation

    overlook = tuple(name.strip() for name in normalise.split(",") if name.strip())
    return run_evaluation(outputs, Wanted(truth, tests, overlook, tesseract, languages, worst, as_json, plot))
