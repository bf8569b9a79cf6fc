"""How many pages fit into memory at once, decided from the models' headers before a weight is read.

A page's keys and values are counted at the longest that it may become (image, prompt and ``engine.max_tokens``), so that
a run that has begun does not run out of memory later.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from pagemill.decoder import round_capacity
from pagemill.jobs.errors import ConfigError
from pagemill.jobs.models.planned import PlannedPair, resolve_settings
from pagemill.jobs.settings.config import Config
from pagemill.vision import encoder_bytes, fitted_size

SHARE_OF_FREE = 0.9  # of the memory that is free at the start; the rest is left to others
PROCESS_BYTES = 400 << 20  # of this process without any model: Python, its libraries, compiled code, page images that wait
PROMPT_TOKENS = 64  # beside the image and the configured words
GB = 1e9

_log = logging.getLogger("pagemill")


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that a job takes.  fixed: models, their buffers and the process; page: keys and values of one page."""

    fixed: int
    page: int


def pages_at_once(config: Config, pair: PlannedPair, free_bytes: int | None = None) -> int:
    """``engine.slots``, or as many as fit, with a warning.  Raises ConfigError when not even one does.

    free_bytes: of the machine, None to look.
    """
    budget = config.memory.budget
    if budget is None:
        free = free_memory() if free_bytes is None else free_bytes
        if free is None:
            return config.engine.slots
        budget = int(SHARE_OF_FREE * free)
    return fitting(config.engine.slots, need(config, pair), budget)


def fitting(slots: int, need: Need, budget: int) -> int:
    """The pages at once, at most ``slots``, that the budget holds; see ``pages_at_once``."""
    possible = (budget - need.fixed) // need.page
    if possible >= slots:
        return slots
    room = f"the models and their buffers take {need.fixed / GB:.1f} GB, a page up to {need.page / GB:.2f} GB"
    if possible < 1:
        missing = need.fixed + need.page - budget
        raise ConfigError(
            [
                f"memory.budget: {missing / GB:.1f} GB are missing: {room}, and {budget / GB:.1f} GB may be used; "
                "allow more, close other programs, use kv_cache: q8_0, or lower engine.max_tokens or vision.longest_edge_px"
            ]
        )
    _log.warning("memory: %d pages at once instead of %d: %s, and %.1f GB may be used", possible, slots, room, budget / GB)
    return possible


def need(config: Config, pair: PlannedPair) -> Need:
    """What a job takes: the sum of what each part says it needs."""
    text, spec, resolved = pair.text.plan, pair.encoder.spec, resolve_settings(config, pair)
    longest_px = resolved.longest_edge_px
    side = fitted_size(longest_px, longest_px, longest_px, config.vision.multiple_px)[0] // spec.patch_px
    tokens = side**2 // spec.merge**2 + PROMPT_TOKENS + len(config.prompt.text) + config.engine.max_tokens
    positions = round_capacity(min(tokens, resolved.context))
    encoder = encoder_bytes(pair.encoder.plan, pair.arithmetic, side**2)
    engine = text.resident_bytes + text.step_bytes(config.engine.slots + config.engine.chunk, config.engine.slots)
    return Need(PROCESS_BYTES + encoder + engine, positions * text.cached_token_bytes)


def free_memory(proc: Path = Path("/proc/meminfo"), group: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes that this process may still take, within its control group; None where the system does not say."""
    try:
        fields = dict(line.split(":", 1) for line in proc.read_text(encoding="ascii").splitlines())
        free = int(fields["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError, ValueError, IndexError):
        return None
    try:
        limit = int((group / "memory.max").read_text()) - int((group / "memory.current").read_text())
    except (OSError, ValueError):  # no group, or one without a limit
        return free
    return max(0, min(free, limit))
