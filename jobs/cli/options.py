"""Arguments and options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class ProgressKind(StrEnum):
    """How progress is shown."""

    AUTO = "auto"
    RICH = "rich"
    TQDM = "tqdm"
    JSON = "json"
    NONE = "none"


class KvCacheType(StrEnum):
    """How keys and values are stored."""

    F32 = "f32"
    F16 = "f16"
    Q8_0 = "q8_0"


class EncoderPrecision(StrEnum):
    """Of the vision encoder's matrix products."""

    AUTO = "auto"
    F32 = "f32"
    BF16 = "bf16"
    INT8 = "int8"


InputNames = Annotated[
    list[str],
    typer.Argument(metavar="JOB.yaml | FILE...", help="A job file, or documents and folders of them.", show_default=False),
]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The output folder of a run.", show_default=False)]
ModelPath = Annotated[Path, typer.Argument(metavar="MODEL.gguf", help="The text model.", show_default=False)]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Compute threads.  [default: one a physical core]", show_default=False)
]
Cpu = Annotated[
    str | None, typer.Option(help="CPU variant of the kernels, as doctor names them.  [default: auto]", show_default=False)
]
KvCache = Annotated[KvCacheType, typer.Option(help="Storage type of the KV cache.")]
Password = Annotated[str | None, typer.Option(help="Of encrypted PDFs.", show_default=False)]
ProgressOption = Annotated[ProgressKind | None, typer.Option(help="How to show progress.  [default: auto]", show_default=False)]


def split_names(text: str | None) -> list[str] | None:
    """Names between commas; None for an option that was not given."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def path_text(path: Path | None) -> str | None:
    """A path as settings have it; None for an option that was not given."""
    return None if path is None else str(path)
