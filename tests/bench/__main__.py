"""``python -m tests.bench``: how fast the engine is here, beside llama.cpp on the same files, in one run.

    --llama DIR             the peer: a folder with llama-bench, llama-batched-bench and llama-mtmd-cli, or
    --llama-python PYTHON   a Python that has the llama-cpp-python package, built for this machine
    --only SECTIONS         some of: startup, kernels, prefill, decode_short, decode_long, vision, a4, job, job_f16,
                            growth
    --quick                 fewer rounds, a job of 3 pages with 200 tokens each
    --json FILE             the figures, for machines; sections measured later join those that are there
    --models DIR            keep the random models there (default: a temporary folder)
    --text, --mmproj FILE   real models instead of random ones
    --small                 a model of an eighth of the size, to try the bench itself
    --threads N             of both engines (default: one a core)

Within a section ours and the peer take turns, in processes of their own, and a figure is the median of the rounds: compare
ratios within one run, never figures of two.  The peer gets its best setting for each figure.  See README.md in this folder.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from pagemill.decoder.kernels.isa import detect
from pagemill.decoder.kernels.team import available_cores
from tests.bench.models import TextShape, VisionShape, write_text_model, write_vision_model
from tests.bench.report import Report
from tests.bench.sections import SECTIONS, Bench
from tests.bench.workers import WorkerFailed

SMALL_TEXT = TextShape(layers=4, width=512, heads=8, kv_heads=4, head_dim=64, ff_width=1536, vocab=4096)
SMALL_VISION = VisionShape(layers=4, width=256, heads=4, ff_width=768, out_width=512)
SECTION_SECONDS = 280.0
BUSY_LOAD = 0.7


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="how fast the engine is here, beside llama.cpp")
    peer = parser.add_mutually_exclusive_group()
    peer.add_argument("--llama", type=Path, help="a folder of llama.cpp's programs")
    peer.add_argument("--llama-python", help="a Python that has the llama-cpp-python package")
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, separated by commas")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, a shorter job")
    parser.add_argument("--json", type=Path, help="write the figures to this file, beside those that it has")
    parser.add_argument("--models", type=Path, help="keep the random models in this folder")
    parser.add_argument("--text", type=Path, help="a text model instead of the random one")
    parser.add_argument("--mmproj", type=Path, help="an encoder instead of the random one")
    parser.add_argument("--small", action="store_true", help="a small model, to try the bench itself")
    parser.add_argument("--threads", type=int, default=available_cores())
    parsed = parser.parse_args()
    unknown = set(parsed.only.split(",")) - set(SECTIONS)
    if unknown:
        parser.error(f"--only: expected some of {', '.join(SECTIONS)}, found {', '.join(sorted(unknown))}")
    return parsed


def peer_command(chosen: argparse.Namespace) -> tuple[str, ...] | None:
    """How to start the other engine's worker, if there is one."""
    if chosen.llama:
        return sys.executable, "-m", "tests.bench.llama_programs", str(chosen.llama.resolve())
    return (chosen.llama_python, "-m", "tests.bench.llama_library") if chosen.llama_python else None


def model_files(chosen: argparse.Namespace, folder: Path) -> tuple[Path, Path]:
    """The files to measure with; random ones are written where they are missing."""
    folder.mkdir(parents=True, exist_ok=True)
    kind = "small-" if chosen.small else ""
    text, mmproj = chosen.text or folder / f"{kind}text.gguf", chosen.mmproj or folder / f"{kind}mmproj.gguf"
    if not text.exists():
        write_text_model(text, SMALL_TEXT if chosen.small else TextShape())
    if not mmproj.exists():
        write_vision_model(mmproj, SMALL_VISION if chosen.small else VisionShape())
    return text, mmproj


def main() -> None:
    """Measure section by section; print and write after each, so that an interrupted run loses one at most."""
    chosen, console = options(), Console()
    with tempfile.TemporaryDirectory() as temporary:
        text, mmproj = model_files(chosen, chosen.models or Path(temporary))
        bench = Bench(
            text=str(text.resolve()),
            mmproj=str(mmproj.resolve()),
            precision="bf16" if detect().bf16 else "f32",
            threads=chosen.threads,
            peer=peer_command(chosen),
            quick=chosen.quick,
            limit_seconds=SECTION_SECONDS,
            log=Path(temporary) / "workers.log",
            say=lambda line: console.print(line, highlight=False, markup=False),
        )
        if os.getloadavg()[0] > BUSY_LOAD:
            bench.say(f"other work keeps this machine busy (load {os.getloadavg()[0]:.1f}): figures will be off, ratios too")
        report = Report.open(chosen.json, bench)
        for name in chosen.only.split(","):
            began = time.monotonic()
            try:
                report.add(name, SECTIONS[name](bench))
            except WorkerFailed as error:
                console.print(f"{name}: {error}", markup=False)
                console.print(bench.log.read_text(errors="replace")[-3000:], markup=False)
            console.print(f"{name}: {time.monotonic() - began:.0f} s", highlight=False)
            report.write()
    report.show(console)


if __name__ == "__main__":
    main()
