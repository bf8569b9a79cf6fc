"""Whether an mmproj file can run, and what it costs, decided from its header before a weight is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pagemill.decoder import Facts, Header, Refused, Role, TensorInfo, check_tensors
from pagemill.vision.archs import architecture_of
from pagemill.vision.spec import VisionRole, VisionSpec

Key = tuple[Role | VisionRole, int]


@dataclass(frozen=True, slots=True)
class VisionPlan:
    """An encoder that can run.  tensors: by role and layer (GLOBAL for those that do not repeat)."""

    spec: VisionSpec
    tensors: Mapping[Key, TensorInfo]

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights as the file stores them."""
        return sum(info.size_bytes for info in self.tensors.values())

    @property
    def weights(self) -> int:
        """How many numbers the weights are."""
        return sum(info.rows * info.shape[0] for info in self.tensors.values())


def plan(header: Header, *, text_width: int | None = None) -> VisionPlan:
    """Accept the file or raise Refused with every reason.  text_width: width of the text model that reads the rows."""
    architecture = architecture_of(header)
    facts = Facts(header, "clip")
    spec = architecture.spec_of(facts)
    what = f"a {spec.architecture} encoder"
    found, reasons = check_tensors(header, facts, architecture.tensors, spec, "vision.block_count", what)
    if text_width is not None and text_width != spec.out_width and not facts.reasons:
        reasons.append(
            f"its rows have {spec.out_width} numbers, the text model's have {text_width}: "
            "give the mmproj file that belongs to the text model"
        )
    reasons += facts.reasons
    if reasons:
        raise Refused("not a usable vision file", reasons)
    return VisionPlan(spec, MappingProxyType(found.weights))
