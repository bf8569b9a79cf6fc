"""Every field of a record changed, one at a time: a record must not be richer than its reader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pagemill.decoder.spec import ExpertSpec


def flips(record: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """(path of the field, record with that field changed) of every field, those of inner records too.

    Of a tuple of records the last one is changed, so that a reader of the first alone is caught.
    """
    hints = get_type_hints(type(record))
    for field in fields(record):
        value = getattr(record, field.name)
        for path, flipped in _values(value, hints[field.name], f"{name}{field.name}"):
            yield path, replace(record, **{field.name: flipped})


def _values(value: Any, hint: Any, path: str) -> Iterator[tuple[str, Any]]:
    if is_dataclass(value):
        yield from flips(value, f"{path}.")
    elif isinstance(value, tuple) and is_dataclass(value[-1]):
        yield from ((inner, (*value[:-1], flipped)) for inner, flipped in flips(value[-1], f"{path}."))
    else:
        yield path, _other(value, hint)


def _other(value: Any, hint: Any) -> Any:
    """Another value of the same kind."""
    if get_origin(hint) is Literal:
        return next(choice for choice in get_args(hint) if choice != value)
    match value:
        case None:
            return ExpertSpec(4, 2)
        case bool():
            return not value
        case int():
            return value * 2 if value else 8
        case float():
            return value * 1.5 + 0.25
        case str():
            return value + "-other"
        case tuple():
            return tuple(one * 1.5 for one in value)
    raise TypeError(f"no other value of {value!r}: say here how to change it")
