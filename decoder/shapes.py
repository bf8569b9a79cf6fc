"""The shape that each role's tensor must have, as it follows from a ModelSpec."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pagemill.decoder.gguf.parse import TensorInfo
from pagemill.decoder.spec import ModelSpec, Role


def expected_shape(spec: ModelSpec, role: Role, layer: int) -> tuple[int, ...]:
    """The shape of a role's weight in file order (columns, rows); layer -1 for roles that occur once."""
    attention = spec.attention[max(layer, 0)]
    width, ff_width, head_dim = spec.width, spec.ff_width, attention.head_dim
    queries, keys = attention.heads * head_dim, attention.kv_heads * head_dim
    experts = spec.experts.count if spec.experts else 0
    match role:
        case Role.TOKEN_EMBEDDING | Role.OUTPUT:
            return (width, spec.vocab)
        case Role.POSITION_EMBEDDING:
            return (width, spec.context)
        case Role.ROPE_FREQS | Role.ROPE_FACTORS_LONG | Role.ROPE_FACTORS_SHORT:
            return ((attention.rope.dims if attention.rope else head_dim) // 2,)
        case Role.ATTN_Q:
            return (width, queries)
        case Role.ATTN_K | Role.ATTN_V:
            return (width, keys)
        case Role.ATTN_QKV:
            return (width, queries + 2 * keys)
        case Role.ATTN_Q_NORM | Role.ATTN_K_NORM:
            return (head_dim,)
        case Role.ATTN_OUTPUT:
            return (queries, width)
        case Role.FFN_GATE | Role.FFN_UP:
            return (width, ff_width)
        case Role.FFN_DOWN:
            return (ff_width, width)
        case Role.EXPERT_ROUTER:
            return (width, experts)
        case Role.EXPERT_GATE | Role.EXPERT_UP:
            return (width, ff_width, experts)
        case Role.EXPERT_DOWN:
            return (ff_width, width, experts)
        case _:  # the norms of rows
            return (width,)


def shape_reasons(
    spec: ModelSpec, weights: Mapping[tuple[Role, int], TensorInfo], biases: Mapping[tuple[Role, int], TensorInfo]
) -> Iterable[str]:
    """A reason for each tensor whose shape does not follow from the spec; a bias has one element a row of its weight."""
    for (role, layer), info in weights.items():
        yield from _differs(info, expected_shape(spec, role, layer))
    for (role, layer), info in biases.items():
        yield from _differs(info, expected_shape(spec, role, layer)[-1:])


def _differs(info: TensorInfo, expected: tuple[int, ...]) -> Iterable[str]:
    # Writers may drop or keep trailing dimensions of 1.
    if _trimmed(info.shape) != _trimmed(expected):
        yield f"tensor {info.name}: expected shape {list(expected)}, found {list(info.shape)}"


def _trimmed(shape: tuple[int, ...]) -> tuple[int, ...]:
    while len(shape) > 1 and shape[-1] == 1:
        shape = shape[:-1]
    return shape
