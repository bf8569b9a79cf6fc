"""How much of the measured peak each kernel gets: single ops at the sizes that the models have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pagemill.decoder.formats import FORMATS
from pagemill.decoder.kernels.activations import new_activations
from pagemill.decoder.kernels.drivers.segments import BIDIRECTIONAL, DECODE_ROWS, PROMPT_CHUNK
from pagemill.decoder.kernels.drivers.step import ROWS, SEGMENTS
from pagemill.decoder.kernels.isa import Isa
from pagemill.decoder.kernels.memory import Array, aligned
from pagemill.decoder.kernels.ops.attention import CacheLayer, Heads, attend
from pagemill.decoder.kernels.ops.matmul import activation_kind, matmul
from pagemill.decoder.kernels.ops.rows import Source, prepare
from pagemill.decoder.kernels.program import Program
from pagemill.decoder.kernels.team import Team
from pagemill.decoder.network.kv_cache import KvCache
from pagemill.decoder.network.kv_codec import CODECS
from pagemill.decoder.network.recorder import new_rows
from pagemill.decoder.spec import AttentionSpec
from pagemill.decoder.weights.panels import Panels, repack
from tests.bench.serve import median, timed

QUANTIZED = ("Q4_K", "Q5_K", "Q6_K", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")
MATRIX = (3072, 1024)
"""Rows and width of the largest matrix of a layer of the 1B text model."""
VISION_ROWS = 5476
RUNS = 7


def shares(isa: Isa, threads: int, peaks: dict[str, float]) -> dict[str, dict[str, float]]:
    """By kernel: operations or bytes per second ("rate"), and the share of the peak that bounds it."""
    team = Team(threads)
    found: dict[str, dict[str, float]] = {}

    def add(name: str, rate: float, peak: str) -> None:
        found[name] = {"rate": rate, "share": rate / peaks[peak]} if peak in peaks else {"rate": rate}

    for format in QUANTIZED:
        for rows in (16, 32, 512):
            add(f"{format}, {rows} rows", _product_rate(team, isa, format, rows, *MATRIX), "int8")
    for rows, width in ((4096, 1024), (1024, 4096)):
        name = f"{rows} x {width}, {VISION_ROWS} rows"
        if isa.bf16:
            add(f"BF16, {name}", _product_rate(team, isa, "BF16", VISION_ROWS, rows, width, 3), "bf16")
    add(f"F32, 1024 x 1024, {VISION_ROWS} rows", _product_rate(team, isa, "F32", VISION_ROWS, 1024, 1024, 3), "f32")
    precision = "bf16" if isa.bf16 else "f32"
    page = AttentionSpec(16, 16, 64, 64**-0.5)
    text = AttentionSpec(16, 8, 128, 128**-0.5)
    codec = "bf16" if isa.bf16 else "f32"
    add(
        f"flash attention, page of {VISION_ROWS} patches",
        _flash_rate(team, isa, page, VISION_ROWS, codec, precision),
        precision,
    )
    add("flash attention, prompt of 1369", _flash_rate(team, isa, text, 1369, "f16", precision), precision)
    for kv_cache in ("f16", "q8_0"):
        for batch in (1, 16, 32):
            add(f"decode attention, {kv_cache}, {batch} x 1400", _decode_rate(team, isa, text, batch, kv_cache), "dram")
    team.close()
    return found


def _product_rate(team: Team, isa: Isa, format: str, rows: int, out_rows: int, width: int, runs: int = RUNS) -> float:
    """Operations per second of one product whose rows are packed; as many matrices as a layer's weights take turns."""
    panels = [_random_panels(format, out_rows, width, seed) for seed in range(1 if rows > 64 else 8)]
    x, out = new_rows(rows, width), new_rows(rows, out_rows)
    x[:, :width] = np.random.default_rng(0).standard_normal((rows, width), np.float32)
    acts = new_activations(activation_kind(format, isa), width, rows)
    pack, program = Program(team, isa), Program(team, isa)
    prepare(pack, Source("copy", x, width), acts)
    for one in panels:
        matmul(program, acts, one, out)
    pack.step[ROWS] = program.step[ROWS] = rows
    pack.run()
    return 2 * len(panels) * rows * out_rows * width / median(timed(program.run, runs))


def _random_panels(format: str, rows: int, width: int, seed: int) -> Panels:
    """Codes at random, scales of one: values do not matter to speed as long as they are numbers."""
    weights = FORMATS[format]
    raw = np.random.default_rng(seed).integers(0, 0x38, (rows, width // weights.block * weights.block_bytes), np.uint8)
    return repack(raw, format)


def _flash_rate(team: Team, isa: Isa, facts: AttentionSpec, rows: int, codec: str, precision: str) -> float:
    """Operations per second of prompt attention; half of them where a row sees only what is before it."""
    causal = facts.kv_heads != facts.heads
    cache = _cleared(KvCache([facts], CODECS[codec], 1, rows))
    program, segments = _attention(Program(team, isa), cache, [facts], rows, precision)
    segments[0, :6] = (0, rows, 0, cache.base(0), PROMPT_CHUNK if causal else BIDIRECTIONAL, rows)
    program.step[ROWS], program.step[SEGMENTS] = rows, 1
    work = 4 * facts.heads * facts.head_dim * rows * rows / (2 if causal else 1)
    return work / median(timed(program.run, 3))


def _decode_rate(team: Team, isa: Isa, facts: AttentionSpec, batch: int, codec: str, context: int = 1400) -> float:
    """Bytes of keys and values per second; the layers' caches take turns, so that nothing stays in a core's cache."""
    layers = 8 if batch == 1 else 1
    cache = _cleared(KvCache([facts] * layers, CODECS[codec], batch, context))
    program, segments = _attention(Program(team, isa), cache, [facts] * layers, batch, "f32")
    for slot in range(batch):
        segments[slot, :6] = (slot, 1, context - 1, cache.base(slot), DECODE_ROWS, context)
    program.step[ROWS], program.step[SEGMENTS] = batch, batch
    moved = layers * batch * context * CODECS[codec].position_bytes(facts.kv_heads, facts.head_dim)
    return moved / median(timed(program.run, RUNS))


def _cleared(cache: KvCache) -> KvCache:
    for slot in range(cache.slots):
        cache.clear(slot)
    return cache


def _attention(
    program: Program, cache: KvCache, layers: Sequence[AttentionSpec], rows: int, precision: str
) -> tuple[Program, Array]:
    """The program with an attention of so many rows over each layer of the cache, and its table of segments to fill in."""
    facts = layers[0]
    width = (facts.heads + 2 * facts.kv_heads) * facts.head_dim
    qkv, out = new_rows(rows, width), new_rows(rows, facts.heads * facts.head_dim)
    qkv[...] = np.random.default_rng(0).standard_normal(qkv.shape, np.float32)
    segments = aligned((cache.slots, 8), np.int64)
    segments.fill(0)
    for layer in range(len(layers)):
        heads = Heads(qkv, (0,), facts, CacheLayer(cache.codec, cache.layer_offset(layer), cache.capacity))
        attend(program, heads, out, segments, precision)  # type: ignore[arg-type]
    return program, segments
