"""llama.cpp's own programs as a worker of the bench: ``python -m tests.bench.llama_programs DIR``.

DIR holds llama-bench, llama-batched-bench and llama-mtmd-cli.  Each answer is a program's run, models and contexts included in
its time but not in its figure.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from tests.bench.serve import Answer, Sequences, Switches, serve

PROGRAMS = ("llama-bench", "llama-batched-bench", "llama-mtmd-cli")
STEP_ROOM = 64
ENCODED = re.compile(r"(?:slice encoded|mtmd batch encoding done) in (\d+) ms")  # older builds, newer builds
READ = re.compile(r"decoded \(batch \d+/\d+\) in (\d+) ms")
DECODED = re.compile(r"\beval time =\s*([\d.]+) ms /\s*(\d+) runs")


class Programs:
    """Raises FileNotFoundError for a program that is not there."""

    def __init__(self, folder: Path) -> None:
        missing = [name for name in PROGRAMS if not (folder / name).exists()]
        if missing:
            raise FileNotFoundError(f"{folder} has no {', '.join(missing)}")
        self._folder = folder

    def facts(self) -> Answer:
        """Which build this is."""
        return {"version": self._run("llama-mtmd-cli", "--version").strip()}

    def prefill(self, text: str, tokens: int, threads: int, switches: Switches) -> Answer:
        """Read a prompt."""
        options = ["-m", text, "-p", tokens, "-n", 0, "-r", 1, "-t", threads, "-fa", int(switches.flash), "-o", "jsonl"]
        said = self._run("llama-bench", *options, *([] if switches.repack else ["--repack", 0]))
        return {"seconds": json_lines(said)[0]["avg_ns"] / 1e9}

    def decode(self, text: str, sequences: Sequences, threads: int, steps: int, switches: Switches) -> Answer:
        """Mean step of sequences that share a prompt as long as their context, each with a copy of its own."""
        batch, context, kv_cache = sequences.batch, sequences.context, sequences.kv_cache
        positions = batch * (-(-(context + STEP_ROOM) // 256) * 256)
        options = ["-m", text, "-c", positions, "-b", 2048, "-ub", 512, "-t", threads, "-fa", "on" if switches.flash else "off"]
        options += ["-npp", context, "-ntg", steps, "-npl", batch, "-pps", "-ctk", kv_cache, "-ctv", kv_cache]
        said = self._run(
            "llama-batched-bench", *options, "--output-format", "jsonl", *([] if switches.repack else ["--no-repack"])
        )
        return {"seconds": json_lines(said)[0]["t_tg"] / steps}

    def vision(self, text: str, mmproj: str, width: int, height: int, max_tokens: int, threads: int) -> Answer:
        """One page of noise through the encoder, with flash attention, its best setting."""
        return self._page(text, mmproj, (width, height), max_tokens, 1, threads, flash=True) | {"tokens": max_tokens}

    def page(self, text: str, mmproj: str, side: int, max_tokens: int, answer: int, threads: int, flash: bool) -> Answer:
        """A page from pixels to its last token: encoded with flash attention, read and decoded with or without.

        The program has one switch for both, so a page without is two runs: the encoder's figure of one, the rest of another.
        """
        page = self._page(text, mmproj, (side, side), max_tokens, answer, threads, flash=flash)
        if not flash:
            page["encode"] = self._page(text, mmproj, (side, side), max_tokens, 1, threads, flash=True)["encode"]
        page["seconds"] = page["encode"] + page["read"] + page["decode"]
        return {**page, "tokens": max_tokens}

    def _page(
        self, text: str, mmproj: str, size: tuple[int, int], max_tokens: int, answer: int, threads: int, *, flash: bool
    ) -> Answer:
        with tempfile.TemporaryDirectory() as folder:
            image = Path(folder) / "page.png"
            pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), np.uint8)
            Image.fromarray(pixels).save(image)
            options = ["-m", text, "--mmproj", mmproj, "--image", image, "-p", "OCR", "-n", answer, "--ignore-eos", "--temp", 0]
            options += ["-t", threads, "-c", max_tokens + answer + STEP_ROOM, "-fa", "on" if flash else "off"]
            options += [
                "--image-max-tokens",
                max_tokens,
                "--no-mmproj-offload",
                "--chat-template",
                "chatml",
                "--perf",
                "--verbose",
            ]
            return page_figures(self._run("llama-mtmd-cli", *options))

    def _run(self, program: str, *options: object) -> str:
        """What the program says, both streams; RuntimeError where it fails."""
        done = subprocess.run(
            [self._folder / program, *map(str, options)], capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode:
            raise RuntimeError(f"{program} ended with {done.returncode}: {done.stderr[-500:]}")
        return done.stdout + "\n" + done.stderr


def json_lines(said: str) -> list[dict[str, float]]:
    """The lines that are JSON objects."""
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def page_figures(said: str) -> Answer:
    """Seconds of a page's stages, from what llama-mtmd-cli says."""
    encoded, read, decoded = ENCODED.findall(said), READ.findall(said), DECODED.findall(said)
    if not encoded or not read:
        raise RuntimeError(f"llama-mtmd-cli does not say how long the page took: {said[-500:]}")
    seconds = sum(int(value) for value in encoded) / 1e3
    decode = float(decoded[-1][0]) / 1e3 if decoded else 0.0
    return {"seconds": seconds, "encode": seconds, "read": sum(int(value) for value in read) / 1e3, "decode": decode}


def main() -> None:
    """Serve."""
    programs = Programs(Path(sys.argv[1]))
    serve({name: getattr(programs, name) for name in ("facts", "prefill", "decode", "vision", "page")})


if __name__ == "__main__":
    main()
