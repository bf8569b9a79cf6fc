"""The forward pass in plain float64 numpy, straight from its definition: what odd shapes are compared with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pagemill.decoder.formats import FORMATS
from pagemill.decoder.gguf.header import Header
from pagemill.decoder.plan import Plan, plan
from pagemill.decoder.spec import AttentionSpec, Role

Wide = NDArray[np.float64]


class Reference:
    """All weights dequantized; one sequence at a time, no cache."""

    def __init__(self, header: Header, data: NDArray[np.uint8]) -> None:
        self.plan: Plan = plan(header)
        self._data = data

    def logits(self, tokens: NDArray[np.int64]) -> Wide:
        """(tokens, vocab)."""
        spec = self.plan.spec
        x = self._weight(Role.TOKEN_EMBEDDING)[tokens] * spec.embedding_scale
        for layer in range(spec.layers):
            x = x + self._attention(layer, self._norm(Role.ATTN_NORM, layer, x))
            h = self._norm(Role.FFN_NORM, layer, x)
            gate, up = h @ self._weight(Role.FFN_GATE, layer).T, h @ self._weight(Role.FFN_UP, layer).T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ self._weight(Role.FFN_DOWN, layer).T
        output = Role.TOKEN_EMBEDDING if self.plan.tied_output else Role.OUTPUT
        logits: Wide = self._norm(Role.OUTPUT_NORM, -1, x) @ self._weight(output).T
        return logits

    def _attention(self, layer: int, h: Wide) -> Wide:
        facts = self.plan.spec.attention[layer]
        q = self._heads(Role.ATTN_Q, layer, h, facts.heads, Role.ATTN_Q_NORM)
        k = self._heads(Role.ATTN_K, layer, h, facts.kv_heads, Role.ATTN_K_NORM)
        v = self._project(Role.ATTN_V, layer, h).reshape(len(h), facts.kv_heads, -1)
        q, k = _turn(q, facts), _turn(k, facts)
        group, ahead = facts.heads // facts.kv_heads, np.triu(np.full((len(h), len(h)), -np.inf), 1)
        out = np.empty_like(q)
        for head in range(facts.heads):
            scores = q[:, head] @ k[:, head // group].T * facts.scale + ahead
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            out[:, head] = weights / weights.sum(-1, keepdims=True) @ v[:, head // group]
        return out.reshape(len(h), -1) @ self._weight(Role.ATTN_OUTPUT, layer).T

    def _heads(self, role: Role, layer: int, h: Wide, heads: int, norm: Role) -> Wide:
        rows = self._project(role, layer, h).reshape(len(h), heads, -1)
        return self._norm(norm, layer, rows) if (norm, layer) in self.plan.tensors else rows

    def _project(self, role: Role, layer: int, h: Wide) -> Wide:
        rows: Wide = h @ self._weight(role, layer).T
        bias = self.plan.biases.get((role, layer))
        return rows if bias is None else rows + self._read(bias.offset, bias.size_bytes, 1, bias.type_name)[0]

    def _norm(self, role: Role, layer: int, x: Wide) -> Wide:
        weight = self._weight(role, layer)[0]
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + self.plan.spec.norm.eps) * weight

    def _weight(self, role: Role, layer: int = -1) -> Wide:
        info = self.plan.tensors[role, layer]
        return self._read(info.offset, info.size_bytes, info.rows, info.type_name)

    def _read(self, offset: int, size: int, rows: int, name: str) -> Wide:
        raw = self._data[offset : offset + size].reshape(rows, -1)
        return FORMATS[name].dequantize(raw).astype(np.float64)


def _turn(x: Wide, facts: AttentionSpec) -> Wide:
    """Rotate the pairs of (tokens, heads, head_dim) by their positions; unscaled rope only."""
    rope = facts.rope
    assert rope is not None, "these models rotate"
    angles = np.arange(len(x))[:, None, None] * rope.base ** (-np.arange(0, rope.dims, 2) / rope.dims)
    half = rope.dims // 2
    adjacent = rope.pairing == "adjacent"
    first = np.s_[..., 0 : rope.dims : 2] if adjacent else np.s_[..., :half]
    second = np.s_[..., 1 : rope.dims : 2] if adjacent else np.s_[..., half : rope.dims]
    out = x.copy()
    out[first] = x[first] * np.cos(angles) - x[second] * np.sin(angles)
    out[second] = x[second] * np.cos(angles) + x[first] * np.sin(angles)
    return out
