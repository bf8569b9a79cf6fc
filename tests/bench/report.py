"""The bench's figures: gathered over runs in one JSON file, ratios worked out, told as tables."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pagemill.decoder.kernels.isa import detect
from tests.bench.sections import Bench
from tests.bench.workers import ROOT

RATIOS = {
    "prefill_512": "prefill_512",
    "prefill_1400": "prefill_1400",
    "decode_b1": "decode_b1_16_f16",
    "decode_b16_1400_f16": "decode_b16_1400_f16",
    "decode_b16_1400_q8_0": "decode_b16_1400_q8_0",
    "decode_b32_1400_f16": "decode_b32_1400_f16",
    "decode_b32_1400_q8_0": "decode_b32_1400_q8_0",
    "vision_1036_bf16": "vision_1036_bf16",
    "vision_1036_int8": "vision_1036_int8",
    "vision_a4_bf16": "vision_a4_bf16",
    "job_12_pages": "job_12_pages_q8_0",
    "job_12_pages_int8": "job_12_pages_q8_0_int8",
    "job_12_pages_f16": "job_12_pages_f16",
    "job_3_pages_quick": "job_3_pages_q8_0",
}
"""Name of a ratio, and the figure that it is ours over the peer's of."""


@dataclass
class Report:
    """path: of the JSON file, or None.  content: what it holds."""

    path: Path | None
    content: dict[str, Any]

    @classmethod
    def open(cls, path: Path | None, bench: Bench) -> Report:
        """What the file has already, if it is there."""
        content: dict[str, Any] = json.loads(path.read_text()) if path and path.exists() else {"sections": {}}
        content["machine"] = _machine(bench)
        return cls(path, content)

    def add(self, section: str, figures: dict[str, Any]) -> None:
        """A section's figures, in place of earlier ones."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self.content["sections"][section] = {"measured": now, "commit": _commit(), "figures": figures}
        self.content["ratios"] = self.ratios()

    def figures(self) -> dict[str, dict[str, Any]]:
        """Those that compare, by name."""
        return {
            name: figure
            for section in self.content["sections"].values()
            for name, figure in section["figures"].items()
            if isinstance(figure, dict) and "unit" in figure
        }

    def ratios(self) -> dict[str, float]:
        """Ours over the peer's, above 1 where ours is faster."""
        figures = self.figures()
        return {
            ratio: figures[name]["ours"] / figures[name]["llama.cpp"]
            for ratio, name in RATIOS.items()
            if {"ours", "llama.cpp"} <= figures.get(name, {}).keys()
        }

    def write(self) -> None:
        """Write the file, if one was asked for."""
        if self.path is not None:
            self.path.write_text(json.dumps(self.content, indent=1) + "\n")

    def show(self, console: Console) -> None:
        """Print all there is."""
        machine = self.content["machine"]
        table = Table(title=f"{machine['cpu']}, {machine['variant']}, {machine['threads']} threads, {_commit()}")
        for column in ("figure", "unit", "ours", "llama.cpp", "ratio"):
            table.add_column(column, justify="left" if column in ("figure", "unit") else "right")
        for name, figure in self.figures().items():
            mine, peer = figure.get("ours"), figure.get("llama.cpp")
            cells = [f"{value:,.3g}" if value is not None else "" for value in (mine, peer)]
            table.add_row(name, figure["unit"], *cells, f"{mine / peer:.2f}" if mine and peer else "")
        console.print(table)
        for name, figure in self.figures().items():
            peaks = [f"{who} {figure[f'{who} peak GB']:.2f} GB" for who in ("ours", "llama.cpp") if f"{who} peak GB" in figure]
            if peaks:
                console.print(f"peak memory of {name}: {', '.join(peaks)}", highlight=False)
        self._show_kernels(console)
        for section in ("startup", "growth"):
            for name, value in self.content["sections"].get(section, {}).get("figures", {}).items():
                shown = value["text"] if isinstance(value, dict) else f"{value:.3f}"
                console.print(f"{name}: {shown}", highlight=False, markup=False)

    def _show_kernels(self, console: Console) -> None:
        kernels = self.content["sections"].get("kernels", {}).get("figures")
        if kernels is None:
            return
        peaks = ", ".join(f"{name} {value / 1e9:,.0f}" for name, value in kernels["peaks"].items())
        table = Table(title=f"kernels; peaks in G/s: {peaks}")
        for column in ("kernel", "G/s", "of the peak"):
            table.add_column(column, justify="left" if column == "kernel" else "right")
        for name, figure in kernels["shares"].items():
            table.add_row(name, f"{figure['rate'] / 1e9:,.1f}", f"{figure['share']:.0%}" if "share" in figure else "")
        console.print(table)


def _machine(bench: Bench) -> dict[str, Any]:
    return {
        "cpu": _cpu_name(),
        "variant": detect().name,
        "cores": os.cpu_count(),
        "threads": bench.threads,
        "system": platform.platform(),
        "python": platform.python_version(),
        "load": os.getloadavg(),
        "models": [Path(bench.text).name, Path(bench.mmproj).name],
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _commit() -> str:
    told = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return told.stdout.strip() or "no commit"
