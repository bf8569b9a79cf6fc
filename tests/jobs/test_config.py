"""config.yaml, job files, environment and flags."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from pagemill.jobs.errors import ConfigError
from pagemill.jobs.settings.config import PATH_KEYS, SHAPES_TEXT, Config
from pagemill.jobs.settings.layers import load_config

ROOT = Path(__file__).parents[2]


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return tmp_path / "job.yaml"


def problems(job: Path, text: str) -> list[str]:
    job.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(job)
    return [problem.replace(f"{job}", "job.yaml") for problem in caught.value.problems]


def test_config_yaml_equals_the_defaults() -> None:
    written = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
    assert written == Config().model_dump(mode="json")
    assert load_config(ROOT / "config.yaml").model_dump(exclude={"output"}) == Config().model_dump(exclude={"output"})


def test_every_key_of_config_yaml_is_commented() -> None:
    lines = (ROOT / "config.yaml").read_text(encoding="utf-8").splitlines()
    keys = [line for line in lines if re.match(r"  \w+:", line)]
    assert len(keys) == sum(len(section) for section in Config().model_dump().values())
    assert [line for line in keys if "  # " not in line or "default" not in line] == []


def test_keys_named_elsewhere_exist() -> None:
    config = Config()
    for section, key in (*PATH_KEYS, *SHAPES_TEXT):
        assert key is None or key in type(getattr(config, section)).model_fields


BAD = {
    "misspelt key": ("engine:\n  thread: 2", "job.yaml:2: engine.thread: no such key; did you mean 'threads'?"),
    "misspelt section": ("engin:\n  threads: 2", "job.yaml:1: engin: no such key; did you mean 'engine'?"),
    "key without its section": ("threads: 3", "job.yaml:1: threads: no such key; did you mean 'engine.threads'?"),
    "key of another section": ("engine:\n  top_k: 3", "job.yaml:2: engine.top_k: no such key; did you mean 'sampling.top_k'?"),
    "text for a number": ("engine:\n  slots: two", "job.yaml:2: engine.slots: expected a valid integer, found 'two'"),
    "number in quotes": ("engine:\n  slots: '2'", "job.yaml:2: engine.slots: expected a valid integer, found '2'"),
    "yaml's no": ("prompt:\n  text: no", "job.yaml:2: prompt.text: expected a valid string, found False"),
    "out of range": ("\nrender:\n  ahead: 0", "job.yaml:3: render.ahead: expected a value greater than or equal to 1, found 0"),
    "unknown choice": (
        "output:\n  folder: out\n  per: line",
        "job.yaml:3: output.per: expected 'document' or 'page', found 'line'",
    ),
    "one path, no list": ("input: {paths: 3}", "job.yaml:1: input.paths: expected a list, found 3"),
    "section is no mapping": ("sampling: 4", "job.yaml:1: sampling: expected a section of keys, found 4"),
    "repeated key": (
        "engine:\n  slots: 1\n  slots: 2",
        "job.yaml:3: engine.slots: expected each key once, found it again (first at job.yaml:2)",
    ),
    "a list": ("- 1", "job.yaml:1: expected sections such as 'engine:', found [1]"),
    "no yaml": ("a: [", "job.yaml:1: expected YAML, found: expected the node content, but found '<stream end>'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_setting_is_an_error_with_its_line(job: Path, name: str) -> None:
    text, expected = BAD[name]
    assert problems(job, text) == [expected]


def test_all_problems_are_told_at_once(job: Path) -> None:
    assert len(problems(job, "engine: {slot: 1, context: x}\nrendr: {}\nsampling: {top_p: 2}")) == 4


def test_missing_and_undecodable_job_files_are_errors(job: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the job file"):
        load_config(job)
    job.write_bytes(b"a: \xff")
    with pytest.raises(ConfigError, match="expected UTF-8 text, found byte 0xff"):
        load_config(job)


def test_flag_beats_environment_beats_job_file_beats_default(job: Path) -> None:
    job.write_text("engine: {slots: 2, chunk: 3, context: 100}\n", encoding="utf-8")
    environment = {"PAGEMILL_ENGINE__SLOTS": "4", "PAGEMILL_ENGINE__CHUNK": "5", "PAGEMILL": "x", "OTHER__KEY": "1"}
    engine = load_config(job, environment, {("engine", "slots"): 6, ("engine", "chunk"): None}).engine
    assert (engine.slots, engine.chunk, engine.context, engine.max_tokens) == (6, 5, 100, 4096)


def test_bad_environment_and_flag_are_named(job: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, {"PAGEMILL_ENGINE__THREDS": "2"}, {("engine", "slots"): 0})
    assert caught.value.problems == (
        "environment PAGEMILL_ENGINE__THREDS: engine.threds: no such key; did you mean 'threads'?",
        "flag for engine.slots: engine.slots: expected a value greater than or equal to 1, found 0",
    )


def test_relative_paths_are_relative_to_the_job_file(job: Path) -> None:
    job.write_text("input: {paths: [a.pdf, /b.pdf]}\nmodel: {text: m.gguf}\noutput: {folder: ../o}\n", encoding="utf-8")
    config = load_config(job)
    assert config.input.paths == (str(job.parent / "a.pdf"), "/b.pdf")
    assert (config.model.text, config.output.folder) == (str(job.parent / "m.gguf"), str(job.parent / "../o"))
    assert load_config(None, {"PAGEMILL_OUTPUT__FOLDER": "here"}).output.folder == "here"


def test_section_whose_keys_are_all_comments_is_the_default(job: Path) -> None:
    job.write_text("engine:\n  # slots: 3\n", encoding="utf-8")
    assert load_config(job) == Config()
    job.write_text("", encoding="utf-8")
    assert load_config(job) == Config()
