"""A job as it will be run: settings, inputs, output folder, model files and the hashes that identify its work."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from pagemill.decoder import available_cores
from pagemill.jobs.errors import ConfigError
from pagemill.jobs.ledger.output_folder import OutputFolder
from pagemill.jobs.models.files import find_model
from pagemill.jobs.models.planned import PlannedPair, Resolved, plan_pair, resolve_settings
from pagemill.jobs.run.identity import hash_model, hash_settings
from pagemill.jobs.settings.addresses import LIST_SIGN, is_url, shown_url
from pagemill.jobs.settings.config import Config
from pagemill.jobs.settings.registry import ModelFiles


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One job.  model_hash and settings_hash are half of the identity of each of its pages.

    planned: the model files, opened; None where another reader than the models' is used.  resolved: what the settings came to.
    """

    config: Config
    inputs: tuple[str | Path, ...]
    output: Path
    model: ModelFiles
    model_hash: str
    settings_hash: str
    planned: PlannedPair | None = None
    resolved: Resolved | None = None

    @property
    def settings_text(self) -> str:
        """Settings and absolute paths as JSON, so that the job can be given again; without passwords.

        "" where an address holds a secret, without which it would be another job.
        """
        addresses = [*map(str, self.inputs), self.config.output.copy_to or ""]
        if any(is_url(address) and shown_url(address) != address for address in addresses):
            return ""
        settings = self.config.model_dump(mode="json")
        settings["input"] |= {
            "paths": [_absolute(str(path)) for path in self.inputs],
            "list": None,
            "password": None,
            "passwords": {},
        }
        settings["watch"] |= {"webhook": None}
        settings["output"] |= {"folder": os.path.abspath(self.output)}
        if not self.model.embedded:
            settings["model"] |= {"text": os.path.abspath(self.model.text), "mmproj": os.path.abspath(self.model.mmproj)}
        return json.dumps(settings)

    @property
    def folder(self) -> OutputFolder:
        """The paths below the output folder."""
        return OutputFolder(self.output)


def resolve_job(config: Config) -> JobSpec:
    """The job that settings ask for, everything about it that can be refused checked, nothing made.

    Raises ConfigError, or ModelError with every reason; reads the model files once, for their hash.
    """
    if is_url(config.output.folder):
        found = shown_url(config.output.folder)
        raise ConfigError([f"output.folder: expected a folder of this machine, found {found}: set output.copy_to to it"])
    check_threads(config.engine.threads)
    model = find_model(config.model)
    try:
        model_hash = hash_model(model.text, model.mmproj)
    except OSError as error:
        raise ConfigError(
            [f"model: expected a GGUF file, found that {error.filename} cannot be read ({error.strerror}); check the path"]
        ) from error
    planned = plan_pair(model, config)
    resolved = resolve_settings(config, planned)
    return JobSpec(
        config,
        _inputs(config),
        Path(config.output.folder),
        model,
        model_hash,
        hash_settings(config, resolved),
        planned,
        resolved,
    )


def check_threads(threads: int | None) -> None:
    """Raises ConfigError for more threads than cores: they would wait for each other at every step."""
    cores = available_cores()
    if threads is not None and threads > cores:
        raise ConfigError([f"engine.threads: expected at most {cores}, the cores available here, found {threads}"])


def _absolute(path: str) -> str:
    """An input that means the same from every folder."""
    if is_url(path):
        return path
    sign = LIST_SIGN if path.startswith(LIST_SIGN) else ""
    return sign + os.path.abspath(path.removeprefix(sign))


def _inputs(config: Config) -> tuple[str, ...]:
    listed = () if config.input.list is None else (LIST_SIGN + config.input.list,)
    return (*config.input.paths, *listed)
