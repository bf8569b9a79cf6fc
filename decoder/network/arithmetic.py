"""Which arithmetic a text model's forward pass uses on a CPU, resolved from its plan."""

from __future__ import annotations

from typing import Literal

from pagemill.decoder.kernels.isa import Isa
from pagemill.decoder.kernels.ops.attention_shape import AttentionShape
from pagemill.decoder.network.kv_codec import CODECS
from pagemill.decoder.plan import Plan

Attention = Literal["bf16", "f32"]


def has_exact_attention(plan: Plan) -> bool:
    """Whether attention keeps float32: bf16 is used only where the matrix products are rounded anyway."""
    rounded = any(info.type_name not in ("F32", "F16") for info in plan.tensors.values())
    return plan.exact or not rounded or plan.kv_cache == "f32"


def numeric_class(plan: Plan, isa: Isa) -> str:
    """What decides the bits: two machines of one class give the same tokens for the same prompt.

    Integer products are exact on every CPU.  Float sums of decode attention are split into as many chains as the registers
    hold, which differs between CPUs.
    """
    codec = CODECS[plan.kv_cache]
    attention: Attention = "bf16" if isa.bf16 and not has_exact_attention(plan) else "f32"
    shapes = {(each.heads // each.kv_heads, each.head_dim) for each in plan.spec.attention}
    chains = {AttentionShape.of(isa, codec, attention, *shape).decode_scores.chains for shape in shapes}
    products = "float32" if plan.exact else "int8"
    if not plan.exact and isa.bf16 and any(info.type_name == "BF16" for info in plan.tensors.values()):
        products += " and bf16"
    sums = "" if codec.scale_bytes else f" in {', '.join(map(str, sorted(chains)))} chains"
    return f"{products} products, {attention} attention{sums}, {codec.name} keys and values"
