"""Facts of a decoder, as frozen records.  ``archs`` fills them from a header; ``transformer`` branches on nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal


class Role(Enum):
    """What a tensor is for.  The tables of ``archs`` give each its name in a file."""

    TOKEN_EMBEDDING = "token_embedding"
    OUTPUT_NORM = "output_norm"
    OUTPUT = "output"
    ROPE_FREQS = "rope_freqs"
    ATTN_NORM = "attn_norm"
    ATTN_Q = "attn_q"
    ATTN_K = "attn_k"
    ATTN_V = "attn_v"
    ATTN_Q_NORM = "attn_q_norm"
    ATTN_K_NORM = "attn_k_norm"
    ATTN_OUTPUT = "attn_output"
    FFN_NORM = "ffn_norm"
    FFN_GATE = "ffn_gate"
    FFN_UP = "ffn_up"
    FFN_DOWN = "ffn_down"
    EXPERT_ROUTER = "expert_router"
    EXPERT_GATE = "expert_gate"
    EXPERT_UP = "expert_up"
    EXPERT_DOWN = "expert_down"


@dataclass(frozen=True, slots=True)
class NormSpec:
    """A row norm: ``rms`` or ``layer`` (mean removed); eps is added to the mean square."""

    kind: Literal["rms", "layer"]
    eps: float


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary positions.

    dims: how many leading dimensions of a head rotate; the rest pass.  pairing: which two dimensions form a pair,
    (2i, 2i+1) for ``adjacent`` or (i, i + dims/2) for ``halves``.  scaling: ``yarn`` needs the four yarn facts.
    """

    base: float
    dims: int
    pairing: Literal["adjacent", "halves"]
    scaling: Literal["none", "linear", "yarn"] = "none"
    factor: float = 1.0
    original_context: int = 0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float = 1.0  # multiplies cos and sin


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """Shapes and facts of one layer's attention.  window: keys a query sees, itself included; 0 is all."""

    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    window: int = 0
    soft_cap: float = 0.0
    rope: RopeSpec | None = None


@dataclass(frozen=True, slots=True)
class ExpertSpec:
    """Mixture of experts: ``used`` of ``count`` experts a row, weights a softmax over all, renormalised over the used."""

    count: int
    used: int


@dataclass(frozen=True, slots=True)
class BlockSpec:
    """One transformer block: x += attention(norm(x)); x += feed_forward(norm(x)).  Text models and encoders have them."""

    width: int
    ff_width: int
    norm: NormSpec
    attention: AttentionSpec
    activation: Literal["silu", "gelu_tanh"]


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """All that one forward pass needs to know.  attention: one entry a layer (layers may differ)."""

    architecture: str
    name: str
    width: int
    ff_width: int
    vocab: int
    context: int
    norm: NormSpec
    attention: tuple[AttentionSpec, ...]
    activation: Literal["silu", "gelu_tanh"]
    gated: bool = True
    parallel_residual: bool = False
    embedding_scale: float = 1.0
    logit_soft_cap: float = 0.0
    experts: ExpertSpec | None = None

    @property
    def layers(self) -> int:
        """How many layers."""
        return len(self.attention)

    def block(self, layer: int) -> BlockSpec:
        """The facts of one layer's block."""
        return BlockSpec(self.width, self.ff_width, self.norm, self.attention[layer], self.activation)
