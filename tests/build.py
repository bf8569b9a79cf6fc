"""Builds the bytes of GGUF files for tests: small valid ones, and broken ones by changing a valid one's parts.

``gguf_bytes`` writes exactly what it is given and checks nothing, so that it can write nonsense too.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from decoder.gguf import TYPES

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


def tiny_parts(
    architecture: str = "qwen3",
    *,
    layers: int = 2,
    width: int = 64,
    ff_width: int = 96,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 32,
    vocab: int = 48,
    context: int = 128,
    type_name: str = "F32",
    seed: int = 0,
) -> Parts:
    """A text model that the engine accepts: qwen3, qwen2 or llama, tied output.

    F32 weights are random, those of other formats zeros.
    """
    rng = np.random.default_rng(seed)
    queries, keys = heads * head_dim, kv_heads * head_dim
    parts = Parts(
        {
            "general.architecture": architecture,
            "general.name": "tiny",
            f"{architecture}.block_count": layers,
            f"{architecture}.context_length": context,
            f"{architecture}.embedding_length": width,
            f"{architecture}.feed_forward_length": ff_width,
            f"{architecture}.attention.head_count": heads,
            f"{architecture}.attention.head_count_kv": kv_heads,
            f"{architecture}.attention.key_length": head_dim,
            f"{architecture}.attention.value_length": head_dim,
            f"{architecture}.attention.layer_norm_rms_epsilon": 1e-6,
            f"{architecture}.rope.freq_base": 10000.0,
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "qwen2",
            "tokenizer.ggml.tokens": [chr(33 + index) for index in range(vocab)],
            "tokenizer.ggml.token_type": Typed(ARRAY, (I32, [1] * vocab)),
            "tokenizer.ggml.merges": Typed(ARRAY, (STRING, [])),
            "tokenizer.ggml.eos_token_id": vocab - 1,
        }
    )

    def add(name: str, *shape: int) -> None:
        type_id = TYPE_IDS[type_name] if len(shape) > 1 else 0
        data = None
        if type_id == 0:
            size = int(np.prod(shape))
            noise = rng.standard_normal(size, np.float32) / np.float32(np.sqrt(shape[0]))
            data = (noise if len(shape) > 1 else np.ones(size, np.float32)).tobytes()
        parts.tensors[name] = Tensor(shape, type_id, data)

    add("token_embd.weight", width, vocab)
    for layer in range(layers):
        block = f"blk.{layer}."
        add(block + "attn_norm.weight", width)
        for name, rows in (("q", queries), ("k", keys), ("v", keys)):
            add(f"{block}attn_{name}.weight", width, rows)
            if architecture == "qwen2":
                add(f"{block}attn_{name}.bias", rows)
        if architecture == "qwen3":
            add(block + "attn_q_norm.weight", head_dim)
            add(block + "attn_k_norm.weight", head_dim)
        add(block + "attn_output.weight", queries, width)
        add(block + "ffn_norm.weight", width)
        add(block + "ffn_gate.weight", width, ff_width)
        add(block + "ffn_up.weight", width, ff_width)
        add(block + "ffn_down.weight", ff_width, width)
    add("output_norm.weight", width)
    return parts


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
