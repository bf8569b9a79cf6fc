"""A plan in words, for people."""

from __future__ import annotations

from collections import Counter

from pagemill.decoder.plan import Plan
from pagemill.decoder.spec import ModelSpec


def describe(plan: Plan) -> list[tuple[str, str]]:
    """A text model's plan for people: (fact, value) rows."""
    spec, attention = plan.spec, plan.spec.attention[0]
    tensors = (*plan.tensors.values(), *plan.biases.values())
    formats = Counter(info.type_name for info in tensors)
    cached, full = plan.cached_token_bytes, plan.cached_token_bytes * spec.context
    return [
        ("architecture", spec.architecture),
        ("name", spec.name or "(none)"),
        ("weights", f"{sum(info.rows * info.shape[0] for info in tensors):,}"),
        ("layers", f"{spec.layers} of width {spec.width}, feed-forward {spec.ff_width}"),
        ("heads", f"{attention.heads} of {attention.head_dim}, {attention.kv_heads} for keys and values"),
        ("rope", _rope_text(spec)),
        ("vocabulary", f"{spec.vocab:,} tokens, output {'tied to the embedding' if plan.tied_output else 'separate'}"),
        ("context", f"{spec.context:,} tokens"),
        ("formats", ", ".join(f"{name} ({count})" for name, count in formats.most_common())),
        ("products", "float32 (exact)" if plan.exact else "int8 where weights are quantized"),
        ("resident", bytes_text(plan.resident_bytes)),
        ("kv cache", f"{plan.kv_cache}, {bytes_text(cached)} a token, {bytes_text(full)} for all of the context"),
    ]


def bytes_text(count: int) -> str:
    """A size in binary units."""
    size, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def _rope_text(spec: ModelSpec) -> str:
    """The rope of the first layer in words."""
    rope = spec.attention[0].rope
    if rope is None:
        return "none"
    scaling = "" if rope.scaling == "none" else f", {rope.scaling} scaling by {rope.factor:g}"
    return f"base {rope.base:g}, {rope.dims} dimensions{scaling}"
