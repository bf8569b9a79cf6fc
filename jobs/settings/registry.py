"""Models by name: what is known of them, and where their files lie on this machine once they are pulled.

The facts are in registry.yaml.  A model's folder holds its pair of GGUF files, pulled or placed there by hand.
"""

from __future__ import annotations

import difflib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict

from pagemill.jobs.errors import ConfigError

REGISTRY = Path(__file__).resolve().with_name("registry.yaml")
MANIFEST = "pagemill.json"
CONVERTER = "llama.cpp's convert_hf_to_gguf.py, once as it is and once with --mmproj"


class FileFacts(BaseModel):
    """One file of a pair.  file: names in the order of preference, with * and ?."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: tuple[str, ...]
    about_mb: int | None
    sha256: str | None


class KnownModel(BaseModel):
    """One entry of the registry; None is what is not known.  See the head of registry.yaml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    title: str
    weights: str
    gguf: str | None
    revision: str | None
    text: FileFacts
    mmproj: FileFacts
    licence: str | None
    longest_edge_px: int | None
    context: int | None
    settings: Mapping[str, Mapping[str, object]]
    runs: bool
    note: str


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A text model and its vision encoder on this machine.  embedded: it is the small sample model."""

    text: Path
    mmproj: Path
    embedded: bool = False


@cache
def known_models() -> dict[str, KnownModel]:
    """Every model of the registry, in its order."""
    entries = yaml.safe_load(REGISTRY.read_text("utf-8"))
    return {model.name: model for model in map(KnownModel.model_validate, entries)}


def known_model(name: str) -> KnownModel:
    """A model by its name, whatever its case.  Raises ConfigError."""
    models = known_models()
    model = models.get(name.casefold())
    if model is None:
        near = difflib.get_close_matches(name.casefold(), models, 1)
        hint = f"did you mean '{near[0]}'?" if near else "'pagemill models list' names them"
        raise ConfigError([f"model.name: expected a model of the registry, found {name!r}; {hint}"])
    return model


def models_folder(configured: str | None) -> Path:
    """Where pulled models lie: the configured folder, else the user's data folder."""
    if configured:
        return Path(configured).absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "pagemill" / "models"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "pagemill" / "models"


def installed(model: KnownModel, folder: Path) -> ModelFiles:
    """The model's files below the models' folder.  Raises ConfigError that says how to get them."""
    place = folder / model.name
    named = _manifest_files(place)
    texts = [place / named["text"]] if named else [path for path in _ggufs(place) if "mmproj" not in path.name.lower()]
    mmprojs = [place / named["mmproj"]] if named else [path for path in _ggufs(place) if "mmproj" in path.name.lower()]
    if len(texts) == len(mmprojs) == 1 and texts[0].is_file() and mmprojs[0].is_file():
        return ModelFiles(texts[0], mmprojs[0])
    found = ", ".join(path.name for path in _ggufs(place)) or "none"
    raise ConfigError(
        [
            f"model.name: expected the two files of {model.name} (text model and mmproj) in {place}, found {found}; "
            f"{how_to_get(model, folder)}"
        ]
    )


def how_to_get(model: KnownModel, folder: Path) -> str:
    """What to do to have a model's files, with a network and without."""
    place = folder / model.name
    if model.gguf is None:
        return f"no GGUF pair of it is known: convert {model.weights} with {CONVERTER}, and place both files there: {place}"
    files = f"{' or '.join(model.text.file)} and {' or '.join(model.mmproj.file)}"
    return (
        f"run 'pagemill models pull {model.name}', or without a network: bring {files} of the Hugging Face repository "
        f"{model.gguf} from another machine and place both there: {place}"
    )


def write_manifest(place: Path, record: Mapping[str, object]) -> None:
    """Notes which files of a folder are the model's, and where they came from."""
    from pagemill.pipeline import write_durably

    write_durably(place / MANIFEST, json.dumps(record, indent=1).encode("ascii") + b"\n")


def _manifest_files(place: Path) -> dict[str, str]:
    try:
        record = json.loads((place / MANIFEST).read_bytes())
        return {kind: str(record["files"][kind]["name"]) for kind in ("text", "mmproj")}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _ggufs(place: Path) -> list[Path]:
    return sorted(
        path for path in place.rglob("*.gguf") if not any(part.startswith(".") for part in path.relative_to(place).parts)
    )
