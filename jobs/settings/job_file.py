"""A job file: YAML whose keys are config.yaml's, read with the line of every key.

``layers`` lays it over the defaults.  A relative path in it is relative to the file itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import yaml

from pagemill.jobs.errors import ConfigError
from pagemill.jobs.settings.addresses import LIST_SIGN, is_url
from pagemill.jobs.settings.config import PATH_KEYS
from pagemill.jobs.settings.places import Key, SettingsLayer, Tree, dotted, shown

LARGEST_BYTES = 1 << 20
DEEPEST_KEY = 8  # deeper than any setting; an alias may even contain itself


def read_job_file(path: Path) -> SettingsLayer:
    """A job file.  Raises ConfigError when it cannot be read or is not YAML."""
    text = _read(path)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        tree = yaml.load(text, Loader=yaml.SafeLoader) if root is not None else {}
    except yaml.YAMLError as error:
        raise ConfigError([_yaml_problem(path, error)]) from error
    except (ValueError, RecursionError) as error:  # a date of month 13, a thousand brackets
        raise ConfigError([f"{path}: expected a job file, found YAML that cannot be loaded ({error})"]) from error
    if not isinstance(tree, dict):
        raise ConfigError([f"{path}:1: expected sections such as 'engine:', found {shown(tree)}"])
    where: dict[Key, str] = {}
    repeated = list(_mark(path, root, (), where)) if root is not None else []
    if repeated:
        raise ConfigError(repeated)
    tree = {section: values for section, values in tree.items() if values is not None}  # a section whose keys are comments
    if isinstance(tree.get("model"), str):  # a model of the registry, by its name alone
        tree["model"] = {"name": tree["model"]}
    _rebase_paths(tree, path.parent)
    return SettingsLayer(str(path), tree, where)


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise ConfigError([f"{path}: expected a job file of at most {LARGEST_BYTES} bytes, found a larger one"])
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError([f"{path}: cannot read the job file ({error.strerror or error})"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: expected UTF-8 text, found byte {error.object[error.start]:#04x}"]) from error


def _yaml_problem(path: Path, error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"{path}:{error.problem_mark.line + 1}: expected YAML, found: {error.problem}"
    return f"{path}: expected YAML, found: {' '.join(str(error).split())}"


def _mark(path: Path, node: yaml.Node, key: Key, where: dict[Key, str]) -> Iterable[str]:
    """Fills ``where`` with the line of each key and item; yields a problem for each repeated key."""
    where.setdefault(key, f"{path}:{node.start_mark.line + 1}")
    if len(key) > DEEPEST_KEY:
        return
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _mark(path, item, (*key, index), where)
    if not isinstance(node, yaml.MappingNode):
        return
    for name_node, value in node.value:
        name = (*key, str(name_node.value))
        place = f"{path}:{name_node.start_mark.line + 1}"
        if name in where:
            yield f"{place}: {dotted(name)}: expected each key once, found it again (first at {where[name]})"
        where[name] = place
        yield from _mark(path, value, name, where)


def _rebase_paths(tree: Tree, folder: Path) -> None:
    for section, key in PATH_KEYS:
        values = tree.get(section)
        if not isinstance(values, dict):
            continue
        value = values.get(key)
        if isinstance(value, str):
            values[key] = _rebased(folder, value)
        elif isinstance(value, list):
            values[key] = [_rebased(folder, item) if isinstance(item, str) else item for item in value]


def _rebased(folder: Path, text: str) -> str:
    """A relative path from the job file's folder; an address as it is, a @list with its sign."""
    if is_url(text):
        return text
    if text.startswith(LIST_SIGN):
        return f"{LIST_SIGN}{folder / text.removeprefix(LIST_SIGN)}"
    return str(folder / text)
