"""What ``transformer.Forward`` does not compute: the other side of its branches, asked by ``plan`` before a weight is read.

A fact that forward ignored would give wrong results without a word.  Whoever adds a field to ``decoder.spec`` makes
forward read it or refuses it here; a test flips every field.
"""

from __future__ import annotations

from collections.abc import Iterator

from pagemill.decoder.spec import AttentionSpec, ModelSpec


def unsupported(spec: ModelSpec) -> list[str]:
    """Every reason why forward cannot run a model with these facts; empty for one that it can."""
    return [*_of_model(spec), *dict.fromkeys(reason for layer in spec.attention for reason in _of_layer(layer, spec))]


def _of_model(spec: ModelSpec) -> Iterator[str]:
    if spec.norm.kind != "rms":
        yield f"norms of kind {spec.norm.kind!r} are not supported: expected rms"
    if spec.parallel_residual:
        yield "attention and feed-forward side by side (a parallel residual) are not supported"
    if not spec.gated:
        yield "a feed-forward part without a gate is not supported"
    if spec.logit_soft_cap:
        yield f"a soft cap of logits ({spec.logit_soft_cap:g}) is not supported"
    if spec.experts:
        count, used = spec.experts.count, spec.experts.used
        yield f"a mixture of experts ({count} experts, {used} used) is not supported yet; give a dense model"


def _of_layer(attention: AttentionSpec, spec: ModelSpec) -> Iterator[str]:
    if attention.soft_cap:
        yield f"a soft cap of attention scores ({attention.soft_cap:g}) is not supported"
    if attention.rope != spec.attention[0].rope:
        yield "rotary positions that differ between layers are not supported"
