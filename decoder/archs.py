"""The architectures: how each one's metadata reads as a ModelSpec, and which tensors it has.

The only file of this package that knows names of architectures.  A new one is a row in ARCHS; what it does that no other
does is a fact in ``spec``, never a name that forward asks for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from pagemill.decoder.errors import Refused
from pagemill.decoder.facts import Facts
from pagemill.decoder.gguf.parse import Header
from pagemill.decoder.spec import AttentionSpec, ExpertSpec, ModelSpec, NormSpec, Role, RopeSpec

# A role's name in a file, without ".weight" or ".bias"; "{layer}" where every layer has one.
TENSORS: Final[dict[Role, str]] = {
    Role.TOKEN_EMBEDDING: "token_embd",
    Role.POSITION_EMBEDDING: "position_embd",
    Role.OUTPUT_NORM: "output_norm",
    Role.OUTPUT: "output",
    Role.ROPE_FREQS: "rope_freqs",
    Role.ROPE_FACTORS_LONG: "rope_factors_long",
    Role.ROPE_FACTORS_SHORT: "rope_factors_short",
    Role.ATTN_NORM: "blk.{layer}.attn_norm",
    Role.ATTN_POST_NORM: "blk.{layer}.post_attention_norm",
    Role.ATTN_Q: "blk.{layer}.attn_q",
    Role.ATTN_K: "blk.{layer}.attn_k",
    Role.ATTN_V: "blk.{layer}.attn_v",
    Role.ATTN_QKV: "blk.{layer}.attn_qkv",
    Role.ATTN_Q_NORM: "blk.{layer}.attn_q_norm",
    Role.ATTN_K_NORM: "blk.{layer}.attn_k_norm",
    Role.ATTN_OUTPUT: "blk.{layer}.attn_output",
    Role.FFN_NORM: "blk.{layer}.ffn_norm",
    Role.FFN_POST_NORM: "blk.{layer}.post_ffw_norm",
    Role.FFN_GATE: "blk.{layer}.ffn_gate",
    Role.FFN_UP: "blk.{layer}.ffn_up",
    Role.FFN_DOWN: "blk.{layer}.ffn_down",
    Role.EXPERT_ROUTER: "blk.{layer}.ffn_gate_inp",
    Role.EXPERT_GATE: "blk.{layer}.ffn_gate_exps",
    Role.EXPERT_UP: "blk.{layer}.ffn_up_exps",
    Role.EXPERT_DOWN: "blk.{layer}.ffn_down_exps",
}

# What a file of these architectures is, when someone gives it as a text model.
NOT_TEXT: Final[dict[str, str]] = {
    "clip": "a vision projector (mmproj); give the text model's .gguf here and this file as its vision file",
}

_PRE_NORM: Final = frozenset(
    {
        Role.TOKEN_EMBEDDING,
        Role.OUTPUT_NORM,
        Role.ATTN_NORM,
        Role.ATTN_Q,
        Role.ATTN_K,
        Role.ATTN_V,
        Role.ATTN_OUTPUT,
        Role.FFN_NORM,
        Role.FFN_GATE,
        Role.FFN_UP,
        Role.FFN_DOWN,
    }
)
_QKV: Final = frozenset({Role.ATTN_Q, Role.ATTN_K, Role.ATTN_V})


@dataclass(frozen=True, slots=True)
class Architecture:
    """One architecture: ``read`` turns its metadata into facts; the rest says which tensors its files have.

    needs, may_have: roles with a weight; needs_bias, may_have_bias: roles with a bias.  A tensor of no role is refused.
    """

    read: Callable[[Facts], ModelSpec]
    needs: frozenset[Role] = _PRE_NORM
    may_have: frozenset[Role] = frozenset({Role.OUTPUT})
    needs_bias: frozenset[Role] = frozenset()
    may_have_bias: frozenset[Role] = frozenset()

    def __call__(self, header: Header) -> ModelSpec:
        """The spec of a file of this architecture; raises Refused with every reason that the metadata gives."""
        facts = Facts(header, header.text("general.architecture"))
        spec = self.read(facts)
        if facts.reasons:
            raise Refused("this model cannot run", facts.reasons)
        return spec


def tensor_name(role: Role, layer: int, part: Literal["weight", "bias"] = "weight") -> str:
    """The name of a role's tensor in a file; layer is ignored for roles that occur once."""
    return f"{TENSORS[role].format(layer=layer)}.{part}"


def is_layered(role: Role) -> bool:
    """Whether every layer has its own."""
    return "{layer}" in TENSORS[role]


def _pre_norm_decoder(facts: Facts, pairing: Literal["adjacent", "halves"]) -> ModelSpec:
    """Llama and all that differ from it only in tensors and rope pairing: RMS norm before each part, gated SiLU."""
    width, heads = facts.count("embedding_length"), facts.count("attention.head_count")
    # Layers cannot outnumber tensors: a lying count must not make a table of billions.
    layers = facts.count("block_count", most=max(1, len(facts.header.tensors)))
    kv_heads = facts.count("attention.head_count_kv", heads)
    head_dim = facts.count("attention.key_length", max(1, width // heads))
    value_dim = facts.count("attention.value_length", head_dim)
    context = facts.count("context_length")
    if not facts.reasons:
        if heads % kv_heads:
            facts.refuse(f"expected attention.head_count in multiples of head_count_kv, found {heads} and {kv_heads}")
        if head_dim != value_dim:
            facts.refuse(f"keys and values of different widths are not supported, found {head_dim} and {value_dim}")
    facts.expect("attention.causal", True)  # false in embedding models, which write no text
    attention = AttentionSpec(
        heads, kv_heads, head_dim, 1.0 / math.sqrt(head_dim), rope=_rope(facts, head_dim, context, pairing)
    )
    return ModelSpec(
        architecture=facts.prefix,
        name=_name(facts.header),
        width=width,
        ff_width=facts.count("feed_forward_length"),
        vocab=_vocab(facts),
        context=context,
        norm=NormSpec("rms", facts.number("attention.layer_norm_rms_epsilon")),
        attention=(attention,) * layers,
        activation="silu",
        experts=_experts(facts),
    )


def _rope(facts: Facts, head_dim: int, context: int, pairing: Literal["adjacent", "halves"]) -> RopeSpec:
    """Rotary positions and their scaling."""
    dims = facts.count("rope.dimension_count", head_dim)
    if dims % 2 or dims > head_dim:
        facts.refuse(f"expected rope.dimension_count even and at most the head's width {head_dim}, found {dims}")
    base = facts.number("rope.freq_base", 10000.0)
    factor = facts.number("rope.scaling.factor", facts.number("rope.scale_linear", 1.0))  # the second is the older name
    # A factor without a type means linear: that is what writers of the format take for granted.
    scaling = facts.text("rope.scaling.type", "linear" if factor != 1.0 else "none")
    if scaling == "linear":
        return RopeSpec(base, dims, pairing, "linear", factor)
    if scaling == "yarn":
        facts.expect("rope.scaling.yarn_ext_factor", 1.0)
        facts.expect("rope.scaling.yarn_log_multiplier", 0.0)
        return RopeSpec(
            base,
            dims,
            pairing,
            "yarn",
            factor,
            original_context=facts.count("rope.scaling.original_context_length", context),
            beta_fast=facts.number("rope.scaling.yarn_beta_fast", 32.0),
            beta_slow=facts.number("rope.scaling.yarn_beta_slow", 1.0),
            # Peng et al. 2023, section 3.4: 0.1 ln(s) + 1, and 1 where nothing is stretched.
            attention_factor=(0.1 * math.log(max(factor, 1.0)) + 1.0) * facts.number("rope.scaling.attn_factor", 1.0),
        )
    if scaling != "none":
        facts.refuse(f"rope scaling {scaling!r} is not supported: expected none, linear or yarn")
    return RopeSpec(base, dims, pairing)


def _experts(facts: Facts) -> ExpertSpec | None:
    """The mixture of experts, which is refused until the engine has it."""
    count = facts.count("expert_count", 0, least=0)
    if count == 0:
        return None
    experts = ExpertSpec(count, facts.count("expert_used_count"))
    facts.refuse(
        f"a mixture of experts ({experts.count} experts, {experts.used} used) is not supported yet; give a dense model"
    )
    return experts


def _vocab(facts: Facts) -> int:
    """How many tokens: rows of the embedding; where that is missing (a reason of its own), what the metadata says."""
    embedding = facts.header.tensors.get(tensor_name(Role.TOKEN_EMBEDDING, 0))
    if embedding is not None:
        return embedding.rows
    return facts.count("vocab_size", 1)


def _name(header: Header) -> str:
    """What the file calls itself; an odd or missing name is no reason to refuse it."""
    name = header.metadata.get("general.name", "")
    return name if isinstance(name, str) else ""


ARCHS: Final[dict[str, Architecture]] = {
    "llama": Architecture(
        partial(_pre_norm_decoder, pairing="adjacent"),  # Mistral's files say llama too
        may_have=frozenset({Role.OUTPUT, Role.ROPE_FREQS}),
        may_have_bias=_QKV | {Role.ATTN_OUTPUT},
    ),
    "qwen2": Architecture(partial(_pre_norm_decoder, pairing="halves"), needs_bias=_QKV),
    "qwen3": Architecture(
        partial(_pre_norm_decoder, pairing="halves"),
        needs=_PRE_NORM | {Role.ATTN_Q_NORM, Role.ATTN_K_NORM},
        may_have_bias=_QKV | {Role.ATTN_OUTPUT},
    ),
}
