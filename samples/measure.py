"""Read the sample documents with the sample model and write into README.md how well they are read, and how fast.

    python samples/measure.py

Developers run it after changing the samples or the model, on a machine that does nothing else.  The job runs twice: first
with no kernels compiled.  Refuses pages without a truth and truth without pages.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import fill
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
JOB, TRUTH, README = "samples/jobs/samples.yaml", "samples/truth", ROOT / "README.md"
BEGIN, END = "<!-- written by samples/measure.py -->\n", "<!-- end -->\n"
HEAD = "| document | pages | characters | errors on each page | CER |\n| --- | --- | --- | --- | --- |\n"


def main() -> None:
    """Replace what stands between BEGIN and END."""
    with TemporaryDirectory() as folder:
        cold, warm = (run_job(Path(folder, name), Path(folder, "kernels")) for name in ("cold", "warm"))
        (measured,) = json.loads(pagemill("eval", "--truth", TRUTH, f"{folder}/warm", "--json"))["runs"]
    if strangers := measured["unread"] + measured["untold"]:
        raise SystemExit(f"expected a truth for every page and a page for every truth, found without: {strangers}")
    before, _, rest = README.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"expected the lines {BEGIN!r} and {END!r} in {README}")
    README.write_text("".join((before, BEGIN, "\n", table(measured), summary(measured, cold, warm), "\n", END, after)), "utf-8")


def run_job(output: Path, kernels: Path) -> float:
    """Transcribe the samples; returns how many seconds that took, from start to end of the process."""
    began = time.perf_counter()
    pagemill("run", JOB, "-o", str(output), "--progress", "none", PAGEMILL_CACHE=str(kernels))
    return time.perf_counter() - began


def pagemill(*arguments: str, **environment: str) -> str:
    """What a command prints; one that fails ends this, too."""
    command = [sys.executable, "-m", "pagemill", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def table(measured: Mapping[str, Any]) -> str:
    """A row a document."""
    documents = groupby(measured["pages"], key=lambda page: page["document"])
    return HEAD + "".join(row(document, list(pages)) for document, pages in documents)


def row(document: str, pages: Sequence[Mapping[str, Any]]) -> str:
    """What a document's pages say, and what was misread on each; a status other than ok is named."""
    length = sum(page["characters"]["length"] for page in pages)
    errors = [page["characters"]["errors"] for page in pages]
    statuses = ["" if page["status"] == "ok" else f" ({page['status']})" for page in pages]
    told = ", ".join(f"{count}{status}" for count, status in zip(errors, statuses, strict=True))
    rate = f"{100 * sum(errors) / length:.1f} %" if length else "-"
    return f"| {document} | {len(pages)} | {length} | {told} | {rate} |\n"


def summary(measured: Mapping[str, Any], cold: float, warm: float) -> str:
    """The mean rate, and how long the job took on which machine."""
    facts = dict(line.split("  ", 1) for line in pagemill("doctor").splitlines())
    cpu, variant, threads = (facts[name].strip() for name in ("cpu", "cpu variant", "threads"))
    with_text = sum(bool(page["characters"]["length"]) for page in measured["pages"])
    told = (
        f"Mean over the {with_text} pages with text: {100 * measured['mean_page_cer']:.1f} %. The whole job takes {warm:.1f} s "
        f"on {threads.split()[0]} threads ({cpu}, {variant.split()[0]}), and {cold:.0f} s when the kernels have to be compiled "
        "first."
    )
    return "\n" + fill(told, 120) + "\n"


if __name__ == "__main__":
    main()
