"""A job as its ledger remembers it: enough to give it again, and no secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pagemill.jobs.run.spec import JobSpec
from pagemill.jobs.settings.config import Config
from pagemill.jobs.settings.registry import ModelFiles


def test_remembered_settings_are_a_job_again_with_absolute_paths_and_without_secrets(tmp_path: Path) -> None:
    config = Config.model_validate(
        {
            "input": {"password": "sesame", "passwords": {"*.pdf": "sesame"}},
            "output": {"formats": ["markdown", "alto"]},
            "watch": {"webhook": "https://example.org/?key=sesame"},
        }
    )
    inputs = ("scans", "@list.txt", "https://example.org/a.pdf", "s3://bucket/folder")
    job = JobSpec(config, inputs, Path("out"), ModelFiles(Path("t.gguf"), Path("m.gguf")), "model", "settings")
    assert "sesame" not in job.settings_text
    again = Config.model_validate(json.loads(job.settings_text))
    here = Path.cwd()
    assert again.input.paths == (
        str(here / "scans"),
        f"@{here / 'list.txt'}",
        "https://example.org/a.pdf",
        "s3://bucket/folder",
    )
    assert again.output.folder == str(here / "out")
    assert (again.model.text, again.model.mmproj) == (str(here / "t.gguf"), str(here / "m.gguf"))
    assert again.output.formats == config.output.formats
    assert again.recovery == config.recovery


@pytest.mark.parametrize("address", ["https://me:sesame@example.org/a.pdf", "https://example.org/a.pdf?token=sesame"])
def test_job_with_a_secret_in_an_address_is_not_remembered(address: str) -> None:
    assert JobSpec(Config(), (address,), Path("out"), ModelFiles(Path("t"), Path("m")), "model", "settings").settings_text == ""
