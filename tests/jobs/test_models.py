"""Models by name: the registry, the hub's protocol on a local server, and what happens without a network."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from pagemill.decoder.errors import ModelError
from pagemill.jobs.errors import ConfigError, InputError
from pagemill.jobs.models import pulling
from pagemill.jobs.models.files import SAMPLE_FOLDERS, find_model
from pagemill.jobs.models.pulling import Choice, pull
from pagemill.jobs.settings import registry
from pagemill.jobs.settings.config import Config
from pagemill.jobs.settings.layers import load_config
from pagemill.jobs.settings.registry import KnownModel, installed, known_model, known_models, models_folder

ROOT = Path(__file__).parents[2]
COMMIT = "c" * 40
REPOSITORY = "maker/Model-GGUF"
TEXT, MMPROJ = os.urandom(300_000), os.urandom(200_000)


@dataclass
class Hub:
    """A server with one repository.  cut_at: the next download of a file breaks off there, once."""

    files: dict[str, bytes]
    told_sha256: dict[str, str] = field(default_factory=dict)
    cut_at: dict[str, int] = field(default_factory=dict)
    requests: list[tuple[str, str, str]] = field(default_factory=list)  # method, path, range
    address: str = ""

    def sha256(self, name: str) -> str:
        return self.told_sha256.get(name) or hashlib.sha256(self.files[name]).hexdigest()

    def downloads(self, name: str) -> list[str]:
        return [range_ for method, path, range_ in self.requests if method == "GET" and path.endswith("/" + name)]


class Speaker(BaseHTTPRequestHandler):
    """Speaks what the hub speaks: model information with blobs, HEAD and ranged GET of files."""

    protocol_version = "HTTP/1.1"

    @property
    def hub(self) -> Hub:
        return self.server.hub  # type: ignore[attr-defined, no-any-return]

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def answer(self, *, with_body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append((self.command, path, self.headers.get("Range", "")))
        if path.startswith(f"/api/models/{REPOSITORY}"):
            self.give_information()
        elif path.startswith(f"/{REPOSITORY}/resolve/{COMMIT}/") and (name := path.rpartition("/")[2]) in self.hub.files:
            self.give_file(name, with_body)
        else:
            self.send(404, b"{}", {"X-Error-Code": "RepoNotFound"})

    def give_information(self) -> None:
        siblings = [
            {
                "rfilename": name,
                "size": len(data),
                "lfs": {"sha256": self.hub.sha256(name), "size": len(data), "pointerSize": 134},
            }
            for name, data in self.hub.files.items()
        ]
        record = {
            "id": REPOSITORY,
            "sha": COMMIT,
            "siblings": siblings,
            "private": False,
            "tags": [],
            "downloads": 0,
            "likes": 0,
        }
        self.send(200, json.dumps(record).encode(), {"Content-Type": "application/json"})

    def give_file(self, name: str, with_body: bool) -> None:
        data = self.hub.files[name]
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{self.hub.sha256(name)}"', "Accept-Ranges": "bytes"}
        headers |= {"X-Linked-Size": str(len(data)), "X-Linked-Etag": f'"{self.hub.sha256(name)}"'}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        cut = self.hub.cut_at.pop(name, None) if with_body else None
        self.send(206 if start else 200, data[start:], headers, with_body=with_body, cut=cut)

    def send(
        self, status: int, body: bytes, headers: dict[str, str], *, with_body: bool = True, cut: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body[:cut])
        if cut is not None:
            self.close_connection = True

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub({"Model-Q8_0.gguf": TEXT, "Model-Q4_K_M.gguf": TEXT[:1000], "mmproj-Model-f16.gguf": MMPROJ, "README.md": b"x"})
    server = ThreadingHTTPServer(("127.0.0.1", 0), Speaker)
    server.hub = hub  # type: ignore[attr-defined]
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield hub
    server.shutdown()
    thread.join()
    server.server_close()


def model(**changes: object) -> KnownModel:
    """A model of the server's repository."""
    facts = {
        "name": "model",
        "title": "A model",
        "weights": "maker/Model",
        "gguf": REPOSITORY,
        "revision": None,
        "text": {"file": ("*Q8_0.gguf",), "about_mb": None, "sha256": None},
        "mmproj": {"file": ("*mmproj*.gguf",), "about_mb": None, "sha256": None},
        "licence": None,
        "longest_edge_px": None,
        "context": None,
        "settings": {},
        "runs": True,
        "note": "a note",
    }
    return KnownModel.model_validate(facts | changes)


def get(hub: Hub, folder: Path, **changes: object) -> tuple[registry.Pair, list[str]]:
    told: list[str] = []
    pair = pull(model(**changes), folder, told.append, endpoint=hub.address)
    return pair, told


# Pulling


def test_a_model_is_pulled_checked_and_found(hub: Hub, tmp_path: Path) -> None:
    pair, told = get(hub, tmp_path)
    assert (pair.text.read_bytes(), pair.mmproj.read_bytes()) == (TEXT, MMPROJ)
    assert installed(model(), tmp_path) == pair
    manifest = json.loads((tmp_path / "model/pagemill.json").read_bytes())
    assert (manifest["repository"], manifest["revision"]) == (REPOSITORY, COMMIT)
    assert manifest["files"]["text"] == {"name": "Model-Q8_0.gguf", "sha256": hashlib.sha256(TEXT).hexdigest()}
    assert [line.partition(":")[0] for line in told] == ["Model-Q8_0.gguf", "mmproj-Model-f16.gguf"]


def test_what_is_there_is_checked_and_not_fetched_again(hub: Hub, tmp_path: Path) -> None:
    get(hub, tmp_path)
    pair, told = get(hub, tmp_path)
    assert [line.endswith("is there already") for line in told] == [True, True]
    assert len(hub.downloads(pair.text.name)) == 1


def test_a_file_placed_by_hand_is_believed_only_if_it_is_right(hub: Hub, tmp_path: Path) -> None:
    place = tmp_path / "model"
    place.mkdir()
    (place / "Model-Q8_0.gguf").write_bytes(TEXT)
    (place / "mmproj-Model-f16.gguf").write_bytes(b"wrong")
    assert installed(model(), tmp_path).text == place / "Model-Q8_0.gguf"
    pair, _ = get(hub, tmp_path)
    assert hub.downloads("Model-Q8_0.gguf") == []
    assert pair.mmproj.read_bytes() == MMPROJ


def test_a_download_that_breaks_off_goes_on_where_it_stopped(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000)
    hub.cut_at["Model-Q8_0.gguf"] = 100_000
    pair, _ = get(hub, tmp_path)
    assert pair.text.read_bytes() == TEXT
    assert hub.downloads("Model-Q8_0.gguf") == ["", "bytes=100000-"]


@pytest.mark.parametrize(("kept", "range_"), [(TEXT[:123_456], "bytes=123456-"), (TEXT + b"x", ""), (TEXT, None)])
def test_a_pull_that_was_killed_goes_on_where_it_stopped(hub: Hub, tmp_path: Path, kept: bytes, range_: str | None) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / f"model/.Model-Q8_0.gguf.{COMMIT[:12]}{pulling.PART_SUFFIX}").write_bytes(kept)
    pair, _ = get(hub, tmp_path)
    assert pair.text.read_bytes() == TEXT
    assert hub.downloads("Model-Q8_0.gguf") == ([] if range_ is None else [range_])
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "Model-Q8_0.gguf",
        "mmproj-Model-f16.gguf",
        "pagemill.json",
    ]


@pytest.mark.parametrize("told_by", ["hub", "registry"])
def test_a_wrong_checksum_deletes_the_file_and_says_so(hub: Hub, tmp_path: Path, told_by: str) -> None:
    changes: dict[str, object] = {}
    if told_by == "hub":
        hub.told_sha256["Model-Q8_0.gguf"] = "f" * 64
    else:
        changes["text"] = {"file": ("*Q8_0.gguf",), "about_mb": None, "sha256": "f" * 64}
    with pytest.raises(ModelError, match=f"expected sha256 {'f' * 64}, found [0-9a-f]{{64}}; the file is deleted"):
        get(hub, tmp_path, **changes)
    assert list((tmp_path / "model").iterdir()) == []
    with pytest.raises(ConfigError, match="found none"):
        installed(model(), tmp_path)


def test_a_damaged_file_is_fetched_anew(hub: Hub, tmp_path: Path) -> None:
    pair, _ = get(hub, tmp_path)
    pair.text.write_bytes(TEXT[:-1] + bytes([TEXT[-1] ^ 1]))
    get(hub, tmp_path)
    assert pair.text.read_bytes() == TEXT


def test_another_file_of_the_repository_can_be_chosen(hub: Hub, tmp_path: Path) -> None:
    pair = pull(model(), tmp_path, lambda text: None, Choice(text="*Q4_K_M.gguf"), hub.address)
    assert pair.text.name == "Model-Q4_K_M.gguf"
    get(hub, tmp_path)
    assert installed(model(), tmp_path).text.name == "Model-Q8_0.gguf"  # both are there; the manifest knows which


@pytest.mark.parametrize(
    ("patterns", "says"),
    [(["*Q5_K.gguf"], "found Model-Q4_K_M.gguf, Model-Q8_0.gguf"), (["*.gguf"], "found Model-Q4_K_M.gguf, Model-Q8_0.gguf")],
)
def test_a_file_that_cannot_be_told_is_asked_for(hub: Hub, tmp_path: Path, patterns: list[str], says: str) -> None:
    with pytest.raises(InputError, match=f"{says}; name one with --text"):
        get(hub, tmp_path, text={"file": patterns, "about_mb": None, "sha256": None})


def test_the_first_pattern_that_fits_is_preferred(hub: Hub, tmp_path: Path) -> None:
    pair, _ = get(hub, tmp_path, text={"file": ["*F16.gguf", "*Q4_K_M.gguf", "*Q8_0.gguf"], "about_mb": None, "sha256": None})
    assert pair.text.name == "Model-Q4_K_M.gguf"


def test_a_repository_that_is_not_there_is_told(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"does not give the repository maker/Gone .*place both there"):
        get(hub, tmp_path, gguf="maker/Gone")


def test_without_a_network_the_way_by_hand_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        pull(model(), tmp_path, lambda text: None, endpoint="http://127.0.0.1:9")
    message = str(caught.value)
    assert "cannot be reached" in message
    assert f"bring *Q8_0.gguf and *mmproj*.gguf of the Hugging Face repository {REPOSITORY}" in message
    assert str(tmp_path / "model") in message


def test_a_full_disk_is_told_as_one(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **named: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("huggingface_hub.file_download.http_get", full)
    with pytest.raises(pulling.OutputError, match="No space left"):
        get(hub, tmp_path)


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"gguf": None}, InputError, "convert maker/Model with llama.cpp"),
        ({"runs": False}, ModelError, "does not run here: a note"),
    ],
)
def test_models_that_cannot_be_pulled_say_why(
    tmp_path: Path, changes: dict[str, object], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        pull(model(**changes), tmp_path, lambda text: None)


# The registry and jobs


def test_the_registry_holds_what_is_known_and_null_for_the_rest() -> None:
    models = known_models()
    assert {"lightonocr-3-1b", "lightonocr-2-1b", "lightonocr-1b-1025"} <= models.keys()
    for name, found in models.items():
        assert name == name.casefold()
        layered = load_config(None, {}, {("model", "name"): name})  # its settings are settings
        assert layered.model.name == name
        assert not found.runs or "/" in found.weights


def test_a_named_model_brings_its_settings_which_a_job_file_beats(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("model: {name: lightonocr-2-1b, folder: models}\nsampling: {top_p: 0.5}\n")
    config = load_config(job, {"PAGEMILL_ENGINE__MAX_TOKENS": "7"}, {})
    assert (config.sampling.temperature, config.sampling.top_p, config.engine.max_tokens) == (0.2, 0.5, 7)
    assert config.model.folder == str(tmp_path / "models")
    assert Config().sampling.temperature == 0.0


def test_a_name_alone_is_enough_in_a_job_file(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("model: lightonocr-3-1b\n")
    config = load_config(job, {}, {})
    assert (config.model.name, config.sampling.temperature) == ("lightonocr-3-1b", 0.2)
    job.write_text("# a comment\nmodel: lightonocr-9\n")
    with pytest.raises(ConfigError, match="model of the registry, found 'lightonocr-9'"):
        load_config(job, {}, {})


def test_a_job_uses_a_model_by_its_name(tmp_path: Path) -> None:
    place = tmp_path / "models/lightonocr-3-1b"
    place.mkdir(parents=True)
    for source in ("text-q8_0.gguf", "mmproj-f16.gguf"):
        (place / source).write_bytes((SAMPLE_FOLDERS[1] / source).read_bytes())
    section = load_config(None, {}, {("model", "name"): "LightOnOCR-3-1B", ("model", "folder"): str(tmp_path / "models")}).model
    files = find_model(section)
    assert (files.text, files.mmproj, files.embedded) == (place / "text-q8_0.gguf", place / "mmproj-f16.gguf", False)


def test_a_name_without_files_says_how_to_get_them(tmp_path: Path) -> None:
    config = Config.model_validate({"model": {"name": "lightonocr-2-1b", "folder": str(tmp_path)}})
    with pytest.raises(ConfigError, match=r"found none; run 'pagemill models pull lightonocr-2-1b', or without a network"):
        find_model(config.model)
    for name in ("a-Q8_0.gguf", "b-Q8_0.gguf", "mmproj-f16.gguf"):
        (tmp_path / "lightonocr-2-1b").mkdir(exist_ok=True)
        (tmp_path / "lightonocr-2-1b" / name).touch()
    with pytest.raises(ConfigError, match=r"found a-Q8_0\.gguf, b-Q8_0\.gguf"):
        find_model(config.model)


def test_wrong_names_and_mixed_settings_are_told() -> None:
    with pytest.raises(ConfigError, match="did you mean 'lightonocr-2-1b'"):
        known_model("lightonocr-2-1")
    with pytest.raises(ConfigError, match="models list"):
        load_config(None, {}, {("model", "name"): "zzz"})
    with pytest.raises(ConfigError, match="found both"):
        find_model(Config.model_validate({"model": {"name": "lightonocr-2-1b", "text": "x.gguf"}}).model)


def test_models_are_kept_in_the_users_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(registry.sys, "platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert models_folder(None) == tmp_path / "pagemill/models"
    assert models_folder(str(tmp_path)) == tmp_path
    monkeypatch.setattr(registry.sys, "platform", "darwin")
    assert models_folder(None).parts[-3:] == ("Application Support", "pagemill", "models")


# The command


def pagemill(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pagemill", "models", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


def test_the_command_lists_pulls_and_finds(hub: Hub, tmp_path: Path) -> None:
    global REPOSITORY
    before, name = REPOSITORY, "lightonocr-3-1b"
    REPOSITORY = str(known_model(name).gguf)
    try:
        listed = pagemill("list", "--folder", tmp_path)
        assert listed.returncode == 0
        assert "licence   Apache-2.0" in listed.stdout
        assert "size not known" in listed.stdout
        assert listed.stdout.count("here      no\n") == sum(model.runs for model in known_models().values())
        absent = pagemill("path", name, "--folder", tmp_path)
        assert (absent.returncode, "models pull" in absent.stderr) == (3, True)
        offline = pagemill("pull", name, "--folder", tmp_path, HF_ENDPOINT=hub.address, HF_HUB_OFFLINE="1")
        assert (offline.returncode, "place both there" in offline.stderr) == (4, True)
        pulled = pagemill("pull", name, "--folder", tmp_path, HF_ENDPOINT=hub.address)
        assert pulled.returncode == 0, pulled.stderr
        found = pagemill("path", name, "--folder", tmp_path, HF_HUB_OFFLINE="1")
        assert found.stdout == pulled.stdout
        text, mmproj = map(Path, found.stdout.splitlines())
        assert (text.read_bytes(), mmproj.read_bytes()) == (TEXT, MMPROJ)
    finally:
        REPOSITORY = before
