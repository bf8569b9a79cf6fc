"""Settings from where people write them: flag over environment over job file over the defaults, here and nowhere else.

Each layer is checked alone, so that an error names the file and line, the variable or the flag it comes from.  A relative
path in a job file is relative to that file; any other is relative to the working folder.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from pydantic import BaseModel, ValidationError

from pagemill.jobs.errors import ConfigError
from pagemill.jobs.settings.config import Config
from pagemill.jobs.settings.job_file import read_job_file
from pagemill.jobs.settings.places import Key, SettingsLayer, Tree, dotted, shown
from pagemill.jobs.settings.registry import known_model

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

ENVIRONMENT_PREFIX = "PAGEMILL_"


def load_config(
    job_file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[tuple[str, str], object] | None = None,
) -> Config:
    """The settings of a job.  Raises ConfigError with every problem of every layer."""
    layers = [read_job_file(job_file)] if job_file else []
    layers += [environment_layer(environment or {}), flag_layer(flags or {})]
    problems = [problem for layer in layers for problem in check_layer(layer)]
    if problems:
        raise ConfigError(problems)
    return merge_layers(layers)


def merge_layers(layers: Iterable[SettingsLayer]) -> Config:
    """The settings of checked layers, later over earlier, all over what a named model wants.  Raises ConfigError."""
    merged = merge(layer.tree for layer in layers)
    name = merged.get("model", {}).get("name")
    if name is not None:
        wants = {section: dict(values) for section, values in known_model(name).settings.items()}
        merged = merge([wants, merged])
    return Config.model_validate(merged)


def apply_flags(config: Config, flags: Mapping[tuple[str, str], object]) -> Config:
    """Settings with flags over them.  Raises ConfigError."""
    layer = flag_layer(flags)
    problems = check_layer(layer)
    if problems:
        raise ConfigError(problems)
    return Config.model_validate(merge([config.model_dump(mode="json"), layer.tree]))


def environment_layer(environment: Mapping[str, str]) -> SettingsLayer:
    """``PAGEMILL_ENGINE__THREADS=2`` and its like; values are written as in YAML."""
    tree: Tree = {}
    where: dict[Key, str] = {}
    for name, text in sorted(environment.items()):
        if not name.startswith(ENVIRONMENT_PREFIX) or "__" not in name:
            continue
        section, _, key = name.removeprefix(ENVIRONMENT_PREFIX).lower().partition("__")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            value = text
        tree.setdefault(section, {})[key] = value
        where[(section, key)] = where[(section,)] = f"environment {name}"
    return SettingsLayer("environment", tree, where)


def flag_layer(flags: Mapping[tuple[str, str], object]) -> SettingsLayer:
    """Flags given on the command line; None means not given."""
    tree: Tree = {}
    where: dict[Key, str] = {}
    for (section, key), value in flags.items():
        if value is not None:
            tree.setdefault(section, {})[key] = value
            where[(section, key)] = f"flag for {section}.{key}"
    return SettingsLayer("command line", tree, where)


def check_layer(layer: SettingsLayer) -> list[str]:
    """Every problem of one layer, each with its place and, for a misspelt key, the likely one."""
    try:
        Config.model_validate(layer.tree)
    except ValidationError as error:
        return [_problem(layer, details) for details in error.errors(include_url=False) if not _follows(details)]
    return []


def merge(trees: Iterable[Tree]) -> Tree:
    """Later trees over earlier ones, key by key; a list replaces a list."""
    merged: Tree = {}
    for tree in trees:
        for section, values in tree.items():
            merged[section] = {**merged.get(section, {}), **values}
    return merged


def _problem(layer: SettingsLayer, details: ErrorDetails) -> str:
    key: Key = details["loc"]
    start = f"{layer.place(key)}: {dotted(key)}: "
    if details["type"] == "extra_forbidden":
        return start + "no such key" + _did_you_mean(key)
    if details["type"] in ("model_type", "model_attributes_type"):
        return start + f"expected a section of keys, found {shown(details['input'])}"
    expected = re.sub(r"^(Input|\w+) should (be|have) ", "", details["msg"])
    expected = re.sub(r"^(greater|less) than", r"a value \1 than", expected).replace("valid tuple", "list")
    return start + f"expected {expected}, found {shown(details['input'])}"


def _follows(details: ErrorDetails) -> bool:
    """True for "too few items" where there are items: each is already reported."""
    return details["type"] == "too_short" and bool(details["input"])


def _did_you_mean(key: Key) -> str:
    sections = {name: info.annotation for name, info in Config.model_fields.items()}
    homes = {
        name: [f"{section}.{name}" if key[0] != section else name]
        for section, model in sections.items()
        if isinstance(model, type) and issubclass(model, BaseModel)
        for name in model.model_fields
    }
    section = sections.get(str(key[0])) if len(key) > 1 else Config
    nearby = list(section.model_fields) if isinstance(section, type) and issubclass(section, BaseModel) else []
    word = str(key[-1])
    for names in (nearby, homes):
        close = difflib.get_close_matches(word, list(names), 1, 0.6)
        if close:
            return f"; did you mean '{homes[close[0]][0] if names is homes else close[0]}'?"
    return f"; expected one of {', '.join(nearby)}" if nearby else ""
