"""The cache's addresses and sizes."""

from __future__ import annotations

import pytest

from pagemill.decoder.network.kv_cache import KvCache
from pagemill.decoder.network.kv_codec import CODECS, codec_named, round_capacity
from pagemill.decoder.spec import AttentionSpec

LAYERS = [AttentionSpec(8, 2, 64, 0.125), AttentionSpec(4, 4, 128, 0.1), AttentionSpec(8, 2, 64, 0.125)]


@pytest.mark.parametrize(("name", "per_value"), [("f32", 4), ("f16", 2), ("bf16", 2), ("int8_bf16", 2), ("q8_0", 1 + 2 / 32)])
def test_layers_lie_behind_each_other(name: str, per_value: float) -> None:
    cache = KvCache(LAYERS, CODECS[name], slots=2, capacity=300)
    values = [2 * layer.kv_heads * layer.head_dim for layer in LAYERS]
    assert cache.capacity == 512
    assert cache.position_bytes == sum(values) * per_value
    assert cache.slot_bytes == 512 * cache.position_bytes
    assert [cache.layer_offset(i) for i in range(3)] == [512 * per_value * sum(values[:i]) for i in range(3)]


def test_slots_come_into_being_on_first_use() -> None:
    cache = KvCache(LAYERS, CODECS["f16"], slots=3, capacity=256)
    assert cache.reserved_bytes == 0
    base = cache.base(1)
    assert base % 64 == 0
    assert cache.base(1) == base
    assert cache.reserved_bytes == cache.slot_bytes
    cache.release(1)
    assert cache.reserved_bytes == 0


def test_heads_that_a_codec_cannot_store_are_refused() -> None:
    layers = [AttentionSpec(1, 1, 24, 1.0), AttentionSpec(1, 1, 16, 1.0)]
    with pytest.raises(ValueError, match=r"multiples of 32, found 16.*multiples of 32, found 24"):
        KvCache(layers, CODECS["q8_0"], slots=1, capacity=1)
    with pytest.raises(ValueError, match="multiples of 32, found 16"):
        KvCache(layers[1:], CODECS["int8_bf16"], slots=1, capacity=1)
    for name in ("q4_0", "bf16"):
        with pytest.raises(ValueError, match=f"'{name}' is not one of f32, f16, q8_0"):
            codec_named(name)


@pytest.mark.parametrize(("positions", "capacity"), [(0, 256), (1, 256), (256, 256), (257, 512)])
def test_capacities_are_whole_blocks(positions: int, capacity: int) -> None:
    assert round_capacity(positions) == capacity


@pytest.mark.parametrize(("head_dim", "keys", "values"), [(32, 0, 0), (64, 64, 64), (96, 0, 0), (128, 128, 64), (192, 64, 64)])
def test_only_codes_are_rotated_by_the_largest_power_of_two_from_64(head_dim: int, keys: int, values: int) -> None:
    assert (CODECS["q8_0"].key_rotation(head_dim), CODECS["q8_0"].value_rotation(head_dim)) == (keys, values)
    assert (CODECS["f16"].key_rotation(head_dim), CODECS["f16"].value_rotation(head_dim)) == (0, 0)
