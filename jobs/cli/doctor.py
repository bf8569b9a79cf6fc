"""``pagemill doctor``: what this machine offers."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pagemill import __version__
from pagemill.decoder import available_cores, default_threads, detect, host_cpu_name, host_features, host_machine, reasons
from pagemill.jobs.errors import ConfigError
from pagemill.jobs.models.files import find_model
from pagemill.jobs.settings.config import ModelSection
from pagemill.vision import BACKENDS

LIBRARIES = ("numpy", "numba", "llvmlite", "pypdfium2", "pillow", "coremltools")


def command() -> int:
    """``pagemill doctor``."""
    for name, value in _facts():
        print(f"{name:16}  {value}")
    return 0


def _facts() -> list[tuple[str, str]]:
    isa = detect()
    cores = available_cores()
    return [
        ("pagemill", __version__),
        ("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        ("cpu", _cpu_name()),
        ("cpu variant", f"{isa.name} (int8 products: {isa.dot}, bf16 products: {'yes' if isa.bf16 else 'no'})"),
        *(("", reason) for reason in reasons(host_machine(), host_features())),
        ("threads", f"{default_threads()} by default, {cores} available of {os.cpu_count()} in the machine"),
        ("memory", _memory()),
        ("encoder backends", ", ".join(BACKENDS)),
        ("sample model", _sample_model()),
        *((name, _library(name)) for name in LIBRARIES),
    ]


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return host_cpu_name()  # macOS has no such file
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), host_cpu_name())


def _memory() -> str:
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        total = f"{os.sysconf('SC_PHYS_PAGES') * page / 2**30:.1f} GiB"
        return f"{os.sysconf('SC_AVPHYS_PAGES') * page / 2**30:.1f} GiB free of {total}"
    except (ValueError, OSError):  # macOS does not count free pages here
        return total if "total" in locals() else "unknown"


def _sample_model() -> str:
    try:
        return str(find_model(ModelSection()).text)
    except ConfigError:
        return "not installed"


def _library(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
