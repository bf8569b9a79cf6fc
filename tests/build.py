"""Builds the bytes of GGUF files for tests: small valid ones, and broken ones by changing a valid one's parts.

``gguf_bytes`` writes exactly what it is given and checks nothing, so that it can write nonsense too.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from pagemill.decoder.gguf.parse import TYPES

TYPE_IDS = {name: type_id for type_id, (name, _, _) in TYPES.items()}
U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
_LAYOUTS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}


class Typed(NamedTuple):
    """A metadata value with an explicit type; for ARRAY, value is (element type, items)."""

    kind: int
    value: object


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor to write.  shape in file order; data None: zeros of the right size; offset None: after the one before."""

    shape: tuple[int, ...]
    type_id: int = 0
    data: bytes | None = None
    offset: int | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of data, 0 for an unknown type."""
        if self.data is not None:
            return len(self.data)
        _, block, block_bytes = TYPES.get(self.type_id, ("", 1, 0))
        return int(np.prod(self.shape, dtype=np.int64)) // block * block_bytes


@dataclass(slots=True)
class Parts:
    """A file's metadata and tensors by name, both to be changed at will."""

    metadata: dict[str, object] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def bytes(self) -> bytes:
        """The file."""
        return gguf_bytes(self.metadata, list(self.tensors.items()))


def gguf_bytes(
    metadata: Mapping[str, object] | Sequence[tuple[str, object]] = (),
    tensors: Sequence[tuple[str, Tensor]] = (),
    *,
    version: int = 3,
    alignment: int = 32,
    tensor_count: int | None = None,
    pair_count: int | None = None,
    with_data: bool = True,
) -> bytes:
    """A GGUF file.  Sequences may repeat names; the counts may lie; alignment is the real one, whatever the metadata say."""
    pairs = list(metadata.items()) if isinstance(metadata, Mapping) else list(metadata)
    head = bytearray(b"GGUF")
    head += struct.pack("<I", version)
    head += struct.pack("<Q", len(tensors) if tensor_count is None else tensor_count)
    head += struct.pack("<Q", len(pairs) if pair_count is None else pair_count)
    for key, value in pairs:
        head += _string(key) + _value(value)
    body = bytearray()
    for name, tensor in tensors:
        body += bytes(-len(body) % alignment)
        offset = len(body) if tensor.offset is None else tensor.offset
        head += _string(name) + struct.pack("<I", len(tensor.shape))
        head += b"".join(struct.pack("<Q", length % (1 << 64)) for length in tensor.shape)
        head += struct.pack("<IQ", tensor.type_id, offset)
        body += bytes(tensor.size_bytes) if tensor.data is None else tensor.data
    if not with_data:
        return bytes(head)
    return bytes(head) + bytes(-len(head) % alignment) + bytes(body)


@dataclass(frozen=True, slots=True)
class Tiny:
    """Sizes of a small text model.  F32 weights are random, those of another ``type_name`` zeros."""

    layers: int = 2
    width: int = 64
    ff_width: int = 96
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    vocab: int = 48
    context: int = 128
    type_name: str = "F32"


def tiny_parts(architecture: str = "qwen3", **sizes: Any) -> Parts:
    """A text model that the engine accepts: qwen3, qwen2 or llama, tied output.  sizes: fields of ``Tiny``."""
    tiny = Tiny(**sizes)
    rng = np.random.default_rng(0)
    shapes = _tiny_shapes(architecture, tiny)
    return Parts(_tiny_metadata(architecture, tiny), {name: _tiny_tensor(shape, tiny, rng) for name, shape in shapes.items()})


def _tiny_metadata(architecture: str, tiny: Tiny) -> dict[str, object]:
    facts = {
        "block_count": tiny.layers,
        "context_length": tiny.context,
        "embedding_length": tiny.width,
        "feed_forward_length": tiny.ff_width,
        "attention.head_count": tiny.heads,
        "attention.head_count_kv": tiny.kv_heads,
        "attention.key_length": tiny.head_dim,
        "attention.value_length": tiny.head_dim,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 10000.0,
    }
    return {
        "general.architecture": architecture,
        "general.name": "tiny",
        **{f"{architecture}.{name}": value for name, value in facts.items()},
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": [chr(33 + index) for index in range(tiny.vocab)],
        "tokenizer.ggml.token_type": Typed(ARRAY, (I32, [1] * tiny.vocab)),
        "tokenizer.ggml.merges": Typed(ARRAY, (STRING, [])),
        "tokenizer.ggml.eos_token_id": tiny.vocab - 1,
    }


def _tiny_shapes(architecture: str, tiny: Tiny) -> dict[str, tuple[int, ...]]:
    """Every tensor's shape in file order."""
    width, queries, keys = tiny.width, tiny.heads * tiny.head_dim, tiny.kv_heads * tiny.head_dim
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (width, tiny.vocab)}
    for block in (f"blk.{layer}." for layer in range(tiny.layers)):
        shapes[block + "attn_norm.weight"] = (width,)
        for name, rows in (("q", queries), ("k", keys), ("v", keys)):
            shapes[f"{block}attn_{name}.weight"] = (width, rows)
            if architecture == "qwen2":
                shapes[f"{block}attn_{name}.bias"] = (rows,)
            if architecture == "qwen3" and name != "v":
                shapes[f"{block}attn_{name}_norm.weight"] = (tiny.head_dim,)
        shapes[block + "attn_output.weight"] = (queries, width)
        shapes[block + "ffn_norm.weight"] = (width,)
        shapes |= {f"{block}ffn_{name}.weight": (width, tiny.ff_width) for name in ("gate", "up")}
        shapes[block + "ffn_down.weight"] = (tiny.ff_width, width)
    return {**shapes, "output_norm.weight": (width,)}


def _tiny_tensor(shape: tuple[int, ...], tiny: Tiny, rng: np.random.Generator) -> Tensor:
    if len(shape) == 1:
        return Tensor(shape, 0, np.ones(shape, np.float32).tobytes())
    type_id = TYPE_IDS[tiny.type_name]
    if type_id:
        return Tensor(shape, type_id)
    return Tensor(shape, 0, (rng.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[0]))).tobytes())


def _string(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(raw)) + raw


def _value(value: object) -> bytes:
    """A value with its type; Python types are written as the converter would: u32, f32, bool, string, arrays of them."""
    typed = value if isinstance(value, Typed) else _typed(value)
    return struct.pack("<I", typed.kind) + _payload(typed.kind, typed.value)


def _typed(value: object) -> Typed:
    match value:
        case bool():
            return Typed(BOOL, value)
        case int():
            return Typed(U32 if value >= 0 else I32, value)
        case float():
            return Typed(F32, value)
        case str():
            return Typed(STRING, value)
        case list():
            kinds = {_typed(item).kind for item in value}
            return Typed(ARRAY, (kinds.pop() if len(kinds) == 1 else STRING, value))
    raise TypeError(f"no GGUF type for {value!r}")


def _payload(kind: int, value: object) -> bytes:
    if kind == STRING:
        assert isinstance(value, str)
        return _string(value)
    if kind == ARRAY:
        assert isinstance(value, tuple)
        element, items = value
        head = struct.pack("<IQ", element, len(items))
        return head + b"".join(_payload(element, item.value if isinstance(item, Typed) else item) for item in items)
    return struct.pack("<" + _LAYOUTS[kind], value)
