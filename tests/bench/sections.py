"""What the bench measures, section by section.  Ours and the peer's take turns within a section, round after round.

A section is a function of a ``Bench``; its figures are medians by name.  ``SECTIONS`` is the order in which they run.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.serve import Pages, Sequences, Switches
from tests.bench.workers import OURS, ROOT, Clock, Worker, WorkerFailed

Figures = dict[str, Any]
BATCHES = (1, 4, 8, 16, 32)
PAGE_PX, PAGE_TOKENS = 1036, 1369
A4_PX = (1092, 1540)
ANSWER_TOKENS = 800
PREFILL_SETTINGS = (Switches(repack=False, flash=True), Switches(repack=True, flash=True))
SHORT_SETTINGS = (Switches(repack=True, flash=True), Switches(repack=True, flash=False))
LONG_SETTINGS = (Switches(repack=True, flash=False),)


@dataclass
class Bench:
    """How to measure.  peer: the command of the other engine's worker, or None.  quick: fewer pages and rounds."""

    text: str
    mmproj: str
    precision: str
    threads: int
    peer: tuple[str, ...] | None
    quick: bool
    limit_seconds: float
    log: Path
    say: Callable[[str], None]
    figures: Figures = field(default_factory=dict)

    @contextmanager
    def workers(self) -> Iterator[tuple[Worker, Worker | None]]:
        """Ours and the peer's, fresh."""
        ours = Worker("ours", OURS, self.log)
        peer = Worker("llama.cpp", self.peer, self.log) if self.peer else None
        try:
            yield ours, peer
        finally:
            for worker in (ours, peer):
                if worker is not None:
                    worker.close()

    @property
    def rounds(self) -> int:
        """Rounds of a measurement, at most."""
        return 2 if self.quick else 5


Ask = Callable[[], float]


def in_turn(bench: Bench, clock: Clock, asks: Mapping[str, Ask | None], rounds: int | None = None) -> dict[str, float]:
    """Median seconds by name.  Rounds end early when the next would not fit into the section's time; there is always one."""
    seconds: dict[str, list[float]] = {}
    for number in range(rounds or bench.rounds):
        began = time.monotonic()
        for name, ask in asks.items():
            if ask is not None:
                try:
                    seconds.setdefault(name, []).append(ask())
                except WorkerFailed as error:
                    bench.say(f"  {error}")
        if number + 1 < (rounds or bench.rounds) and not clock.has(1.2 * (time.monotonic() - began)):
            break
    medians = {name: statistics.median(values) for name, values in seconds.items() if values}
    told = ", ".join(f"{name} {value:.4g} s" for name, value in medians.items())
    bench.say(f"  {told} (of {max(map(len, seconds.values()), default=0)} rounds)")
    return medians


def best_of(bench: Bench, settings: Iterable[Switches], ask: Callable[[Switches], float]) -> Switches:
    """The peer's fastest setting, each tried once."""
    tried = list(settings)
    if len(tried) == 1:
        return tried[0]
    seconds = {}
    for number, one in enumerate(tried):
        try:
            seconds[number] = ask(one)
        except WorkerFailed as error:
            bench.say(f"  {error}")
    best = tried[min(seconds, key=seconds.__getitem__)] if seconds else tried[0]
    bench.say(f"  llama.cpp: repack {best.repack}, flash {best.flash}")
    return best


def measure_prefill(bench: Bench) -> Figures:
    """Tokens per second of reading one prompt."""
    clock, figures = Clock(bench.limit_seconds), Figures()
    with bench.workers() as (ours, peer):
        for tokens in (512, 1400):
            bench.say(f"prefill of {tokens} tokens")
            common = {"text": bench.text, "tokens": tokens, "threads": bench.threads}

            def llama(switches: Switches, common: dict[str, Any] = common) -> float:
                assert peer is not None, "asked where there is a peer only"
                return float(peer.ask("prefill", switches=switches, **common)["seconds"])

            best = best_of(bench, PREFILL_SETTINGS, llama) if peer else None
            ours.ask("prefill", **common)
            if best:
                llama(best)
            medians = in_turn(
                bench,
                clock,
                {
                    "ours": lambda c=common: ours.ask("prefill", **c)["seconds"],  # type: ignore[misc]
                    "llama.cpp": (lambda b=best, f=llama: f(b)) if best else None,  # type: ignore[misc]
                },
            )
            figures[f"prefill_{tokens}"] = _rates(medians, tokens)
    return figures


def measure_decode_short(bench: Bench) -> Figures:
    """Tokens per second of all sequences together, 16 tokens of context."""
    return _measure_decode(bench, 16, SHORT_SETTINGS, steps=8)


def measure_decode_long(bench: Bench) -> Figures:
    """The same at 1400 tokens of context, where keys and values are most of what is read."""
    return _measure_decode(bench, 1400, LONG_SETTINGS, steps=3)


def _measure_decode(bench: Bench, context: int, settings: tuple[Switches, ...], steps: int) -> Figures:
    clock, figures = Clock(bench.limit_seconds), Figures()
    common = {"text": bench.text, "threads": bench.threads}
    with bench.workers() as (ours, peer):
        for batch in BATCHES:
            bench.say(f"decode, {batch} sequences at {context} tokens")

            def llama(switches: Switches, batch: int = batch) -> float:
                assert peer is not None, "asked where there is a peer only"
                held = Sequences(batch, context, "f16")
                return float(peer.ask("decode", sequences=held, switches=switches, steps=steps, **common)["seconds"])

            def mine(kv_cache: str, batch: int = batch) -> float:
                held = Sequences(batch, context, kv_cache)
                return float(ours.ask("decode", sequences=held, steps=4 * steps, **common)["seconds"])

            best = best_of(bench, settings, llama) if peer else None
            medians = in_turn(
                bench,
                clock,
                {
                    "f16": lambda f=mine: f("f16"),  # type: ignore[misc]
                    "q8_0": lambda f=mine: f("q8_0"),  # type: ignore[misc]
                    "llama.cpp": (lambda b=best, f=llama: f(b)) if best else None,  # type: ignore[misc]
                },
                rounds=2 if bench.quick or context > 100 else 3,
            )
            for kv_cache in ("f16", "q8_0"):
                pair = {"ours": medians[kv_cache]} if kv_cache in medians else {}
                pair |= {name: medians[name] for name in ("llama.cpp",) if name in medians}
                figures[f"decode_b{batch}_{context}_{kv_cache}"] = _rates(pair, batch)
    return figures


def measure_vision(bench: Bench) -> Figures:
    """Seconds for a square page of 1369 tokens."""
    return _measure_vision(bench, PAGE_PX, PAGE_PX, rounds=1 if bench.quick else 3)


def measure_a4(bench: Bench) -> Figures:
    """Seconds for an A4 page at 1540 pixels."""
    return _measure_vision(bench, *A4_PX, rounds=1)


def _measure_vision(bench: Bench, width: int, height: int, rounds: int) -> Figures:
    clock = Clock(bench.limit_seconds)
    precisions = [bench.precision, *([] if bench.quick else EXTRA_PRECISIONS)]
    bench.say(f"vision of {width} x {height} px")
    figures = Figures()
    with bench.workers() as (ours, peer):

        def mine(precision: str) -> float:
            common = {"mmproj": bench.mmproj, "precision": precision, "threads": bench.threads}
            ours.ask("load_vision", **common)
            ours.ask("vision", width=280, height=280, **common)
            return float(ours.ask("vision", width=width, height=height, **common)["seconds"])

        def llama() -> float:
            assert peer is not None, "asked where there is a peer only"
            most = width * height // 28**2
            common = {"text": bench.text, "mmproj": bench.mmproj, "max_tokens": most, "threads": bench.threads}
            answer = peer.ask("vision", width=width, height=height, **common)
            if answer["tokens"] != most:
                raise WorkerFailed(f"llama.cpp made {answer['tokens']} tokens of a page of {most}")
            return float(answer["seconds"])

        asks: dict[str, Ask | None] = {precision: lambda p=precision: mine(p) for precision in precisions}  # type: ignore[misc]
        medians = in_turn(bench, clock, {**asks, "llama.cpp": llama if peer else None}, rounds)
    for precision in precisions:
        if precision in medians:
            pair = {"ours": medians[precision]} | ({"llama.cpp": medians["llama.cpp"]} if "llama.cpp" in medians else {})
            name = f"vision_{width}" if width == height else "vision_a4"
            figures[f"{name}_{precision}"] = {**{who: 1 / value for who, value in pair.items()}, "unit": "pages/s"}
            figures[f"{name}_{precision}"] |= {f"{who} seconds": value for who, value in pair.items()}
    return figures


EXTRA_PRECISIONS = ["int8"]
"""Encoder precisions beside the default one."""


def measure_job(bench: Bench) -> Figures:
    """Pages per minute with keys and values in q8_0, from pixels to last token, with each of the encoder's precisions."""
    return _measure_job(bench, "q8_0", [bench.precision, *([] if bench.quick else EXTRA_PRECISIONS)])


def measure_job_f16(bench: Bench) -> Figures:
    """With keys and values in f16."""
    return _measure_job(bench, "f16", [bench.precision])


def _measure_job(bench: Bench, kv_cache: str, precisions: list[str]) -> Figures:
    """12 pages of 1369 image tokens and 800 answered ones; the peer's page is measured before and after ours.

    llama.cpp does page after page: more in parallel gains it nothing, since its vision takes one page at a time and its decode
    of many long sequences is no faster in all than of one.  Its pages are all alike and cost the same, so two are measured.
    """
    pages, answer = (3, 200) if bench.quick else (12, ANSWER_TOKENS)
    bench.say(f"job of {pages} pages, {answer} tokens each, kv cache {kv_cache}")
    measured = _peer_page(bench, answer)
    jobs = {precision: _our_job(bench, precision, pages, answer, kv_cache) for precision in precisions}
    measured += _peer_page(bench, answer) if not bench.quick else []
    peer: dict[str, Any] = {}
    if measured:
        seconds = statistics.median(page["seconds"] for page in measured)
        peer = {"llama.cpp": 60 / seconds, "llama.cpp page seconds": seconds, "llama.cpp measured pages": len(measured)}
        peer |= {"llama.cpp peak GB": max(page["peak_bytes"] for page in measured) / 1e9}
    name = f"job_{pages}_pages_{kv_cache}"
    return {name if key == bench.precision else f"{name}_{key}": {**job, **peer} for key, job in jobs.items()}


def _our_job(bench: Bench, precision: str, pages: int, answer: int, kv_cache: str) -> dict[str, Any]:
    ours = Worker("ours", OURS, bench.log)
    common = {"text": bench.text, "mmproj": bench.mmproj, "threads": bench.threads}
    try:
        mine = ours.ask("job", precision=precision, pages=Pages(pages, PAGE_PX, answer, 16, kv_cache), **common)
    finally:
        ours.close()
    bench.say(f"  ours, encoder {precision}, {mine['seconds']:.1f} s, of which vision {mine['encode_seconds']:.1f} s")
    figure = {"ours": 60 * pages / mine["seconds"], "unit": "pages/min", "ours seconds": mine["seconds"]}
    figure |= {"ours vision seconds": mine["encode_seconds"], "ours page ends": mine["page_ends"]}
    return figure | {"ours peak GB": mine["peak_bytes"] / 1e9}


def _peer_page(bench: Bench, answer: int) -> list[dict[str, Any]]:
    """One page of the peer's, if there is one and it works."""
    if not bench.peer:
        return []
    peer = Worker("llama.cpp", bench.peer, bench.log)
    common = {"text": bench.text, "mmproj": bench.mmproj, "side": PAGE_PX, "threads": bench.threads}
    try:
        page = peer.ask("page", max_tokens=PAGE_TOKENS, answer=answer, flash=False, **common)
    except WorkerFailed as error:
        bench.say(f"  {error}")
        return []
    finally:
        peer.close()
    stages = ", ".join(f"{stage} {page[stage]:.1f} s" for stage in ("encode", "read", "decode"))
    bench.say(f"  llama.cpp {page['seconds']:.1f} s a page: {stages}")
    return [page]


def measure_startup(bench: Bench) -> Figures:
    """Seconds of a help text, of opening the models, and from the start of a warm run to its first and last page."""
    figures = Figures()
    environment = {**os.environ, "PAGEMILL_RUN__PROGRESS": "none"}
    help_ = [sys.executable, "-c", "import sys; sys.argv[1:] = ['--help']; from pagemill.jobs.cli.app import main; main()"]
    bench.say("start-up")
    for _ in range(2):
        figures["help_seconds"] = _command_seconds(help_, environment)
    with bench.workers() as (ours, peer):
        figures["open_text_seconds"] = ours.ask("load", text=bench.text)["seconds"]
        common = {"mmproj": bench.mmproj, "precision": bench.precision, "threads": bench.threads}
        figures["open_vision_seconds"] = ours.ask("load_vision", **common)["seconds"]
        if peer:
            try:
                figures["llama.cpp_open_text_seconds"] = peer.ask("load", text=bench.text, repack=True)["seconds"]
            except WorkerFailed:
                bench.say("  llama.cpp's programs do not say how long they take to open a model")
    with tempfile.TemporaryDirectory() as folder:
        run = [sys.executable, "-c", "from pagemill.jobs.cli.app import main; main()", "run", "samples/jobs/samples.yaml", "-o"]
        for number in range(2):
            figures["warm_sample_job_seconds"] = _command_seconds([*run, f"{folder}/{number}"], environment)
    bench.say("  " + ", ".join(f"{name.removesuffix('_seconds')} {value:.2f} s" for name, value in figures.items()))
    return figures


def _command_seconds(command: list[str], environment: dict[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
    return time.perf_counter() - began


def measure_kernels(bench: Bench) -> Figures:
    """The machine's peaks, and each kernel's share of the one that bounds it."""
    bench.say("peaks and kernels")
    with bench.workers() as (ours, _):
        peaks = ours.ask("peaks", threads=bench.threads)["peaks"]
        bench.say("  " + ", ".join(f"{name} {value / 1e9:.0f} G/s" for name, value in peaks.items()))
        return {"peaks": peaks, "shares": ours.ask("shares", threads=bench.threads, peaks=peaks)["shares"]}


def measure_growth(bench: Bench) -> Figures:
    """How cost grows: seconds against prompt length, batch, page size and threads, with least-squares fits."""
    from tests.bench.fits import fit, series

    figures = Figures()
    clock = Clock(bench.limit_seconds)
    with bench.workers() as (ours, _):
        bench.say("growth")
        for name, degree, points, ask in series(bench, ours):
            measured = []
            for x in points:
                if clock.has(10.0) or len(measured) <= degree:
                    ask(x)
                    measured.append((x, statistics.median(ask(x) for _ in range(3 if "page" not in name else 1))))
            figures[name] = {"points": measured, **fit(measured, degree)}
            bench.say(f"  {name}: {figures[name]['text']}")
    return figures


def _rates(medians: dict[str, float], work: float) -> Figures:
    return {**{name: work / seconds for name, seconds in medians.items()}, "unit": "tokens/s"}


SECTIONS: dict[str, Callable[[Bench], Figures]] = {
    "startup": measure_startup,
    "kernels": measure_kernels,
    "prefill": measure_prefill,
    "decode_short": measure_decode_short,
    "decode_long": measure_decode_long,
    "vision": measure_vision,
    "a4": measure_a4,
    "job": measure_job,
    "job_f16": measure_job_f16,
    "growth": measure_growth,
}
