"""The encoders that can run: how an mmproj header becomes a VisionSpec, and which tensors it has.

One row per projector type.  Nothing outside this file knows a projector by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pagemill.decoder import Facts, Header, Refused, Role, TensorRow
from pagemill.vision.spec import VisionRole, VisionSpec

MOST_LAYERS = 1024  # a count above is a lie, not a model
MOST_PX = 1 << 16
MOST_PATCH_PX, MOST_MERGE = 256, 16

# Keys that change nothing while they have these values.
_NEUTRAL: Final[dict[str, tuple[object, ...]]] = {
    "has_audio_encoder": (False,),
    "has_llava_projector": (False,),
    "has_vision_encoder": (True,),
    "use_gelu": (False,),
    "vision.feature_layer": (),
    "vision.is_deepstack_layers": (False,),
    "vision.n_wa_pattern": (0,),
    "vision.wa_layer_indexes": (),
    "vision.window_size": (0,),
}

Row = TensorRow[Role | VisionRole, VisionSpec]


def _vector(spec: VisionSpec, _: int) -> tuple[int, ...]:
    return (spec.width,)


def _square(spec: VisionSpec, _: int) -> tuple[int, ...]:
    return (spec.width, spec.width)


_PIXTRAL: Final[tuple[Row, ...]] = (
    Row(VisionRole.PATCH_EMBEDDING, "v.patch_embd", lambda s, _: (s.patch_px, s.patch_px, 3, s.width)),
    Row(VisionRole.PRE_NORM, "v.pre_ln", _vector),
    Row(Role.ATTN_NORM, "v.blk.{layer}.ln1", _vector),
    Row(Role.ATTN_Q, "v.blk.{layer}.attn_q", _square),
    Row(Role.ATTN_K, "v.blk.{layer}.attn_k", _square),
    Row(Role.ATTN_V, "v.blk.{layer}.attn_v", _square),
    Row(Role.ATTN_OUTPUT, "v.blk.{layer}.attn_out", _square),
    Row(Role.FFN_NORM, "v.blk.{layer}.ln2", _vector),
    Row(Role.FFN_GATE, "v.blk.{layer}.ffn_gate", lambda s, _: (s.width, s.ff_width)),
    Row(Role.FFN_UP, "v.blk.{layer}.ffn_up", lambda s, _: (s.width, s.ff_width)),
    Row(Role.FFN_DOWN, "v.blk.{layer}.ffn_down", lambda s, _: (s.ff_width, s.width)),
    Row(VisionRole.PROJECTOR_NORM, "mm.input_norm", _vector),
    Row(VisionRole.PROJECTOR_MERGE, "mm.patch_merger", lambda s, _: (s.width * s.merge**2, s.width)),
    Row(VisionRole.PROJECTOR_IN, "mm.1", lambda s, _: (s.width, s.out_width)),
    Row(VisionRole.PROJECTOR_OUT, "mm.2", lambda s, _: (s.out_width, s.out_width)),
)


@dataclass(frozen=True, slots=True)
class VisionArchitecture:
    """One kind of encoder: ``read`` turns its metadata into facts, ``tensors`` says what its files hold."""

    read: Callable[[Facts], VisionSpec]
    tensors: tuple[Row, ...]

    def spec_of(self, facts: Facts) -> VisionSpec:
        """The facts of a file; what is wrong with them, and what nothing reads, is in ``facts.reasons``."""
        spec = self.read(facts)
        facts.refuse_unread(_NEUTRAL, frozenset())
        return spec


def architecture_of(header: Header) -> VisionArchitecture:
    """The row of a file's projector type; Refused for one that is not there."""
    architecture = header.text("general.architecture", default="")
    if architecture != "clip":
        found = f"found {architecture!r}" if architecture else "found none"
        hint = "give the model's mmproj GGUF file, not its text model"
        raise Refused("not a vision file", [f"general.architecture should be 'clip', {found}: {hint}"])
    projector = header.text(PROJECTOR, default="") or header.text("clip.vision.projector_type", default="")
    if projector not in VISION_ARCHS:
        known = ", ".join(sorted(VISION_ARCHS))
        reason = f"projector type {projector!r} is not supported" if projector else f"{PROJECTOR} is missing"
        raise Refused("not a usable vision file", [f"{reason} (supported: {known})"])
    return VISION_ARCHS[projector]


PROJECTOR: Final = "clip.projector_type"


def _lightonocr(facts: Facts) -> VisionSpec:
    """A Pixtral encoder and a 2 x 2 merge.  The projector's norm takes the text model's eps, which no mmproj key holds."""
    for key in ("projector_type", "vision.projector_type"):
        facts.text(key, "")
    image_px = facts.count("vision.image_size", most=MOST_PX)
    spec = VisionSpec(
        architecture="lightonocr",
        width=facts.count("vision.embedding_length", most=1 << 20),
        ff_width=facts.count("vision.feed_forward_length", most=1 << 20),
        heads=facts.count("vision.attention.head_count", most=1 << 20),
        layers=facts.count("vision.block_count", most=MOST_LAYERS),
        patch_px=facts.count("vision.patch_size", most=MOST_PATCH_PX),
        merge=facts.count("vision.spatial_merge_size", 2, most=MOST_MERGE),
        longest_edge_px=facts.count("vision.preproc_image_size", image_px, most=MOST_PX),
        out_width=facts.count("vision.projection_dim", most=1 << 20),
        eps=facts.number("vision.attention.layer_norm_epsilon", below=1.0),
        projector_eps=1e-6,
        rope_base=10000.0,
        mean=facts.channels("vision.image_mean"),
        std=facts.channels("vision.image_std", positive=True),
        rope_pairing="adjacent",  # the converter permutes query and key rows
    )
    if not facts.flag("use_silu", default=False):
        facts.refuse("clip.use_silu should be true: only a SiLU gate is supported")
    heads = f"{spec.heads} heads of width {spec.width} need a head size that 4 divides"
    facts.require(spec.width % (4 * spec.heads) == 0, heads)
    return spec


VISION_ARCHS: Final[dict[str, VisionArchitecture]] = {"lightonocr": VisionArchitecture(_lightonocr, _PIXTRAL)}
