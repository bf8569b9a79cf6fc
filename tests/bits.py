"""What the engine computes, as fingerprints to the bit: recorded before a change of structure, compared after it.

python -m tests.bits record FILE     fingerprint of every output below
python -m tests.bits compare FILE    names every output that is no longer the same; exit status 1 if there is one

A recording is of one machine: CPU variants may differ in float32 results (see ``decoder.kernels.isa``).  The kernels
of the variants that this machine cannot run are compared by the hash of their IR.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pagemill.decoder.batch import Prompt, Request, Tokens
from pagemill.decoder.engine import Engine, logits
from pagemill.decoder.errors import ModelError
from pagemill.decoder.model import open_model
from pagemill.vision.encoder import open_encoder
from pagemill.vision.patches import prepare, to_patches
from pagemill.vision.protocol import Encoder
from pagemill.vision.segments import page_prompt
from tests.answers import ORACLES, ROOT
from tests.bench.models import TextShape, VisionShape, write_text_model, write_vision_model

CACHES = ("f32", "f16", "q8_0")
PAIR = ROOT / "samples" / "model"
SMALL_TEXT = TextShape(layers=3, width=512, heads=8, kv_heads=4, head_dim=64, ff_width=1024, vocab=4096)
SMALL_VISION = VisionShape(layers=3, width=512, heads=8, ff_width=1024, out_width=512)
"""The bench's random model at a size that takes seconds."""
TOKENS, ANSWER = 300, 40

Digests = Iterator[tuple[str, str]]


def main(arguments: list[str]) -> int:
    """Record or compare; returns the exit status."""
    match arguments:
        case ["record", path]:
            Path(path).write_text(json.dumps(dict(fingerprints()), indent=1), "utf-8")
            return 0
        case ["compare", path]:
            return _compare(json.loads(Path(path).read_text("utf-8")))
    print("expected: record FILE or compare FILE", file=sys.stderr)
    return 2


def fingerprints() -> Digests:
    """Name and fingerprint of every output."""
    yield from _oracles()
    yield from _pages(PAIR / "text-q8_0.gguf", PAIR / "mmproj-f16.gguf", sorted((ORACLES / "sample").glob("*.png")))
    yield from _random_model()
    yield from _samples_job()


def _compare(before: dict[str, str]) -> int:
    now = dict(fingerprints())
    changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    print(f"{len(before)} fingerprints, {len(changed)} changed", *changed, sep="\n", flush=True)
    return 1 if changed else 0


def _oracles() -> Digests:
    """Logits of every model of the oracles, read as a prompt and decoded, by every cache and precision; embedding rows."""
    for path in sorted(ORACLES.glob("*/*.gguf")):
        if path.parent.name == "vision":
            continue
        for exact in (False, True):
            for cache in CACHES:
                name = f"{path.parent.name}/{path.stem} {cache}{' exact' if exact else ''}"
                try:
                    model = open_model(path, kv_cache=cache, exact=exact)
                except ModelError as error:
                    yield name, type(error).__name__
                    continue
                tokens = np.random.default_rng(1).integers(0, model.spec.vocab, TOKENS)[: model.spec.context]
                yield name, _digest(logits(model, tokens, kv_cache=cache, decode_from=len(tokens) - ANSWER))
    for path in sorted((ORACLES / "vision").glob("tiny-mmproj-*.gguf")):
        yield from _embeddings(path, sorted((ORACLES / "vision").glob("page-*.png")))


def _embeddings(path: Path, images: list[Path]) -> Digests:
    for precision in ("f32", "int8"):
        try:
            encoder = open_encoder(path, precision=precision)
        except ModelError as error:
            yield f"{path.stem} {precision}", type(error).__name__
            continue
        for image in images:
            yield (
                f"{path.stem} {precision} {image.stem}",
                _digest(encoder.encode(to_patches(_pixels(image, encoder), encoder.spec))),
            )
        encoder.close()


def _pages(text: Path, mmproj: Path, images: list[Path]) -> Digests:
    """Tokens and log-probs of pages that are read together."""
    for precision in ("f32", "int8"):
        model, encoder = open_model(text), open_encoder(mmproj, precision=precision)
        engine = Engine(model, slots=8, context=2048)
        for image in images:
            rows = encoder.encode(to_patches(_pixels(image, encoder), encoder.spec))
            yield f"rows of {image.stem} {precision}", _digest(rows)
            engine.submit(
                Request(page_prompt(model.tokenizer, rows, ""), 128, stop_ids=model.tokenizer.eos_ids, key=image.stem)
            )
        answers: dict[object, list[tuple[int, float]]] = {}
        while not engine.idle:
            for event in engine.step():
                answers.setdefault(event.key, []).append((event.token, event.log_prob))
        yield from ((f"answer to {key} {precision}", _digest(np.array(answer))) for key, answer in answers.items())
        engine.close()
        encoder.close()


def _random_model() -> Digests:
    """The bench's random model: eight sequences together, and a page of noise."""
    with tempfile.TemporaryDirectory() as folder:
        text = write_text_model(Path(folder) / "text.gguf", SMALL_TEXT)
        mmproj = write_vision_model(Path(folder) / "mmproj.gguf", SMALL_VISION)
        for cache in CACHES:
            model = open_model(text, kv_cache=cache)
            engine = Engine(model, slots=8, context=1024, kv_cache=cache)
            rng = np.random.default_rng(2)
            for key in range(12):
                engine.submit(
                    Request(Prompt((Tokens(tuple(rng.integers(0, 4000, 100 + 50 * key).tolist())),)), ANSWER, key=key)
                )
            events = []
            while not engine.idle:
                events += engine.step()
            engine.close()
            yield f"random {cache}", _digest(np.array([(event.key, event.token, event.log_prob) for event in events]))
        for precision in ("f32", "int8"):
            encoder = open_encoder(mmproj, precision=precision)
            noise = np.random.default_rng(3).standard_normal((3, 448, 336), np.float32)
            yield f"random page {precision}", _digest(encoder.encode(to_patches(noise, encoder.spec)))
            encoder.close()


def _samples_job() -> Digests:
    """What the samples' job writes of every page: text, status, tokens, log-prob and confidences."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["run", "samples/jobs/samples.yaml", "-o", folder, "--progress", "none"]
        code = os.spawnl(os.P_WAIT, sys.executable, sys.executable, "-m", "pagemill", *command)
        yield "samples job", str(code)
        for path in sorted(Path(folder).glob("*.jsonl")):
            for line in path.read_text("utf-8").splitlines():
                page = json.loads(line)
                known = {key: page[key] for key in ("text", "status", "reason", "tokens", "mean_log_prob", "picture")}
                yield f"samples {page['document']} {page['page']}", hashlib.sha256(json.dumps(known).encode()).hexdigest()


def _pixels(image: Path, encoder: Encoder) -> NDArray[np.float32]:
    with Image.open(image) as opened:
        return prepare(opened, encoder.spec)


def _digest(values: NDArray[np.generic]) -> str:
    return hashlib.sha256(repr(values.shape).encode() + np.ascontiguousarray(values).tobytes()).hexdigest()[:32]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
