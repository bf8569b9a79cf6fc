"""Work is identified by what settings resolve to: machines and settings that come to the same share it, others do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pagemill.decoder.errors import ModelError
from pagemill.decoder.kernels.isa import AVX2, AVX512, AVX512_NO_BF16, NEON, PORTABLE, Isa
from pagemill.jobs.errors import ConfigError
from pagemill.jobs.models.files import find_model
from pagemill.jobs.models.planned import plan_pair, resolve_settings
from pagemill.jobs.run.identity import hash_settings
from pagemill.jobs.run.job import Report, provenance_of
from pagemill.jobs.run.report import write_report
from pagemill.jobs.run.spec import resolve_job
from pagemill.jobs.settings.config import Config
from pagemill.jobs.settings.layers import load_config

MODEL = find_model(Config().model)


def settings_of(isa: Isa = AVX2, **sections: Any) -> str:
    """The settings' hash on a machine with that CPU."""
    config = Config.model_validate(sections)
    pair = plan_pair(MODEL, config, isa)
    return hash_settings(config, resolve_settings(config, pair))


SAME: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "the backend that auto means": ({}, {"vision": {"backend": "cpu"}}),
    "the precision that auto means": ({}, {"vision": {"precision": "f32"}}),
    "more context than the model has": ({"engine": {"context": 1 << 20}}, {"engine": {"context": 1 << 21}}),
    "a longer edge than the model's": ({}, {"vision": {"longest_edge_px": 1 << 20}}),
    "pages at once, threads, chunks": ({}, {"engine": {"slots": 3, "threads": 1, "chunk": 64, "repack_cache": True}}),
    "outputs and inputs": ({}, {"output": {"formats": ["alto"]}, "input": {"paths": ["x"]}, "run": {"attempts": 5}}),
}
OTHER: dict[str, dict[str, Any]] = {
    "another precision": {"vision": {"precision": "int8"}},
    "a shorter edge": {"vision": {"longest_edge_px": 448}},
    "other sides": {"vision": {"multiple_px": 14}},
    "less context": {"engine": {"context": 512}},
    "another cache": {"engine": {"kv_cache": "q8_0"}},
    "exact activations": {"engine": {"exact_activations": True}},
    "fewer tokens": {"engine": {"max_tokens": 100}},
    "another sampling": {"sampling": {"temperature": 0.5}},
    "other pixels": {"render": {"max_dpi": 150.0}},
    "another prompt": {"prompt": {"text": "Read."}},
    "no recovery": {"recovery": {"retry_on": []}},
    "blank pages read": {"quality": {"skip_blank": False}},
}


@pytest.mark.parametrize("name", SAME)
def test_settings_that_come_to_the_same_are_the_same_work(name: str) -> None:
    one, other = SAME[name]
    assert settings_of(**one) == settings_of(**other)


@pytest.mark.parametrize("name", OTHER)
def test_settings_that_change_a_text_are_other_work(name: str) -> None:
    assert settings_of(**OTHER[name]) != settings_of()


def test_machines_of_one_numeric_class_share_work_and_others_do_not() -> None:
    asked = {"engine": {"kv_cache": "q8_0"}, "vision": {"precision": "f32"}}
    without_bf16 = {settings_of(isa, **asked) for isa in (AVX512_NO_BF16, AVX2, PORTABLE, NEON)}
    assert len(without_bf16) == 1  # integer products are exact, float32 is summed in one order
    assert settings_of(AVX512, **asked) not in without_bf16  # attends in bf16


def test_auto_is_what_the_machine_resolves_it_to() -> None:
    assert settings_of(AVX512) == settings_of(AVX512, vision={"precision": "bf16"})
    assert settings_of(AVX512) != settings_of(AVX2)
    assert settings_of(AVX2, vision={"precision": "f32"}) != settings_of(AVX512, vision={"precision": "f32"})


def test_float_sums_of_other_widths_are_another_class() -> None:
    f16 = {"engine": {"kv_cache": "f16"}}
    assert settings_of(AVX2, **f16) == settings_of(PORTABLE, **f16)
    assert settings_of(AVX2, **f16) != settings_of(AVX512_NO_BF16, **f16)


def test_report_and_provenance_name_the_resolved_choices(tmp_path: Path) -> None:
    job = resolve_job(Config.model_validate({"output": {"folder": str(tmp_path)}}))
    assert job.resolved is not None
    assert provenance_of(job)["encoder"] == job.resolved.encoder
    assert provenance_of(job)["decoder"] == job.resolved.decoder
    write_report(job, Report((), 0, 0.0, None))
    resolved = json.loads((tmp_path / "report.json").read_text())["resolved"]
    assert resolved["decoder"].startswith("int8 products")
    assert resolved["context"] == plan_pair(MODEL, Config()).text.spec.context


def test_a_backend_that_is_not_there_is_refused_with_the_settings(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("vision: {backend: coreml}\n")
    with pytest.raises(ConfigError, match=r"job\.yaml:1: vision\.backend: expected 'auto' or 'cpu', found 'coreml'"):
        load_config(job)


def test_a_precision_that_the_cpu_has_not_is_refused_before_anything_is_made() -> None:
    config = Config.model_validate({"vision": {"precision": "bf16"}})
    with pytest.raises(ModelError, match="bf16 needs a CPU with bf16 products"):
        plan_pair(MODEL, config, AVX2)
