"""Every key of config.yaml has a row here: another value of it changes what is handed to the parts of a run or a watch, and a
value that cannot be meant is refused before anything is made."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pagemill.decoder import ModelError
from pagemill.jobs.errors import ConfigError
from pagemill.jobs.run import job as job_module
from pagemill.jobs.run import opening, spec
from pagemill.jobs.run.copies import copies_of
from pagemill.jobs.run.progress import open_progress
from pagemill.jobs.run.spec import resolve_job
from pagemill.jobs.settings.config import PATH_KEYS, SHAPES_TEXT, Config
from pagemill.jobs.settings.layers import load_config
from pagemill.jobs.watch import daemon
from pagemill.jobs.watch.overrides import FolderSettings
from tests.answers import ROOT

MODEL = ROOT / "samples" / "model"
MMPROJ = str(MODEL / "mmproj-f16.gguf")
WORD, NUMBER = "some words", 7

#: key -> (another value, a value that is refused; None: every value of its type may be meant)
KEYS: dict[str, tuple[object, object]] = {
    "model.name": ("lightonocr-2-1b", "no such model"),
    "model.folder": ("elsewhere", NUMBER),
    "model.text": ("other.gguf", "absent.gguf"),
    "model.mmproj": (MMPROJ, "absent.gguf"),
    "engine.slots": (3, 0),
    "engine.context": (512, 63),
    "engine.threads": (1, 10_000),
    "engine.cpu": ("portable", "z80"),
    "engine.kv_cache": ("q8_0", "q4_0"),
    "engine.chunk": (64, 0),
    "engine.max_tokens": (9, 0),
    "engine.exact_activations": (True, "yes"),
    "engine.repack_cache": (True, 1),
    "memory.budget": (1 << 40, 1000),
    "sampling.temperature": (0.5, -0.1),
    "sampling.top_k": (5, -1),
    "sampling.top_p": (0.9, 0.0),
    "sampling.min_p": (0.1, 1.0),
    "sampling.repetition_penalty": (1.1, 0.9),
    "sampling.repetition_window": (8, -1),
    "sampling.seed": (3, -1),
    "vision.backend": ("cpu", "coreml"),
    "vision.precision": ("int8", "fp4"),
    "vision.longest_edge_px": (140, 27),
    "vision.multiple_px": (14, 20),
    "input.paths": (["one.pdf"], "one.pdf"),
    "input.list": ("list.txt", NUMBER),
    "input.password": (WORD, NUMBER),
    "input.passwords": ({"*.pdf": WORD}, {"*.pdf": NUMBER}),
    "input.cache_bytes": (1 << 21, 1000),
    "input.max_pages": (5, 0),
    "output.folder": ("elsewhere", "s3://bucket/folder"),
    "output.formats": (["text", "hocr"], ["text", "docx"]),
    "output.per": ("page", "line"),
    "output.copy_to": ("s3://bucket/folder", NUMBER),
    "render.max_dpi": (100.0, 0.0),
    "render.max_pixels": (1000, 0),
    "render.workers": (1, 0),
    "render.ahead": (2, 0),
    "render.timeout_seconds": (1.0, 0.0),
    "render.memory_bytes": (1 << 30, 1000),
    "quality.skip_blank": (False, "no"),
    "quality.skip_bleed": (False, 0),
    "recovery.retry_on": (["looped"], ["blank"]),
    "recovery.temperatures": ([0.1], [0.0]),
    "recovery.scales": ([0.5], [5.0]),
    "recovery.halves": (False, "never"),
    "recovery.low_confidence": (0.1, 1.0),
    "recovery.orientation": ("auto", "upright"),
    "prompt.text": (WORD, NUMBER),
    "run.attempts": (3, 0),
    "run.retry_failed": (True, "failed"),
    "run.retry_statuses": (["looped"], ["ok"]),
    "run.full_disk_wait_seconds": (1.0, -1.0),
    "run.lease_seconds": (10.0, 0.0),
    "run.progress": ("json", "loud"),
    "run.trace": ("trace.json", NUMBER),
    "watch.scan_seconds": (1.0, 0.0),
    "watch.settle_seconds": (1.0, 0.0),
    "watch.empty_seconds": (1.0, -1.0),
    "watch.events": (False, "no"),
    "watch.batch_files": (2, 0),
    "watch.ignore": (["*.bak"], "*.bak"),
    "watch.done": ("move", "delete"),
    "watch.done_folder": ("ended", NUMBER),
    "watch.failed_folder": ("bad", NUMBER),
    "watch.health_file": ("health.json", NUMBER),
    "watch.webhook": ("http://localhost:1/hook", NUMBER),
}
SAME_BY_DESIGN = {  # other words for what the default comes to here
    "model.mmproj": "the sample's own, named", "vision.backend": "auto is cpu on this machine",
    "memory.budget": "more than is needed", "run.retry_statuses": "asked only with retry_failed",
}  # fmt: skip


def test_every_key_has_a_row_and_every_row_a_key() -> None:
    keys = [f"{section}.{key}" for section, values in Config().model_dump().items() for key in values]
    assert list(KEYS) == keys
    assert all((section, key) in {tuple(name.split(".")) for name in keys} for section, key in PATH_KEYS)
    assert all(key is None or f"{section}.{key}" in KEYS for section, key in SHAPES_TEXT)


class Part:
    """Stands for a part of a run: does nothing, gives nothing."""

    idle = is_idle = True
    signal = failed = None
    isa = SimpleNamespace(name="")

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **named: Part()

    def __enter__(self) -> Part:
        return self

    def __exit__(self, *reasons: object) -> None:
        """Nothing."""

    def __iter__(self) -> Iterator[Part]:
        return iter(())


class Handed:
    """What the parts of a run and of a watch were made with."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path) -> None:
        self.seen: list[str] = []
        self._patch, self._folder = patch, folder

    def stub(self, module: Any, *names: str) -> None:
        for name in names:
            self._patch.setattr(module, name, lambda *given, name=name, **named: self._made(name, given, named))

    def _made(self, name: str, given: tuple[object, ...], named: dict[str, object]) -> Part:
        plain = [one for one in [*given, *sorted(named.items())] if not _is_part(one)]
        self.seen.append(f"{name}({', '.join(map(_text, plain))})")
        return Part()


def _is_part(value: object) -> bool:
    return isinstance(value, Part) or (isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], Part))


def _text(value: object) -> str:
    """Without the addresses of objects."""
    return " ".join(word for word in repr(value).split() if " at 0x" not in word and "0x" not in word)


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[dict[str, Any]], list[str]]:
    """What a run and a watch of some settings hand to their parts; nothing is read or computed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(spec, "hash_model", lambda text, mmproj: f"{text} {mmproj}")
    (tmp_path / "in").mkdir()
    (tmp_path / "other.gguf").symlink_to(MODEL / "text-q8_0.gguf")

    def look(sections: dict[str, Any]) -> list[str]:
        seen = Handed(monkeypatch, tmp_path)
        seen.stub(opening, "load_model", "load_encoder", "Team", "Engine", "PageReader", "open_trace")
        seen.stub(
            job_module, "InputCache", "Inspector", "Producer", "DocumentOutputs", "StoredPages", "Ledger", "Rules", "Runner"
        )
        seen.stub(job_module, "open_documents", "RenderSettings", "find_files", "Passwords")
        seen.stub(daemon, "Webhook", "HealthFile", "Pace", "Shelves", "Batches", "Journal")
        config = Config.model_validate(sections)
        job = resolve_job(config)
        kind = type(open_progress(config.run.progress, sys.stderr, sys.stdout))
        assert job.planned is not None
        slots = opening.pages_at_once(config, job.planned, 64 << 30)
        seen.seen.append(f"{slots} {copies_of(job) is not None} {job.output} {job.inputs} {job.settings_hash} {kind}")
        with ExitStack() as stack:
            opened = stack.enter_context(opening.open_reader(job, {}))
            inputs = job_module.find_inputs(stack, job)
            job_module.inspect_inputs(job, inputs)
            job_module._build(stack, job, [], Part(), lambda job, known: nullcontext(opened), inputs)  # type: ignore[arg-type]
        _watch(config, seen, monkeypatch)
        return seen.seen

    return look


def _watch(config: Config, seen: Handed, patch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def events(roots: object, wanted: bool) -> Iterator[Callable[[float], bool]]:
        seen.seen.append(f"events {wanted}")
        yield lambda seconds: False

    patch.setattr(daemon, "file_events", events)
    patch.setattr(daemon, "Watcher", lambda *given: Part())
    watched = config.model_copy(update={"input": config.input.model_copy(update={"paths": ("in",), "list": None})})
    places = daemon.places_of(watched)
    seen.seen.append(str(places))
    daemon.run_watch(watched, places, FolderSettings(None, {}, {}), Part(), Part(), once=True)  # type: ignore[arg-type]


def _sections(key: str, value: object) -> dict[str, Any]:
    section, name = key.split(".")
    return {section: {name: value} | ({"mmproj": MMPROJ} if name == "text" and section == "model" else {})}


@pytest.mark.parametrize("key", [key for key in KEYS if key not in SAME_BY_DESIGN])
def test_a_key_changes_what_is_done(handed: Callable[[dict[str, Any]], list[str]], key: str) -> None:
    if key == "model.folder":
        for one in ("here", "there"):
            with pytest.raises(ConfigError, match=one):
                handed({"model": {"name": "lightonocr-2-1b", "folder": one}})
        return
    try:
        changed = handed(_sections(key, KEYS[key][0]))
    except ConfigError as error:  # a model of the registry that was not pulled
        changed = [str(error)]
    assert changed != handed({})


@pytest.mark.parametrize("key", KEYS)
def test_a_value_that_cannot_be_meant_is_refused_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, key: str
) -> None:
    monkeypatch.chdir(tmp_path)
    section, name = key.split(".")
    values = _sections(key, KEYS[key][1])[section]
    with pytest.raises((ConfigError, ModelError)) as raised:
        resolve_job(load_config(None, {}, {(section, one): value for one, value in values.items()}))
    assert name in str(raised.value) or section in str(raised.value) or str(KEYS[key][1]) in str(raised.value)
    assert list(tmp_path.iterdir()) == []
