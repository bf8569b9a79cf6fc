"""The architectures: how each one's metadata reads as a ModelSpec, and which tensors it has.

The only file of this package that knows names of architectures.  A new one is a row in ARCHS; what it does that no other
does is a fact in ``spec``, never a name that forward asks for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal

from pagemill.decoder.facts import Facts
from pagemill.decoder.gguf.header import Header
from pagemill.decoder.spec import AttentionSpec, ExpertSpec, ModelSpec, NormSpec, Role, RopeSpec
from pagemill.decoder.tensors import GLOBAL, Presence, TensorRow

# What a file of these architectures is, when someone gives it as a text model.
NOT_TEXT: Final[dict[str, str]] = {
    "clip": "a vision projector (mmproj); give the text model's .gguf here and this file as its vision file"
}

# Keys that change nothing while they have these values.
_NEUTRAL: Final[dict[str, tuple[object, ...]]] = {
    "attention.causal": (True,),  # false in embedding models, which write no text
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "attention.scale": (0.0,),
    "attn_logit_softcapping": (0.0,),
    "embedding_scale": (1.0, 0.0),
    "expert_shared_count": (0,),
    "expert_used_count": (0,),
    "final_logit_softcapping": (0.0,),
    "leading_dense_block_count": (0,),
    "logit_scale": (1.0, 0.0),
    "nextn_predict_layers": (0,),
    "pooling_type": (0,),
    "residual_scale": (1.0, 0.0),
    "rope.dimension_sections": (0,),
    "rope.scaling.alpha": (1.0, 0.0),
    "rope.scaling.yarn_attn_factor": (1.0,),
    "router_logit_softcapping": (0.0,),
    "use_parallel_residual": (False,),
}
# Keys that never change a result: notes of the converter, and facts of other kinds of scaling than the file's;
# vocab_size is compared with the tokens by plan.
_HARMLESS: Final = frozenset({
    "attention.layer_norm_epsilon", "rope.scaling.finetuned", "rope.scaling.original_context_length",
    "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow", "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_log_multiplier", "tensor_data_layout",
    "vocab_size",
})  # fmt: skip

Row = TensorRow[Role, ModelSpec]
Table = tuple[Row, ...]
_OPTIONAL: Final = Presence.OPTIONAL


def _queries(spec: ModelSpec, layer: int) -> int:
    return spec.attention[layer].heads * spec.attention[layer].head_dim


def _keys(spec: ModelSpec, layer: int) -> int:
    return spec.attention[layer].kv_heads * spec.attention[layer].head_dim


def _rope_pairs(spec: ModelSpec, layer: int) -> int:
    rope = spec.attention[0].rope
    return rope.dims // 2 if rope else 0


def _experts_of(spec: ModelSpec) -> int:
    return spec.experts.count if spec.experts else 0


def _is_dense(spec: ModelSpec) -> bool:
    return spec.experts is None


def _has_experts(spec: ModelSpec) -> bool:
    return spec.experts is not None


# In the order of the forward pass, which is the order of reasons.
_PRE_NORM: Final[Table] = (
    Row(Role.TOKEN_EMBEDDING, "token_embd", lambda s, _: (s.width, s.vocab)),
    Row(Role.OUTPUT_NORM, "output_norm", lambda s, _: (s.width,)),
    Row(Role.OUTPUT, "output", lambda s, _: (s.width, s.vocab), _OPTIONAL),  # the embedding, where it is missing
    Row(Role.ATTN_NORM, "blk.{layer}.attn_norm", lambda s, _: (s.width,)),
    Row(Role.ATTN_Q, "blk.{layer}.attn_q", lambda s, i: (s.width, _queries(s, i))),
    Row(Role.ATTN_K, "blk.{layer}.attn_k", lambda s, i: (s.width, _keys(s, i))),
    Row(Role.ATTN_V, "blk.{layer}.attn_v", lambda s, i: (s.width, _keys(s, i))),
    Row(Role.ATTN_OUTPUT, "blk.{layer}.attn_output", lambda s, i: (_queries(s, i), s.width)),
    Row(Role.FFN_NORM, "blk.{layer}.ffn_norm", lambda s, _: (s.width,)),
    Row(Role.FFN_GATE, "blk.{layer}.ffn_gate", lambda s, _: (s.width, s.ff_width), used=_is_dense),
    Row(Role.FFN_UP, "blk.{layer}.ffn_up", lambda s, _: (s.width, s.ff_width), used=_is_dense),
    Row(Role.FFN_DOWN, "blk.{layer}.ffn_down", lambda s, _: (s.ff_width, s.width), used=_is_dense),
    Row(Role.EXPERT_ROUTER, "blk.{layer}.ffn_gate_inp", lambda s, _: (s.width, _experts_of(s)), used=_has_experts),
    Row(Role.EXPERT_GATE, "blk.{layer}.ffn_gate_exps", lambda s, _: (s.width, s.ff_width, _experts_of(s)), used=_has_experts),
    Row(Role.EXPERT_UP, "blk.{layer}.ffn_up_exps", lambda s, _: (s.width, s.ff_width, _experts_of(s)), used=_has_experts),
    Row(Role.EXPERT_DOWN, "blk.{layer}.ffn_down_exps", lambda s, _: (s.ff_width, s.width, _experts_of(s)), used=_has_experts),
)
_ROPE_FREQS: Final = Row(Role.ROPE_FREQS, "rope_freqs", lambda s, i: (_rope_pairs(s, i),), _OPTIONAL)
_HEAD_NORMS: Final[Table] = (
    Row(Role.ATTN_Q_NORM, "blk.{layer}.attn_q_norm", lambda s, i: (s.attention[i].head_dim,)),
    Row(Role.ATTN_K_NORM, "blk.{layer}.attn_k_norm", lambda s, i: (s.attention[i].head_dim,)),
)
_QKV: Final = frozenset({Role.ATTN_Q, Role.ATTN_K, Role.ATTN_V})


def _with_bias(table: Table, roles: frozenset[Role], bias: Presence) -> Table:
    return tuple(replace(row, bias=bias) if row.role in roles else row for row in table)


@dataclass(frozen=True, slots=True)
class Architecture:
    """One architecture: ``read`` turns its metadata into facts, ``tensors`` says what its files hold; no tensor else."""

    read: Callable[[Facts], ModelSpec]
    tensors: Table

    def spec_of(self, facts: Facts) -> ModelSpec:
        """The facts of a file; what is wrong with them, and what nothing reads, is in ``facts.reasons``."""
        spec = self.read(facts)
        facts.refuse_unread(_NEUTRAL, _HARMLESS)
        return spec


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
    window = facts.count("attention.sliding_window", 0, least=0)
    facts.require(not 0 < window < context, f"a sliding window of {window} tokens is not supported: expected none")
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
    attention_factor = facts.number("rope.scaling.attn_factor", 1.0)
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
            attention_factor=(0.1 * math.log(max(factor, 1.0)) + 1.0) * attention_factor,
        )
    if scaling == "linear":
        return RopeSpec(base, dims, pairing, "linear", factor, attention_factor=attention_factor)
    if scaling != "none":
        facts.refuse(f"rope scaling {scaling!r} is not supported: expected none, linear or yarn")
    return RopeSpec(base, dims, pairing, attention_factor=attention_factor)


def _experts(facts: Facts) -> ExpertSpec | None:
    """The mixture of experts, None for a dense model."""
    count = facts.count("expert_count", 0, least=0)
    return ExpertSpec(count, facts.count("expert_used_count")) if count else None


def _vocab(facts: Facts) -> int:
    """How many tokens: rows of the embedding; where that is missing (a reason of its own), what the metadata says."""
    embedding = facts.header.tensors.get(_PRE_NORM[0].file_name(GLOBAL))
    if embedding is not None:
        return embedding.rows
    return facts.count("vocab_size", 1)


def _name(header: Header) -> str:
    """What the file calls itself; an odd or missing name is no reason to refuse it."""
    name = header.metadata.get("general.name", "")
    return name if isinstance(name, str) else ""


_OPTIONAL_BIASES: Final = _with_bias(_PRE_NORM, _QKV | {Role.ATTN_OUTPUT}, _OPTIONAL)

ARCHS: Final[dict[str, Architecture]] = {
    # Mistral's files say llama too.
    "llama": Architecture(partial(_pre_norm_decoder, pairing="adjacent"), (*_OPTIONAL_BIASES, _ROPE_FREQS)),
    "qwen2": Architecture(partial(_pre_norm_decoder, pairing="halves"), _with_bias(_PRE_NORM, _QKV, Presence.NEEDED)),
    "qwen3": Architecture(partial(_pre_norm_decoder, pairing="halves"), (*_OPTIONAL_BIASES, *_HEAD_NORMS)),
}
