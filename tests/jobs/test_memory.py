"""Batch size follows memory: all pages asked for, fewer with one warning, or a refusal that says how much is missing."""

from __future__ import annotations

import logging
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from pagemill.jobs.errors import ConfigError
from pagemill.jobs.models.files import find_model
from pagemill.jobs.models.memory import Need, fitting, free_memory, need, pages_at_once
from pagemill.jobs.models.planned import plan_pair
from pagemill.jobs.settings.config import Config
from pagemill.vision.backends.cost import working_bytes
from pagemill.vision.backends.cpu import CpuEncoder
from pagemill.vision.encoder import open_encoder
from pagemill.vision.patches import to_patches

NEED = Need(fixed=1000, page=100)
MODEL = find_model(Config().model)


def config(**sections: object) -> Config:
    return Config.model_validate(sections)


@pytest.mark.parametrize(("budget", "slots"), [(2600, 16), (9999, 16), (2599, 15), (1100, 1)])
def test_as_many_pages_as_fit(budget: int, slots: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "pagemill"):
        assert fitting(16, NEED, budget) == slots
    assert len(caplog.records) == (slots < 16)
    if slots < 16:
        assert f"{slots} pages at once instead of 16" in caplog.text
        assert "\n" not in caplog.records[0].getMessage()


def test_not_even_one_page_is_refused_with_what_is_missing() -> None:
    gigabytes = Need(fixed=2_000_000_000, page=400_000_000)
    with pytest.raises(ConfigError, match=r"memory.budget: 0.9 GB are missing: .* take 2.0 GB, a page up to 0.40 GB"):
        fitting(16, gigabytes, 1_500_000_000)


def test_a_budget_is_kept_and_null_is_what_is_free() -> None:
    pair = plan_pair(MODEL, config())
    assert pages_at_once(config(), pair, free_bytes=1 << 40) == 16
    with pytest.raises(ConfigError):
        pages_at_once(config(), pair, free_bytes=1 << 20)
    assert pages_at_once(config(memory={"budget": 1 << 40}), pair, free_bytes=1 << 20) == 16


def test_a_page_is_counted_at_the_longest_that_it_may_become() -> None:
    settings = [
        config(engine={"kv_cache": kv_cache, "max_tokens": tokens}) for kv_cache in ("f16", "q8_0") for tokens in (500, 1500)
    ]
    needs = [need(one, plan_pair(MODEL, one)) for one in settings]
    assert needs[0].page < needs[1].page
    assert needs[2].page < 0.6 * needs[0].page  # 8 bits and scales instead of 16
    assert needs[0].fixed == needs[1].fixed
    short, pair = config(engine={"context": 256}), plan_pair(MODEL, config())
    assert need(short, pair).page == 256 * pair.text.plan.cached_token_bytes  # never beyond the context


@pytest.mark.parametrize("precision", ["f32", "auto"])
def test_the_encoder_takes_what_was_counted(precision: str) -> None:
    encoder = open_encoder(MODEL.mmproj, precision=precision, threads=1)
    assert isinstance(encoder, CpuEncoder)
    in_bf16 = encoder.arithmetic.attention == "bf16"
    pixels = np.zeros((3, 32 * encoder.spec.patch_px, 32 * encoder.spec.patch_px), np.float32)
    page = to_patches(pixels, encoder.spec)
    encoder.encode(page)  # compiles
    encoder.close()  # gives the buffers back
    encoder = open_encoder(MODEL.mmproj, precision=precision, threads=1)
    tracemalloc.start()  # numpy tells it of every buffer
    encoder.encode(page)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert working_bytes(encoder.spec, page.grid.patches, bf16=in_bf16) == pytest.approx(taken, rel=0.05)
    encoder.close()


def files(folder: Path, available: int, limit: str, current: int) -> int | None:
    (folder / "meminfo").write_text(f"MemTotal: 9 kB\nMemAvailable:   {available >> 10} kB\n")
    (folder / "memory.max").write_text(limit)
    (folder / "memory.current").write_text(str(current))
    return free_memory(folder / "meminfo", folder)


@pytest.mark.parametrize(
    ("limit", "current", "free"), [("max", 5, 8 << 20), (str(3 << 20), 1 << 20, 2 << 20), (str(1 << 20), 2 << 20, 0)]
)
def test_free_memory_is_the_machines_within_the_groups(tmp_path: Path, limit: str, current: int, free: int) -> None:
    assert files(tmp_path, 8 << 20, limit, current) == free


def test_free_memory_is_unknown_where_the_system_does_not_say(tmp_path: Path) -> None:
    assert free_memory(tmp_path / "none", tmp_path) is None


def test_this_machine_has_some() -> None:
    found = free_memory()
    assert found is None or np.int64(found) > 0
