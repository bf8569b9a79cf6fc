"""A job as it will be run: settings, inputs, output folder, model files and the hashes that identify its work."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jobs.config import Config
from jobs.errors import ConfigError
from jobs.identity import hash_model, hash_settings
from jobs.models import ModelFiles, find_model

LEDGER_NAME = ".pagemill/ledger.sqlite3"
PAGES_NAME = ".pagemill/pages"


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One job.  model_hash and settings_hash are half of the identity of each of its pages."""

    config: Config
    inputs: tuple[Path, ...]
    output: Path
    model: ModelFiles
    model_hash: str
    settings_hash: str

    @property
    def ledger_path(self) -> Path:
        """Where the ledger lies."""
        return self.output / LEDGER_NAME

    @property
    def pages_folder(self) -> Path:
        """Where the finished pages of this model and these settings lie."""
        return self.output / PAGES_NAME / f"{self.model_hash[:16]}-{self.settings_hash[:16]}"


def resolve_job(config: Config) -> JobSpec:
    """The job that settings ask for.  Raises ConfigError; reads the model files once, for their hash."""
    model = find_model(config.model)
    try:
        model_hash = hash_model(model.text, model.mmproj)
    except OSError as error:
        raise ConfigError(
            [f"model: expected a GGUF file, found that {error.filename} cannot be read ({error.strerror}); check the path"]
        ) from error
    return JobSpec(
        config=config,
        inputs=tuple(Path(path) for path in config.input.paths),
        output=Path(config.output.folder),
        model=model,
        model_hash=model_hash,
        settings_hash=hash_settings(config),
    )
