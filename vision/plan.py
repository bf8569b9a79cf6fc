"""Whether an mmproj file can run, and what it costs, decided from its header before a weight is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pagemill.decoder.errors import Refused
from pagemill.decoder.formats import FORMATS
from pagemill.decoder.gguf.header import Header, TensorInfo
from pagemill.vision.archs import VISION_TENSORS, spec_of
from pagemill.vision.spec import VisionRole, VisionSpec

GLOBAL = -1  # the layer of a tensor that does not repeat
MOST_REASONS = 12  # a file without any tensor should not fill the screen

Key = tuple[VisionRole, int]


@dataclass(frozen=True, slots=True)
class VisionPlan:
    """An encoder that can run.  tensors: by role and layer (GLOBAL for those that do not repeat)."""

    spec: VisionSpec
    tensors: Mapping[Key, TensorInfo]

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights as the file stores them."""
        return sum(info.size_bytes for info in self.tensors.values())


def plan(header: Header, *, text_width: int | None = None) -> VisionPlan:
    """Accept the file or raise Refused with every reason.  text_width: width of the text model that reads the rows."""
    spec = spec_of(header)
    reasons: list[str] = []
    if text_width is not None and text_width != spec.out_width:
        reasons.append(
            f"its rows have {spec.out_width} numbers, the text model's have {text_width}: "
            "give the mmproj file that belongs to the text model"
        )
    tensors: dict[Key, TensorInfo] = {}
    for key, name in _names(spec):
        info = header.tensors.get(name)
        if info is not None:
            tensors[key] = info
        reasons.extend(_faults(name, info, stored_shape(key[0], spec)))
    if reasons:
        more = [f"and {len(reasons) - MOST_REASONS} more"] if len(reasons) > MOST_REASONS else []
        raise Refused("not a usable vision file", reasons[:MOST_REASONS] + more)
    return VisionPlan(spec, tensors)


def stored_shape(role: VisionRole, spec: VisionSpec) -> tuple[int, ...]:
    """The shape of a role's tensor in the file's order: the contiguous row length first."""
    width, ff, out = spec.width, spec.ff_width, spec.out_width
    match role:
        case VisionRole.PATCH_EMBEDDING:
            return (spec.patch_px, spec.patch_px, 3, width)
        case VisionRole.PRE_NORM | VisionRole.ATTN_NORM | VisionRole.FFN_NORM | VisionRole.PROJECTOR_NORM:
            return (width,)
        case VisionRole.FFN_GATE | VisionRole.FFN_UP:
            return (width, ff)
        case VisionRole.FFN_DOWN:
            return (ff, width)
        case VisionRole.PROJECTOR_MERGE:
            return (width * spec.merge**2, width)
        case VisionRole.PROJECTOR_IN:
            return (width, out)
        case VisionRole.PROJECTOR_OUT:
            return (out, out)
    return (width, width)


def _names(spec: VisionSpec) -> Iterator[tuple[Key, str]]:
    for role, pattern in VISION_TENSORS.items():
        if "{layer}" not in pattern:
            yield (role, GLOBAL), pattern
            continue
        for layer in range(spec.layers):
            yield (role, layer), pattern.format(layer=layer)


def _faults(name: str, info: TensorInfo | None, shape: tuple[int, ...]) -> Iterator[str]:
    if info is None:
        yield f"tensor {name} is missing"
        return
    if tuple(info.shape) != shape:
        yield f"tensor {name} should have shape {list(shape)}, found {list(info.shape)}"
    weight_format = FORMATS.get(info.type_name)
    if weight_format is None:
        yield f"tensor {name} has format {info.type_name}, which is not supported (supported: {', '.join(FORMATS)})"
    elif shape[0] % weight_format.block:
        yield f"tensor {name} in {info.type_name} needs rows in multiples of {weight_format.block}, found {shape[0]}"
