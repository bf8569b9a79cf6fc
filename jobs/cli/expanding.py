"""Commands that take their options in records: typer knows parameters only, and a long list of them is no idea."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_type_hints


def expanded(command: Callable[..., int]) -> Callable[..., int]:
    """The command as typer takes it: each parameter that is a dataclass replaced by its fields, an option each."""
    hints = get_type_hints(command, include_extras=True)
    records: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}

    def call(**given: Any) -> int:
        groups = {name: record(**{one.name: given.pop(one.name) for one in fields(record)}) for name, record in records.items()}
        return command(**given, **groups)

    plain = inspect.signature(command).parameters.values()
    parameters = [one for each in plain for one in _options(each, hints[each.name])]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what inspect.signature looks for
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    call.__doc__ = command.__doc__
    return call


def _options(parameter: inspect.Parameter, hint: Any) -> Iterator[inspect.Parameter]:
    """The parameter itself, or one for each field of its record."""
    if not is_dataclass(hint):
        yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hint)
        return
    hints = get_type_hints(hint, include_extras=True)
    for one in fields(hint):
        default = inspect.Parameter.empty if one.default is MISSING else one.default
        yield inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[one.name])
