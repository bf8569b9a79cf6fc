"""A job as it will be run: settings, inputs, output folder, model files and the hashes that identify its work."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jobs.config import Config
from jobs.discover import LIST_SIGN
from jobs.errors import ConfigError
from jobs.identity import hash_model, hash_settings
from jobs.models import ModelFiles, find_model

LEDGER_NAME = ".pagemill/ledger.sqlite3"
PAGES_NAME = ".pagemill/pages"
INPUTS_NAME = ".pagemill/inputs"


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One job.  model_hash and settings_hash are half of the identity of each of its pages."""

    config: Config
    inputs: tuple[str | Path, ...]
    output: Path
    model: ModelFiles
    model_hash: str
    settings_hash: str

    @property
    def ledger_path(self) -> Path:
        """Where the ledger lies."""
        return self.output / LEDGER_NAME

    @property
    def inputs_folder(self) -> Path:
        """Where documents that do not lie on this machine are brought while the job runs."""
        return self.output / INPUTS_NAME

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
        inputs=_inputs(config),
        output=Path(config.output.folder),
        model=model,
        model_hash=model_hash,
        settings_hash=hash_settings(config),
    )


def _inputs(config: Config) -> tuple[str, ...]:
    listed = () if config.input.list is None else (LIST_SIGN + config.input.list,)
    return (*config.input.paths, *listed)
