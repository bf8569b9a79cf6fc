"""What `pagemill plan` and a job's check refuse before a weight is read, each file named."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import pytest

from pagemill.decoder.errors import ModelError
from pagemill.decoder.gguf.files import open_file
from pagemill.jobs.cli import plan as plan_command
from pagemill.jobs.cli.plan import command as print_plan
from pagemill.jobs.models.planned import plan_pair
from pagemill.jobs.settings.config import Config
from pagemill.jobs.settings.registry import ModelFiles
from tests.answers import ROOT
from tests.build import tiny_parts

PAIR = ModelFiles(ROOT / "samples" / "model" / "text-q8_0.gguf", ROOT / "samples" / "model" / "mmproj-f16.gguf")


def tiny(path: Path, metadata: Mapping[str, object]) -> Path:
    """A text model with other metadata; None removes a key."""
    parts = tiny_parts()
    for key, value in metadata.items():
        parts.metadata[key] = value
        if value is None:
            del parts.metadata[key]
    path.write_bytes(parts.bytes())
    return path


REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "unknown pre-split": ({"tokenizer.ggml.pre": "tekken"}, "tokenizer.ggml.pre is 'tekken'"),
    "unknown tokenizer": ({"tokenizer.ggml.model": "t5"}, "tokenizer.ggml.model is 't5'"),
    "merges of no tokens": ({"tokenizer.ggml.merges": ["x yz"]}, "of tokenizer.ggml.merges do not make a token"),
    "no merges": ({"tokenizer.ggml.merges": None}, "'tokenizer.ggml.merges' is missing"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_tokenizer_that_a_run_would_refuse_is_refused_by_plan_and_check(name: str, tmp_path: Path) -> None:
    metadata, message = REFUSED[name]
    path = tiny(tmp_path / "tiny.gguf", metadata)
    with pytest.raises(ModelError, match=rf"tiny\.gguf: .*{message}"):
        print_plan(path)
    with pytest.raises(ModelError, match=rf"tiny\.gguf: .*{message}"):
        plan_pair(ModelFiles(path, PAIR.mmproj), Config())


def test_plan_reports_doubts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    doubtful = {"tokenizer.ggml.pre": None, "tokenizer.chat_template": "{% if %}"}
    print_plan(tiny(tmp_path / "tiny.gguf", doubtful))
    shown = capsys.readouterr().out
    assert "warning        tokenizer.ggml.pre is missing: words are cut by llama.cpp's default rule" in shown
    assert "does not compile" in shown
    assert "chat template  none" in shown


def test_plan_reads_a_vision_file(capsys: pytest.CaptureFixture[str]) -> None:
    print_plan(PAIR.mmproj)
    shown = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    spec = open_file(PAIR.mmproj)[0].metadata
    assert shown["architecture"].strip().endswith("(a vision encoder)")
    assert f"{spec['clip.vision.block_count']} of width {spec['clip.vision.embedding_length']}" in shown["layers"]


def test_plan_says_when_a_model_does_not_fit_the_memory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plan_command, "free_memory", lambda: 1000)
    for path in (PAIR.text, PAIR.mmproj):
        print_plan(path)
        assert "does not fit this machine's memory: needs" in capsys.readouterr().out


def test_a_name_that_is_no_text_is_shown_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strict = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="strict")
    path = tiny(tmp_path / "tiny.gguf", {"general.name": "caf\udce9"})
    monkeypatch.setattr("sys.stdout", strict)
    print_plan(path)
    strict.flush()
    assert b"caf\\udce9" in strict.buffer.getvalue()  # type: ignore[attr-defined]
