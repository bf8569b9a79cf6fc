"""Tensor tables: one row for each tensor of an architecture, and the search for them in a file's header.

``archs`` of the decoder and of the vision encoder fill the tables; both plans search with the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Generic, Literal, TypeVar

from pagemill.decoder.facts import Facts
from pagemill.decoder.formats import FORMATS, QuantFormat
from pagemill.decoder.gguf.header import Header, TensorInfo

R = TypeVar("R", bound=Enum)
S = TypeVar("S")
Part = Literal["weight", "bias"]
Shape = tuple[int, ...]

GLOBAL: Final = -1  # the layer number of tensors that belong to no layer
_NAMED: Final = 3  # how many tensors a reason names before it counts the rest


class Presence(Enum):
    """Whether files of an architecture have a tensor."""

    NEVER = "never"
    OPTIONAL = "optional"
    NEEDED = "needed"


@dataclass(frozen=True)  # no slots: typing writes to an instance of a subscripted generic
class TensorRow(Generic[R, S]):
    """One tensor of an architecture, or one in every layer.

    name: in the file, without ".weight" or ".bias"; "{layer}" where every layer has one.
    shape: of the weight in file order (columns, rows), from the spec and the layer.  A bias has one element a row.
    used: whether a file with these facts has it at all.
    """

    role: R
    name: str
    shape: Callable[[S, int], Shape]
    weight: Presence = Presence.NEEDED
    bias: Presence = Presence.NEVER
    used: Callable[[S], bool] = lambda _: True

    def layers(self, count: int) -> Sequence[int]:
        """The layers that have one of their own, ``GLOBAL`` for a tensor that occurs once."""
        return range(count) if "{layer}" in self.name else (GLOBAL,)

    def file_name(self, layer: int, part: Part = "weight") -> str:
        """Its name in a file."""
        return f"{self.name.format(layer=layer)}.{part}"


@dataclass(frozen=True, slots=True)
class FoundTensors(Generic[R]):
    """Weights and biases by role and layer."""

    weights: dict[tuple[R, int], TensorInfo] = field(default_factory=dict)
    biases: dict[tuple[R, int], TensorInfo] = field(default_factory=dict)


def check_tensors(
    header: Header, facts: Facts, table: Sequence[TensorRow[R, S]], spec: S, count_key: str, what: str
) -> tuple[FoundTensors[R], list[str]]:
    """The tensors of an architecture in a file, and every reason why they are not right; ``facts`` has its own.

    count_key: the key of how many layers there are.  what: the architecture, for people.
    """
    reasons = list(format_reasons(header))
    has_layers = count_key not in facts.bad  # otherwise only tensors that occur once are looked for
    layers = getattr(spec, "layers", 0) if has_layers else 0
    found = find_tensors(header, table, spec, layers, reasons)
    if has_layers:
        reasons += stranger_reasons(header, found, f"{what} with {layers} layers")
    if not facts.reasons:  # shapes follow from facts; with a wrong fact they would only repeat it
        reasons += shape_reasons(table, spec, found)
    return found, reasons


def find_tensors(header: Header, table: Iterable[TensorRow[R, S]], spec: S, layers: int, reasons: list[str]) -> FoundTensors[R]:
    """Every tensor of the table that the file has; a reason for each row whose needed tensors are missing."""
    found: FoundTensors[R] = FoundTensors()
    for row in table:
        if row.used(spec):
            found.weights.update(_find(header, row, "weight", row.weight, layers, reasons))
            found.biases.update(_find(header, row, "bias", row.bias, layers, reasons))
    return found


def shape_reasons(table: Iterable[TensorRow[R, S]], spec: S, found: FoundTensors[R]) -> Iterable[str]:
    """A reason for each tensor whose shape does not follow from the spec."""
    rows = {row.role: row for row in table}
    for (role, layer), info in found.weights.items():
        yield from _differs(info, rows[role].shape(spec, layer))
    for (role, layer), info in found.biases.items():
        yield from _differs(info, rows[role].shape(spec, layer)[-1:])


def stranger_reasons(header: Header, found: FoundTensors[R], what: str) -> Iterable[str]:
    """A reason where the file has tensors that no row names: they would be ignored.  what: the model, for people."""
    placed = {info.name for info in (*found.weights.values(), *found.biases.values())}
    if strangers := [name for name in header.tensors if name not in placed]:
        yield f"expected only tensors of {what}, found also {_names(strangers)}"


def format_reasons(header: Header) -> Iterable[str]:
    """Tensors in formats that the engine has not, and rows that are no whole blocks."""
    unsupported: dict[str, list[str]] = {}
    for info in header.tensors.values():
        known = FORMATS.get(info.type_name)
        if known is None:
            unsupported.setdefault(info.type_name, []).append(info.name)
        elif info.shape[0] % known.block:
            yield f"tensor {info.name}: expected rows in multiples of {known.block} for {known.name}, found {info.shape[0]}"
        elif len(info.shape) == 1 and isinstance(known, QuantFormat):
            yield f"tensor {info.name}: expected a vector in F32, F16 or BF16, found {known.name}"
    for name, tensors in sorted(unsupported.items()):
        yield f"format {name} ({_names(tensors)}) is not supported: expected one of {', '.join(FORMATS)}"


def _find(
    header: Header, row: TensorRow[R, S], part: Part, presence: Presence, layers: int, reasons: list[str]
) -> dict[tuple[R, int], TensorInfo]:
    found: dict[tuple[R, int], TensorInfo] = {}
    missing = []
    for layer in row.layers(layers) if presence is not Presence.NEVER else ():
        info = header.tensors.get(row.file_name(layer, part))
        if info is not None:
            found[row.role, layer] = info
        elif presence is Presence.NEEDED:
            missing.append(row.file_name(layer, part))
    if missing:
        reasons.append(f"missing: {_names(missing)}")
    return found


def _differs(info: TensorInfo, expected: Shape) -> Iterable[str]:
    # Writers may drop or keep trailing dimensions of 1.
    if _trimmed(info.shape) != _trimmed(expected):
        yield f"tensor {info.name}: expected shape {list(expected)}, found {list(info.shape)}"


def _trimmed(shape: Shape) -> Shape:
    while len(shape) > 1 and shape[-1] == 1:
        shape = shape[:-1]
    return shape


def _names(names: list[str]) -> str:
    """The first few names, and how many more."""
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
