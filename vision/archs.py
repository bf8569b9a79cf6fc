"""The encoders that can run: how an mmproj header becomes a VisionSpec, and what its tensors are called.

One row per projector type.  Nothing outside this file knows a projector by name.
"""

from __future__ import annotations

from collections.abc import Callable

from pagemill.decoder.errors import ModelError, Refused
from pagemill.decoder.gguf.header import Header
from pagemill.vision.spec import VisionRole, VisionSpec

MOST_LAYERS = 1024  # a count above is a lie, not a model
MOST_PX = 1 << 16


def spec_of(header: Header) -> VisionSpec:
    """The facts in a header; Refused, with every reason, if it is not an encoder that can run."""
    projector = _projector(header)
    if projector not in VISION_ARCHS:
        raise Refused("not a usable vision file", [_unknown(projector)])
    return VISION_ARCHS[projector](header)


def _projector(header: Header) -> str:
    architecture = header.text("general.architecture", default="")
    if architecture != "clip":
        found = f"found {architecture!r}" if architecture else "found none"
        hint = "give the model's mmproj GGUF file, not its text model"
        raise Refused("not a vision file", [f"general.architecture should be 'clip', {found}: {hint}"])
    return header.text("clip.projector_type", default="") or header.text("clip.vision.projector_type", default="")


def _unknown(projector: str) -> str:
    known = ", ".join(sorted(VISION_ARCHS))
    return (
        f"projector type {projector!r} is not supported (supported: {known})"
        if projector
        else (f"clip.projector_type is missing (supported: {known})")
    )


def _lightonocr(header: Header) -> VisionSpec:
    """A Pixtral encoder and a 2 x 2 merge.  The projector's norm takes the text model's eps, which no mmproj key tells."""
    facts = _Facts(header)
    image_px = facts.positive("clip.vision.image_size", MOST_PX)
    spec = VisionSpec(
        architecture="lightonocr",
        width=facts.positive("clip.vision.embedding_length"),
        ff_width=facts.positive("clip.vision.feed_forward_length"),
        heads=facts.positive("clip.vision.attention.head_count"),
        layers=facts.positive("clip.vision.block_count", MOST_LAYERS),
        patch_px=facts.positive("clip.vision.patch_size", 256),
        merge=facts.positive("clip.vision.spatial_merge_size", 16, default=2),
        longest_edge_px=facts.positive("clip.vision.preproc_image_size", MOST_PX, default=image_px),
        out_width=facts.positive("clip.vision.projection_dim"),
        eps=facts.small("clip.vision.attention.layer_norm_epsilon"),
        projector_eps=1e-6,
        rope_base=10000.0,
        mean=facts.channels("clip.vision.image_mean"),
        std=facts.channels("clip.vision.image_std"),
        rope_pairing="adjacent",  # the converter permutes query and key rows
    )
    facts.require(header.flag("clip.use_silu", default=False), "clip.use_silu should be true: only a SiLU gate is supported")
    facts.require(
        header.flag("clip.has_vision_encoder", default=True), "clip.has_vision_encoder is false: nothing encodes images"
    )
    heads_fit = facts.doubted or spec.width % (4 * spec.heads) == 0
    facts.require(heads_fit, f"{spec.heads} heads of width {spec.width} need a head size that 4 divides")
    facts.require(min(spec.std) > 0, f"clip.vision.image_std should be positive, found {spec.std}")
    facts.done()
    return spec


VISION_ARCHS: dict[str, Callable[[Header], VisionSpec]] = {
    "lightonocr": _lightonocr,
}

VISION_TENSORS: dict[VisionRole, str] = {
    VisionRole.PATCH_EMBEDDING: "v.patch_embd.weight",
    VisionRole.PRE_NORM: "v.pre_ln.weight",
    VisionRole.ATTN_NORM: "v.blk.{layer}.ln1.weight",
    VisionRole.ATTN_Q: "v.blk.{layer}.attn_q.weight",
    VisionRole.ATTN_K: "v.blk.{layer}.attn_k.weight",
    VisionRole.ATTN_V: "v.blk.{layer}.attn_v.weight",
    VisionRole.ATTN_OUTPUT: "v.blk.{layer}.attn_out.weight",
    VisionRole.FFN_NORM: "v.blk.{layer}.ln2.weight",
    VisionRole.FFN_GATE: "v.blk.{layer}.ffn_gate.weight",
    VisionRole.FFN_UP: "v.blk.{layer}.ffn_up.weight",
    VisionRole.FFN_DOWN: "v.blk.{layer}.ffn_down.weight",
    VisionRole.PROJECTOR_NORM: "mm.input_norm.weight",
    VisionRole.PROJECTOR_MERGE: "mm.patch_merger.weight",
    VisionRole.PROJECTOR_IN: "mm.1.weight",
    VisionRole.PROJECTOR_OUT: "mm.2.weight",
}


class _Facts:
    """Reads a header's keys and collects what is wrong with them; a bad key reads as 1 until ``done`` refuses."""

    def __init__(self, header: Header) -> None:
        self._header = header
        self._reasons: list[str] = []

    def positive(self, key: str, most: int = 1 << 20, default: int | None = None) -> int:
        """An integer from 1 to most."""
        if default is not None and key not in self._header.metadata:
            return default
        try:
            value = self._header.integer(key)
        except ModelError as error:
            self._reasons.append(str(error))
            return 1
        self.require(1 <= value <= most, f"{key} should be from 1 to {most}, found {value}")
        return value if 1 <= value <= most else 1

    def small(self, key: str) -> float:
        """A number from 0 to 1: an eps."""
        try:
            value = self._header.number(key)
        except ModelError as error:
            self._reasons.append(str(error))
            return 0.0
        self.require(0 <= value < 1, f"{key} should be from 0 to 1, found {value}")
        return value

    def channels(self, key: str) -> tuple[float, float, float]:
        """Three finite numbers, one a channel."""
        try:
            values = [float(value) for value in self._header.numbers(key)]
        except ModelError as error:
            self._reasons.append(str(error))
            return (1.0, 1.0, 1.0)
        if len(values) != 3 or not all(abs(value) < 1e6 for value in values):
            self._reasons.append(f"{key} should hold three numbers, found {len(values)}: {values[:3]}")
            return (1.0, 1.0, 1.0)
        return (values[0], values[1], values[2])

    @property
    def doubted(self) -> bool:
        """Whether a key read so far was bad: then what follows from several keys says nothing."""
        return bool(self._reasons)

    def require(self, holds: bool, reason: str) -> None:
        """Note a reason to refuse unless it holds."""
        if not holds:
            self._reasons.append(reason)

    def done(self) -> None:
        """Refuse with all reasons noted so far, if any."""
        if self._reasons:
            raise Refused("not a usable vision file", self._reasons)
