"""A recorded ROPE_STORE and ATTEND over one layer, for tests: rows in, attention out, and the cache read back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from pagemill.decoder.kernels.drivers.segments import BIDIRECTIONAL, DECODE_ROWS, PROMPT_CHUNK
from pagemill.decoder.kernels.drivers.step import ROWS, SEGMENTS
from pagemill.decoder.kernels.isa import Isa
from pagemill.decoder.kernels.memory import Array, aligned
from pagemill.decoder.kernels.ops import attention as ops_attention
from pagemill.decoder.kernels.ops.attention import CacheLayer, HeadNorms, StepTables
from pagemill.decoder.kernels.ops.attention import Heads as Heads_
from pagemill.decoder.kernels.program import Program
from pagemill.decoder.kernels.team import Team
from pagemill.decoder.kernels.tiles.softmax import FlashPrecision
from pagemill.decoder.network.kv_cache import KvCache
from pagemill.decoder.network.kv_codec import CODECS
from pagemill.decoder.spec import AttentionSpec, RopeSpec
from tests.decoder import reference_attention

KINDS = {"prompt": PROMPT_CHUNK, "decode": DECODE_ROWS, "patches": BIDIRECTIONAL}
LAYER = 1


@dataclass(frozen=True, slots=True)
class Heads:
    """Shape of an attention."""

    head_dim: int
    group: int
    kv_heads: int = 2

    @property
    def heads(self) -> int:
        return self.group * self.kv_heads

    @property
    def width(self) -> int:
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    def split(self, rows: Array) -> tuple[Array, Array, Array]:
        """q, k, v of qkv rows: (rows, heads, head_dim) each."""
        q, k, v = np.split(rows, [self.heads * self.head_dim, (self.heads + self.kv_heads) * self.head_dim], axis=1)
        return tuple(part.reshape(len(rows), -1, self.head_dim) for part in (q, k, v))  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Piece:
    """A segment: rows of one slot from a position on."""

    slot: int
    position: int
    rows: Array
    kind: Literal["prompt", "decode", "patches"] = "prompt"


@dataclass(slots=True)
class Layer:
    """The op pair under test.  rope: (cos, sin) per position, or none."""

    shape: Heads
    isa: Isa
    team: Team
    codec: str = "f32"
    precision: FlashPrecision = "f32"
    slots: int = 1
    capacity: int = 1024
    rows: int = 1024
    window: int = 0
    rope: tuple[Array, Array] | None = None
    pairing: Literal["adjacent", "halves"] = "halves"
    norms: tuple[Array, Array] | None = None
    cache: KvCache = field(init=False)
    qkv: Array = field(init=False)
    _out: Array = field(init=False)
    _tables: StepTables = field(init=False)
    _program: Program = field(init=False)

    def __post_init__(self) -> None:
        shape, codec = self.shape, CODECS[self.codec]
        rope = RopeSpec(1e4, 2 * self.rope[0].shape[1], self.pairing) if self.rope else None
        spec = AttentionSpec(shape.heads, shape.kv_heads, shape.head_dim, shape.head_dim**-0.5, self.window, rope=rope)
        self.cache = KvCache([spec] * 2, codec, self.slots, self.capacity)
        self.qkv, self._out = (aligned((self.rows, width), np.float32) for width in (shape.width, shape.heads * shape.head_dim))
        self._tables = StepTables.new(self.rows, 64, 2 * self.rope[0].shape[1] if self.rope else 0)
        program = self._program = Program(self.team, self.isa)
        keys = shape.heads * shape.head_dim
        columns = (0, keys, keys + shape.kv_heads * shape.head_dim)
        layer = CacheLayer(codec, self.cache.layer_offset(LAYER), self.cache.capacity)
        heads, norms = Heads_(self.qkv, columns, spec, layer), HeadNorms(*(self.norms or (None, None)), 1e-6)
        ops_attention.rope_store(program, heads, norms, self._tables)
        ops_attention.attend(program, heads, self._out, self._tables.segments, self.precision)

    def run(self, *pieces: Piece) -> list[Array]:
        """One step; the attention of each piece's rows."""
        tables, begin = self._tables, 0
        turns = [table for table in (tables.cos, tables.sin) if table is not None]
        for index, piece in enumerate(pieces):
            count, at = len(piece.rows), self.cache.base(piece.slot)
            rows, positions = slice(begin, begin + count), np.arange(piece.position, piece.position + count)
            self.qkv[rows], tables.position[rows], tables.base[rows] = piece.rows, positions, at
            for table, values in zip(turns, self.rope or (), strict=True):
                table[rows] = values[positions]
            tables.segments[index] = begin, count, piece.position, at, KINDS[piece.kind], piece.position + count, 0, 0
            begin += count
        self._program.step[[ROWS, SEGMENTS]] = begin, len(pieces)
        self._program.run()
        ends = np.cumsum([len(piece.rows) for piece in pieces])
        return [self._out[end - len(piece.rows) : end].copy() for end, piece in zip(ends, pieces, strict=True)]

    def stored(self, slot: int, count: int) -> tuple[Array, Array]:
        """The keys and values of ``count`` positions, read as ``kv_codec`` draws them: (count, kv_heads, head_dim) float32."""
        codec, d, capacity = self.cache.codec, self.shape.head_dim, self.cache.capacity
        memory = self.cache._buffers[slot]
        assert memory is not None
        regions = memory[self.cache.layer_offset(LAYER) :][: self.cache.slot_bytes // 2].reshape(self.shape.kv_heads, 2, -1)
        keys = np.stack([READ_KEYS[codec.name](region, d, capacity)[:count] for region in regions[:, 0]], 1)
        values = np.stack([READ_VALUES[codec.name](region, d, capacity)[:count] for region in regions[:, 1]], 1)
        return (
            reference_attention.rotate(keys, codec.key_rotation(d)),
            reference_attention.rotate(values, codec.value_rotation(d)),
        )


def _floats(region: Array, kind: str) -> Array:
    if kind == "bf16":
        return (region.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return region.view(np.dtype(kind)).astype(np.float32)


def _plain_keys(kind: str, pair: int = 1):  # type: ignore[no-untyped-def]
    return lambda region, d, capacity: (
        _floats(region, kind).reshape(capacity // 16, d // pair, 16, pair).transpose(0, 2, 1, 3).reshape(capacity, d)
    )


def _plain_values(kind: str, pair: int = 1):  # type: ignore[no-untyped-def]
    return lambda region, d, capacity: _floats(region, kind).reshape(-1, d, pair).transpose(0, 2, 1).reshape(capacity, d)


def _coded_keys(region: Array, d: int, capacity: int) -> Array:
    tiles = region.reshape(capacity // 16, -1)
    codes = tiles[:, : 16 * d].reshape(-1, d // 4, 16, 4).transpose(0, 1, 3, 2).reshape(-1, d // 32, 32, 16).astype(np.float32)
    scales = _floats(np.ascontiguousarray(tiles[:, 16 * d :]), "f2").reshape(-1, d // 32, 1, 16)
    return ((codes - 128) * scales).reshape(-1, d, 16).transpose(0, 2, 1).reshape(capacity, d)


def _coded_values(region: Array, d: int, capacity: int) -> Array:
    blocks = region.reshape(capacity // 256, d // 32, -1)
    scales = _floats(np.ascontiguousarray(blocks[..., :512]), "f2").reshape(-1, d // 32, 256, 1)
    codes = (
        blocks[..., 512:].view(np.int8).reshape(-1, d // 32, 64, 32, 4).transpose(0, 1, 2, 4, 3).reshape(-1, d // 32, 256, 32)
    )
    return (codes.astype(np.float32) * scales).transpose(0, 2, 1, 3).reshape(capacity, d)


def _byte_keys(region: Array, d: int, capacity: int) -> Array:
    blocks = region.reshape(capacity // 256, -1)[:, : 256 * (d + 4)]  # a block is as long as one of values
    tiles = blocks.reshape(capacity // 16, -1)
    codes = tiles[:, : 16 * d].reshape(-1, d // 4, 16, 4).transpose(0, 2, 1, 3).reshape(-1, 16, d).astype(np.float32)
    scales = np.ascontiguousarray(tiles[:, 16 * d :]).view(np.float32).reshape(-1, 16, 1)
    return ((codes - 128) * scales).reshape(capacity, d)


READ_KEYS = {
    "f32": _plain_keys("f4"),
    "f16": _plain_keys("f2"),
    "bf16": _plain_keys("bf16", 2),
    "int8_bf16": _byte_keys,
    "q8_0": _coded_keys,
}
READ_VALUES = {
    "f32": _plain_values("f4"),
    "f16": _plain_values("f2"),
    "bf16": _plain_values("bf16", 2),
    "int8_bf16": _plain_values("bf16", 2),
    "q8_0": _coded_values,
}
