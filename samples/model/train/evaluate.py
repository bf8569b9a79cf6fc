"""`python -m samples.model.train.evaluate WEIGHTS`: error rates on fixed pages, with text that was never trained on."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from rapidfuzz.distance import Levenshtein

from samples.model.train.checkpoint import load_weights, put_weights
from samples.model.train.held_out import held_out_pages
from samples.model.train.network import Network
from samples.model.train.sheet import Page
from samples.model.train.transcribe import transcribe

SETS = ("clean:112x336", "clean:168x336", "clean:448x448", "clean:644x448")
SLACK_TOKENS = 32  # beyond 1.5 times the longest truth, after which a text is a loop


@dataclass(frozen=True, slots=True)
class Score:
    """Character errors over a set: all errors over all characters, with a bootstrap interval over pages."""

    name: str
    cer: float
    low: float
    high: float
    median: float
    perfect: float
    pages: int
    characters: int
    seconds: float


def score(network: Network, name: str, pages: Sequence[Page], batch: int, show: int = 0) -> Score:
    """Read pages of one size, pages of like length together."""
    start, device = time.monotonic(), network.embed.weight.device
    ordered = sorted(pages, key=lambda page: len(page.text))
    errors, lengths = [], []
    for first in range(0, len(ordered), batch):
        part = ordered[first : first + batch]
        limit = len(part[-1].text) // 2 + SLACK_TOKENS  # 2.9 characters are a token
        pixels = torch.from_numpy(np.stack([page.pixels for page in part])).to(device)
        with torch.autocast(device.type, torch.bfloat16):
            texts = transcribe(network, pixels, limit)
        errors += [Levenshtein.distance(text, page.text) for text, page in zip(texts, part, strict=True)]
        lengths += [len(page.text) for page in part]
        for text, page in list(zip(texts, part, strict=True))[:show]:
            print(f"--- truth\n{page.text}\n--- read, {errors[-1]} errors in the batch's last\n{text}")
    low, high = interval(np.array(errors), np.array(lengths))
    rates = np.array(errors) / np.maximum(lengths, 1)
    perfect = float(np.mean(np.array(errors) == 0))
    return Score(
        name,
        sum(errors) / sum(lengths),
        low,
        high,
        float(np.median(rates)),
        perfect,
        len(pages),
        sum(lengths),
        time.monotonic() - start,
    )


def interval(errors: np.ndarray, lengths: np.ndarray) -> tuple[float, float]:
    """95 % of the rates of 1,000 sets drawn from the pages."""
    drawn = np.random.default_rng(0).integers(len(errors), size=(1000, len(errors)))
    rates = errors[drawn].sum(1) / lengths[drawn].sum(1)
    return float(np.quantile(rates, 0.025)), float(np.quantile(rates, 0.975))


def main() -> None:
    """Print a line per set, and with --log append it to a file as JSON."""
    parser = argparse.ArgumentParser(prog="python -m samples.model.train.evaluate", description=__doc__)
    parser.add_argument("weights", type=Path)
    parser.add_argument("--sets", nargs="+", default=SETS, help="recipe:HEIGHTxWIDTH ... (default: %(default)s)")
    parser.add_argument("--pages", type=int, default=64, help="of each set (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--corpus", type=Path, help="where the text is kept between runs")
    parser.add_argument("--show", type=int, default=0, help="texts to print of each batch")
    parser.add_argument("--log", type=Path, help="append each score to this file of JSON lines")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    weights, notes = load_weights(options.weights)
    network = Network().to(options.device)
    put_weights(network, weights)
    for name in options.sets:
        result = score(network, name, held_out_pages(name, options.pages, options.corpus), options.batch, options.show)
        print(
            f"{name:16} CER {result.cer:.4f} [{result.low:.4f}, {result.high:.4f}] median {result.median:.4f} "
            f"perfect {result.perfect:.2f} pages {result.pages} in {result.seconds:.0f} s",
            flush=True,
        )
        if options.log:
            with options.log.open("a") as file:
                file.write(json.dumps({"weights": str(options.weights), **notes, **asdict(result)}) + "\n")


if __name__ == "__main__":
    main()
