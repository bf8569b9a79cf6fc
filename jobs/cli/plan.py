"""``pagemill plan``: how a text model or a vision file would run, from its header."""

from __future__ import annotations

import sys
from pathlib import Path

from pagemill.decoder import bytes_text, describe, open_file
from pagemill.jobs.cli.options import KvCache, KvCacheType, ModelPath
from pagemill.jobs.models.memory import free_memory
from pagemill.jobs.models.planned import plan_encoder, plan_text

Rows = list[tuple[str, str]]


def command(model: ModelPath, kv_cache: KvCache = KvCacheType.F16) -> int:
    """``pagemill plan``."""
    header, _ = open_file(model)
    is_encoder = header.metadata.get("general.architecture") == "clip"
    rows = _encoder_rows(model) if is_encoder else _text_rows(model, kv_cache.value)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(_printable(f"{name:{width}}  {value}"))
    return 0


def _text_rows(path: Path, kv_cache: str) -> Rows:
    planned = plan_text(path, kv_cache)
    template = "usable" if planned.template else "none"
    rows = [*describe(planned.plan), ("chat template", template), *(("warning", one) for one in planned.warnings)]
    return rows + _memory_row(planned.plan.resident_bytes + planned.plan.cached_token_bytes)


def _encoder_rows(path: Path) -> Rows:
    planned = plan_encoder(path).plan
    spec = planned.spec
    rows = [
        ("architecture", f"{spec.architecture} (a vision encoder)"),
        ("weights", f"{planned.weights:,}"),
        ("layers", f"{spec.layers} of width {spec.width}, feed-forward {spec.ff_width}"),
        ("heads", f"{spec.heads} of {spec.head_dim}"),
        ("patches", f"{spec.patch_px} px, {spec.merge} x {spec.merge} of them make a row"),
        ("longest edge", f"{spec.longest_edge_px} px; larger pages shrink to it"),
        ("rows", f"of {spec.out_width} numbers, for a text model of that width"),
        ("stored", bytes_text(planned.weight_bytes)),
    ]
    return rows + _memory_row(planned.weight_bytes)


def _memory_row(needed: int) -> Rows:
    """A warning where the model is larger than what is free on this machine."""
    free = free_memory()
    if free is None or needed <= free:
        return []
    return [("warning", f"does not fit this machine's memory: needs {bytes_text(needed)}, {bytes_text(free)} are free")]


def _printable(line: str) -> str:
    """The line with what the terminal cannot show escaped: a file may name itself in bytes that are no text."""
    encoding = sys.stdout.encoding or "utf-8"
    return line.encode(encoding, "backslashreplace").decode(encoding)
