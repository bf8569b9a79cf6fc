"""Attention and what stores its keys, against float64 softmax; and bits that must not depend on chunks, batches or threads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from pagemill.decoder.kernels import memory
from pagemill.decoder.kernels.compile import kernel_assembly
from pagemill.decoder.kernels.isa import AVX512, ISAS, NEON, Isa, detect
from pagemill.decoder.kernels.memory import Array, aligned_copy
from pagemill.decoder.kernels.ops import attention as ops_attention
from pagemill.decoder.kernels.program import Program
from pagemill.decoder.kernels.team import Team, available_cores
from pagemill.decoder.kernels.tiles import rope as tiles_rope
from pagemill.decoder.kernels.tiles.attention import Tile, emit_scores, emit_values
from pagemill.decoder.kernels.tiles.bytes import emit_byte_scores
from pagemill.decoder.kernels.tiles.coded import emit_coded_factors, emit_coded_scores, emit_coded_values
from pagemill.decoder.kernels.tiles.expand import emit_expand_values
from pagemill.decoder.kernels.tiles.softmax import FlashPrecision, emit_softmax
from pagemill.decoder.network.kv_codec import CODECS
from pagemill.decoder.spec import AttentionSpec
from tests.decoder import reference_attention
from tests.decoder.attention_layer import Heads, Layer, Piece

LENGTHS = (1, 2, 15, 16, 17, 63, 111, 255, 256, 257, 600)
SHAPES = [Heads(16, 1), Heads(32, 4), Heads(64, 7, 1), Heads(128, 2)]
HOST = detect()
RUNNABLE = [isa for isa in (HOST, *ISAS.values()) if not isa.triple and (isa is HOST or HOST.name.startswith("avx512"))]
VARIANTS = [isa for isa in RUNNABLE if isa.name in ("avx2", "portable") or isa is HOST]
STORED: list[tuple[str, FlashPrecision]] = [("f32", "f32"), ("f16", "f32"), ("q8_0", "f32")]
BF16: list[tuple[str, FlashPrecision]] = [("f16", "bf16"), ("f32", "bf16"), ("q8_0", "bf16")] if HOST.bf16 else []
ERROR = {"f32": 2e-6, "bf16": 1e-2, "coded": 2e-3}
"""Largest error over largest value.  f32: a few roundings of 600 products.  bf16: queries, keys, probabilities and values are
each rounded to 2^-9, and the errors of a row mostly average out.  coded (decode rows on 8-bit codes): probabilities are 16-bit
integers, 2^-16 of a row's largest; queries are 8-bit codes, of which one in a few hundred rounds the other way."""


@pytest.fixture(autouse=True)
def poison() -> Iterator[None]:
    """Every new buffer is full of NaN."""
    memory.poison_new_buffers(True)
    yield
    memory.poison_new_buffers(False)


@pytest.fixture(scope="module")
def team() -> Team:
    return Team(1)


def rows_of(shape: Heads, count: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((count, shape.width), np.float32)


def expected(layer: Layer, piece: Piece, keys: int) -> Array:
    """Float64 attention of the piece's queries over what the cache holds."""
    key, value = (part.astype(np.float64) for part in layer.stored(piece.slot, keys))
    query = layer.shape.split(piece.rows.astype(np.float64))[0]
    codec, head_dim = layer.cache.codec, layer.shape.head_dim
    if codec.byte_keys or (piece.kind == "decode" and codec.scale_bytes):
        size = codec.key_rotation(head_dim)
        codes = reference_attention.coded(reference_attention.rotate(query, size), head_dim if codec.byte_keys else 32)
        query = reference_attention.rotate(codes, size)
    seen = reference_attention.visible(
        len(piece.rows), piece.position, keys, causal=piece.kind != "patches", window=layer.window
    )
    out = reference_attention.attend(query, key, value, seen, layer.shape.head_dim**-0.5)
    return out.reshape(len(piece.rows), -1)


def error(found: Array, wanted: Array) -> float:
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"d{s.head_dim}x{s.group}")
@pytest.mark.parametrize(("codec", "precision"), STORED + BF16)
def test_ragged_prompts_equal_softmax_over_the_cache(shape: Heads, codec: str, precision: FlashPrecision, team: Team) -> None:
    if CODECS[codec].refusal(shape.head_dim):
        pytest.skip("q8_0 has scales of 32 values")
    layer = Layer(shape, HOST, team, codec, precision, slots=len(LENGTHS), rows=sum(LENGTHS))
    pieces = [Piece(slot, 0, rows_of(shape, length, slot)) for slot, length in enumerate(LENGTHS)]
    for piece, found in zip(pieces, layer.run(*pieces), strict=True):
        assert error(found, expected(layer, piece, len(piece.rows))) < ERROR[precision], len(piece.rows)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"d{s.head_dim}x{s.group}")
@pytest.mark.parametrize("codec", ["f32", "f16", "q8_0"])
def test_decode_rows_equal_softmax_over_the_cache(shape: Heads, codec: str, team: Team) -> None:
    if CODECS[codec].refusal(shape.head_dim):
        pytest.skip("q8_0 has scales of 32 values")
    layer = Layer(shape, HOST, team, codec, slots=len(LENGTHS), rows=sum(LENGTHS))
    all_rows = [rows_of(shape, length, slot) for slot, length in enumerate(LENGTHS)]
    layer.run(*[Piece(slot, 0, rows) for slot, rows in enumerate(all_rows)])
    pieces = [Piece(slot, len(rows) - 1, rows[-1:], "decode") for slot, rows in enumerate(all_rows)]
    for piece, found in zip(pieces, layer.run(*pieces), strict=True):
        assert error(found, expected(layer, piece, piece.position + 1)) < ERROR["coded" if codec == "q8_0" else "f32"], piece


PATCHES: list[tuple[str, FlashPrecision]] = [("bf16", "bf16"), ("int8_bf16", "bf16")] if HOST.bf16 else []


@pytest.mark.parametrize("head_dim", [32, 64, 128])
@pytest.mark.parametrize(("codec", "precision"), [("f32", "f32"), *PATCHES])
def test_patches_see_all_patches(codec: str, precision: FlashPrecision, head_dim: int, team: Team) -> None:
    shape = Heads(head_dim, 1, 3)
    layer = Layer(shape, HOST, team, codec, precision, slots=3, rows=1024)
    pieces = [Piece(slot, 0, rows_of(shape, length), "patches") for slot, length in enumerate((1, 111, 513))]
    for piece, found in zip(pieces, layer.run(*pieces), strict=True):
        assert error(found, expected(layer, piece, len(piece.rows))) < ERROR[precision], len(piece.rows)


@pytest.mark.parametrize("window", [1, 40, 300])
def test_windows_hide_old_keys(window: int, team: Team) -> None:
    shape = Heads(32, 2)
    layer = Layer(shape, HOST, team, window=window)
    piece = Piece(0, 0, rows_of(shape, 600))
    assert error(layer.run(piece)[0], expected(layer, piece, 600)) < ERROR["f32"]
    last = Piece(0, 599, piece.rows[599:], "decode")
    assert error(layer.run(last)[0], expected(layer, last, 600)) < ERROR["f32"]


@pytest.mark.parametrize("isa", VARIANTS, ids=lambda isa: isa.name)
def test_every_cpu_variant_equals_softmax(isa: Isa, team: Team) -> None:
    for codec in ("f32", "f16", "q8_0"):
        layer = Layer(Heads(64, 2), isa, team, codec, slots=2)
        prompt = Piece(0, 0, rows_of(layer.shape, 300))
        assert error(layer.run(prompt)[0], expected(layer, prompt, 300)) < ERROR["f32"]
        row = Piece(0, 299, prompt.rows[299:], "decode")
        assert error(layer.run(row)[0], expected(layer, row, 300)) < ERROR["coded" if codec == "q8_0" else "f32"]


@pytest.mark.parametrize(("codec", "precision"), [("f16", "f32"), *[pair for pair in BF16 if pair[0] != "f32"]])
def test_a_row_has_the_same_bits_however_the_prompt_is_cut(codec: str, precision: FlashPrecision, team: Team) -> None:
    shape = Heads(64, 2, 1)
    rows = rows_of(shape, 300)
    whole = Layer(shape, HOST, team, codec, precision).run(Piece(0, 0, rows))[0]
    for chunk in (1, 7, 64, 299):
        layer = Layer(shape, HOST, team, codec, precision)
        parts = [layer.run(Piece(0, begin, rows[begin : begin + chunk]))[0] for begin in range(0, len(rows), chunk)]
        assert np.array_equal(np.concatenate(parts), whole), chunk


@pytest.mark.parametrize("threads", [1, 2])
def test_a_row_has_the_same_bits_alone_and_in_a_batch(threads: int) -> None:
    if threads > available_cores():
        pytest.skip("one core")
    shape, precision = Heads(64, 2), "bf16" if HOST.bf16 else "f32"
    crowd, alone = (
        Layer(shape, HOST, Team(count), "f16", precision, slots=len(LENGTHS), rows=2 * sum(LENGTHS)) for count in (threads, 1)
    )
    all_rows = [rows_of(shape, length, slot) for slot, length in enumerate(LENGTHS)]
    prompts = [Piece(slot, 0, rows) for slot, rows in enumerate(all_rows)]
    decodes = [Piece(slot, len(rows), rows_of(shape, 1, 99), "decode") for slot, rows in enumerate(all_rows)]
    mixed = [*decodes[:5], *(Piece(slot, len(all_rows[slot]), rows_of(shape, 30, slot)) for slot in range(5, len(LENGTHS)))]
    for step in (prompts, mixed):
        together = crowd.run(*step)
        for piece, found in zip(step, together, strict=True):
            assert np.array_equal(alone.run(piece)[0], found), (piece.kind, len(piece.rows))


@pytest.mark.parametrize("pairing", ["adjacent", "halves"])
@pytest.mark.parametrize(("head_dim", "dims"), [(16, 16), (64, 64), (64, 24), (128, 128)])
def test_queries_and_keys_are_normed_and_turned(pairing, head_dim: int, dims: int, team: Team) -> None:  # type: ignore[no-untyped-def]
    shape, count = Heads(head_dim, 2), 21
    angles = np.random.default_rng(1).uniform(-9, 9, (count, dims // 2))
    rope = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    weights = np.random.default_rng(2).standard_normal((2, head_dim)).astype(np.float32)
    norms = aligned_copy(weights[0]), aligned_copy(weights[1])
    layer = Layer(shape, HOST, team, rope=rope, pairing=pairing, norms=norms)
    rows = rows_of(shape, count)
    layer.run(Piece(0, 0, rows))
    query, key, value = shape.split(rows)
    for found, heads, weight in (
        (shape.split(layer.qkv[:count])[0], query, norms[0]),
        (layer.stored(0, count)[0], key, norms[1]),
    ):
        wanted = reference_attention.rope(reference_attention.head_norm(heads, weight, 1e-6), *rope, pairing)
        assert error(found, wanted) < 1e-6
    assert np.array_equal(layer.stored(0, count)[1], value)


def test_float16_caches_hold_the_nearest_finite_number(team: Team) -> None:
    layer = Layer(Heads(32, 1), HOST, team, "f16")
    rows = rows_of(layer.shape, 20)
    rows[3, -1], rows[4, 32] = 1e6, -1e6
    layer.run(Piece(0, 0, rows))
    for found, given in zip(layer.stored(0, 20), layer.shape.split(rows)[1:], strict=True):
        assert np.array_equal(found, np.clip(given, -65504, 65504).astype(np.float16).astype(np.float32))


@pytest.mark.parametrize("head_dim", [32, 64, 96, 128, 256])
def test_8_bit_caches_are_within_half_a_step_of_the_rotated_numbers(head_dim: int, team: Team) -> None:
    layer = Layer(Heads(head_dim, 1), HOST, team, "q8_0")
    rows = rows_of(layer.shape, 40)
    layer.run(Piece(0, 0, rows))
    codec = CODECS["q8_0"]
    for found, given, rotation in zip(
        layer.stored(0, 40),
        layer.shape.split(rows)[1:],
        (codec.key_rotation(head_dim), codec.value_rotation(head_dim)),
        strict=True,
    ):
        found, given = (reference_attention.rotate(x, rotation).reshape(40, 2, -1, 32) for x in (found, given))
        step = np.abs(given).max(-1, keepdims=True) / 127
        assert (np.abs(found - given) <= step * (0.5 + 127 * 2.0**-11)).all()  # the scale itself is a float16


def test_keys_beyond_a_segment_never_count(team: Team) -> None:
    """A sequence that was cut back: what its slot held beyond is infinite."""
    shape = Heads(32, 1)
    layer = Layer(shape, HOST, team)
    rows = rows_of(shape, 40)
    alone = layer.run(Piece(0, 0, rows[:20]))[0]
    rows[20:, 64:] = np.inf
    layer.run(Piece(0, 20, rows[20:]))
    assert np.array_equal(layer.run(Piece(0, 0, rows[:20]))[0], alone)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"soft_cap": 50.0}, "soft cap"),
        ({"head_dim": 24}, "multiples of 16, found 24"),
        ({"precision": "bf16", "isa": ISAS["portable"]}, "no bf16 dot product"),
        ({"codec": CODECS["bf16"]}, "needs precision bf16"),
        ({"codec": CODECS["int8_bf16"], "head_dim": 64}, "needs precision bf16"),
    ],
)
def test_what_cannot_run_is_refused(change: dict[str, object], message: str, team: Team) -> None:
    program = Program(team, change.pop("isa", HOST))  # type: ignore[arg-type]
    rows, segments = memory.aligned((4, 64), np.float32), memory.aligned((4, 8), np.int64)
    precision, codec = change.pop("precision", "f32"), change.pop("codec", CODECS["f32"])
    facts = replace(AttentionSpec(2, 2, 16, 1.0), **change)  # type: ignore[arg-type]
    heads = ops_attention.Heads(rows, (0,), facts, ops_attention.CacheLayer(codec, 0, 256))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        ops_attention.attend(program, heads, rows, segments, precision)  # type: ignore[arg-type]


SCORES, VALUES = (7, emit_scores), (8, emit_values)
BYTE_SCORES = (7, emit_byte_scores)
CODED_SCORES, CODED_VALUES = (7, emit_coded_scores), (8, emit_coded_values)


def assembly(tile: Tile, kernel: tuple[int, Callable[..., None]], isa: Isa) -> str:
    return kernel_assembly("tile", kernel[0], lambda e, *args: kernel[1](tile, e, *args), isa)


@pytest.mark.parametrize(
    ("tile", "kernel", "products"),
    [
        *((Tile(stored, 2, 12), kernel, 8 * 24) for stored in ("f32", "f16", "bf16") for kernel in (SCORES, VALUES)),
        (Tile("f16", 1, 2, 4), SCORES, 8 * 2),
        (Tile("f16", 8, 2), VALUES, 8 * 16),
        (Tile("int8", 2, 12), BYTE_SCORES, 8 * 24),
        (Tile("q8_0", 1, 7), CODED_SCORES, 8 * 7),
        (Tile("q8_0", 2, 2), CODED_VALUES, 4 * 2 * 2 * 2),
    ],
    ids=lambda x: x.name if isinstance(x, Tile) else "",
)
def test_main_loops_keep_their_sums_in_registers(tile: Tile, kernel: tuple[int, Callable[..., None]], products: int) -> None:
    blocks = re.split(r"^\.L\w+:", assembly(tile, kernel, AVX512), flags=re.M)
    counts = [len(re.findall(r"vfmadd|vdpbf16|vpdpbusd", block)) for block in blocks]
    main = blocks[counts.index(max(counts))]
    assert max(counts) >= products
    assert not re.search(r"zmm.*rsp|rsp.*zmm", main)


@pytest.mark.parametrize(
    ("tile", "kernel", "product"),
    [
        (Tile("f16", 1, 4), SCORES, "fmla"),
        (Tile("f16", 1, 4), VALUES, "fmla"),
        (Tile("q8_0", 1, 2), CODED_SCORES, "sdot"),
        (Tile("q8_0", 2, 2), CODED_VALUES, "sdot"),
    ],
    ids=lambda x: x.name if isinstance(x, Tile) else "",
)
def test_the_tiles_of_arm_are_vector_code(tile: Tile, kernel: tuple[int, Callable[..., None]], product: str) -> None:
    text = assembly(tile, kernel, NEON)
    assert len(re.findall(product, text)) >= 8 * 2 * 4
    assert not re.search(r"\bbl\b", text), "a call of a library function"


@pytest.mark.parametrize("isa", [NEON, ISAS["avx2"]], ids=lambda isa: isa.name)
def test_the_row_kernels_of_other_cpus_call_no_library(isa: Isa) -> None:
    for count, emit in (
        (8, partial(emit_softmax, "f32", True)),
        (4, tiles_rope.STORE_KEYS["f16"]),
        (4, tiles_rope.STORE_VALUES["q8_0"]),
        (4, tiles_rope.emit_head_norm),
        (2, partial(tiles_rope.emit_rotate, 128)),
        (4, partial(emit_expand_values, "q8_0", "f32")),
        (4, partial(emit_coded_factors, 2)),
    ):
        assert not re.search(r"\b(bl|callq?)\s", kernel_assembly("rows", count, emit, isa))
