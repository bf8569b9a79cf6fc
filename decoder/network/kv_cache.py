"""The memory of cached keys and values: one buffer a slot, one slot a sequence.

A slot holds ``[layer][kv head][K region, V region]`` in the layout of its codec (``kv_codec``).  Buffers come into being on
first use and their pages when they are written, so a large capacity costs nothing until it is used.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pagemill.decoder.kernels.memory import Array, address, aligned
from pagemill.decoder.network.kv_codec import Codec, round_capacity
from pagemill.decoder.spec import AttentionSpec, ModelSpec


class KvCache:
    """``slots`` sequences of up to ``capacity`` positions.

    attention: a model's spec, or the shapes of its layers.  ``capacity`` is rounded up to whole blocks.
    Raises ValueError, naming every reason, where the codec cannot store a layer's heads.
    """

    def __init__(self, attention: ModelSpec | Sequence[AttentionSpec], codec: Codec, slots: int, capacity: int) -> None:
        layers = attention.attention if isinstance(attention, ModelSpec) else tuple(attention)
        reasons = {reason for layer in layers if (reason := codec.refusal(layer.head_dim)) is not None}
        if reasons:
            raise ValueError("; ".join(sorted(reasons)) + ": use kv cache f16")
        self.codec, self.slots, self.capacity = codec, slots, round_capacity(capacity)
        sizes = [layer.kv_heads * codec.head_bytes(layer.head_dim, self.capacity) for layer in layers]
        self._offsets = [sum(sizes[:index]) for index in range(len(sizes) + 1)]
        self._position_bytes = sum(codec.position_bytes(layer.kv_heads, layer.head_dim) for layer in layers)
        self._buffers: list[Array | None] = [None] * slots

    @property
    def slot_bytes(self) -> int:
        """Bytes of one slot at full capacity."""
        return self._offsets[-1]

    @property
    def position_bytes(self) -> int:
        """Bytes of one cached position, all layers."""
        return self._position_bytes

    @property
    def reserved_bytes(self) -> int:
        """Bytes of the slots in being: an upper bound of the memory in use."""
        return sum(buffer.nbytes for buffer in self._buffers if buffer is not None)

    def layer_offset(self, layer: int) -> int:
        """Where a layer begins, in bytes from the slot's base."""
        return self._offsets[layer]

    def base(self, slot: int) -> int:
        """Address of a slot; fixed until ``release``."""
        buffer = self._buffers[slot]
        if buffer is None:
            buffer = self._buffers[slot] = aligned(self.slot_bytes, np.uint8)
        return address(buffer)

    def clear(self, slot: int) -> None:
        """Zeros in every position of a slot, for measurements; a sequence never reads what it did not write."""
        buffer = self._buffers[slot] = aligned(self.slot_bytes, np.uint8)
        buffer.fill(0)

    def release(self, slot: int) -> None:
        """Give a slot's memory back; its base changes.  For sequences of the same size it is cheaper to keep it."""
        self._buffers[slot] = None
