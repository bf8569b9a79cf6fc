"""``python -m tests.bench``: how fast the engine is here, on random models of a real shape.

    --small        a model of an eighth of the size, to try the bench itself
    --models DIR   keep the random models there (default: a temporary folder)
    --json FILE    the figures, for machines
    --threads N

Figures are medians of a few runs on whatever else this machine does meanwhile: compare ratios within one run, never figures of
two runs.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from decoder.batch import Prompt, Request, Segment, Tokens
from decoder.engine import Engine
from decoder.kernels.isa import detect
from decoder.kernels.team import Team, available_cores
from decoder.kv_cache import KvCache
from decoder.kv_codec import codec_named
from decoder.model import Model, open_model
from decoder.transformer import Forward
from tests.bench.models import TextShape, VisionShape, write_text_model, write_vision_model
from vision.encoder import open_encoder
from vision.patches import to_patches

SMALL_TEXT = TextShape(layers=4, width=512, heads=8, kv_heads=4, head_dim=64, ff_width=1536, vocab=4096)
SMALL_VISION = VisionShape(layers=4, width=256, heads=4, ff_width=768, out_width=512)
CONTEXTS = (16, 1400)
BATCHES = (1, 16, 32)
PAGE_PX = 1036


def prefill_rate(model: Model, tokens: int, threads: int) -> float:
    """Prompt tokens per second of one sequence."""
    engine = Engine(model, slots=1, context=tokens + 16, threads=threads)
    seconds = median(lambda: engine.generate(_request(tokens, 1)), 3)
    engine.close()
    return tokens / seconds


def decode_rate(model: Model, batch: int, context: int, threads: int) -> float:
    """New tokens per second of all sequences together, each with ``context`` positions in its cache.

    The cache is zeros: what attention reads counts, not what it finds.
    """
    team = Team(threads)
    cache = KvCache(model.spec, codec_named("f16"), batch, context + 64)
    for slot in range(batch):
        cache.clear(slot)
    forward = Forward(model.spec, model.weights, cache, team, model.isa, rows=batch, outputs=batch, exact=False)
    row = model.embed((300,))
    segments = [Segment(slot, context, row, decoding=True, outputs=1) for slot in range(batch)]
    seconds = median(lambda: forward.run(segments), 9)
    team.close()
    return batch / seconds


def vision_seconds(path: Path, precision: str, side_px: int, threads: int) -> float:
    """Seconds for one square page through the encoder."""
    encoder = open_encoder(path, precision=precision, threads=threads)  # type: ignore[arg-type]
    pixels = np.random.default_rng(0).standard_normal((3, side_px, side_px), np.float32)
    patches = to_patches(pixels, encoder.spec)
    small = to_patches(pixels[:, :280, :280], encoder.spec)
    encoder.encode(small)
    seconds = timed(lambda: encoder.encode(patches))
    encoder.close()
    return seconds


def median(action: Callable[[], object], runs: int) -> float:
    """Median seconds, after one run that does not count."""
    action()
    return statistics.median(timed(action) for _ in range(runs))


def timed(action: Callable[[], object]) -> float:
    """Seconds of one call."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _request(tokens: int, answer: int) -> Request:
    return Request(Prompt((Tokens(tuple(300 + i % 1000 for i in range(tokens))),)), answer)


def measure(folder: Path, small: bool, threads: int, console: Console) -> dict[str, float]:
    """All figures by name."""
    text = write_text_model(folder / "text.gguf", SMALL_TEXT if small else TextShape())
    mmproj = write_vision_model(folder / "mmproj.gguf", SMALL_VISION if small else VisionShape())
    figures: dict[str, float] = {}
    started = time.perf_counter()
    model = open_model(text)
    figures["open_text_seconds"] = time.perf_counter() - started
    with console.status("measuring"):
        for tokens in (512, 1400):
            figures[f"prefill_{tokens}_tokens_per_second"] = prefill_rate(model, tokens, threads)
        for context in CONTEXTS:
            for batch in BATCHES:
                figures[f"decode_b{batch}_{context}_tokens_per_second"] = decode_rate(model, batch, context, threads)
        precision = "bf16" if detect().bf16 else "f32"
        figures[f"vision_{PAGE_PX}_{precision}_seconds"] = vision_seconds(mmproj, precision, PAGE_PX, threads)
    _add_page_estimate(figures, precision)
    return figures


def _add_page_estimate(figures: dict[str, float], precision: str) -> None:
    """A page of 1369 image tokens and 800 answered ones, decoded 16 together: seconds of each stage and in all."""
    vision = figures[f"vision_{PAGE_PX}_{precision}_seconds"]
    prefill = 1369 / figures["prefill_1400_tokens_per_second"]
    decode = 800 / figures["decode_b16_1400_tokens_per_second"]
    figures |= {"page_vision_seconds": vision, "page_prefill_seconds": prefill, "page_decode_seconds": decode}
    figures["page_seconds"] = vision + prefill + decode


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description="how fast the engine is here")
    parser.add_argument("--small", action="store_true", help="a small model, to try the bench itself")
    parser.add_argument("--models", type=Path, help="keep the random models in this folder")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--threads", type=int, default=available_cores())
    options = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.models or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        figures = measure(folder, options.small, options.threads, console)
    table = Table(title=f"{platform.processor() or platform.machine()}, {detect().name}, {options.threads} threads")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for name, value in figures.items():
        table.add_row(name.replace("_", " "), f"{value:,.2f}")
    console.print(table)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
