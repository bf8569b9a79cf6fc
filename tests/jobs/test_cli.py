"""The command line: what it says and with which code it exits, from the outside."""

from __future__ import annotations

import inspect
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pytest
import typer
from PIL import Image, ImageDraw

from pagemill.jobs.cli import app as cli
from pagemill.jobs.cli import codes
from pagemill.jobs.cli.app import COMMANDS
from pagemill.jobs.cli.expanding import expanded
from pagemill.jobs.models.files import SAMPLE_FOLDERS
from tests.jobs.echo_job import open_echo
from tests.jobs.test_kill import count_done

ROOT = Path(__file__).parents[2]
MODEL = SAMPLE_FOLDERS[1] / "text-q8_0.gguf"
MMPROJ = SAMPLE_FOLDERS[1] / "mmproj-f16.gguf"


@dataclass
class Said:
    code: int
    out: str
    err: str


Pagemill = Callable[..., Said]


@pytest.fixture
def pagemill(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Pagemill:
    """Runs a command line in this process."""

    def call(*arguments: object, stdin: bytes = b"") -> Said:
        monkeypatch.setattr(sys, "argv", ["pagemill", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfd.readouterr()
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        out, err = capfd.readouterr()
        return Said(int(exit_.value.code or 0), out, err)

    return call


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "page.png"
    path.parent.mkdir()
    image = Image.new("L", (140, 84), 255)
    ImageDraw.Draw(image).text((8, 8), "hello", fill=0)
    image.save(path)
    return path


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> None:
    """``pagemill run`` without an engine."""
    monkeypatch.setattr("pagemill.jobs.run.opening.open_reader", open_echo)


def test_help_and_version_are_fast_and_load_no_engine() -> None:
    code = (
        "import sys; sys.argv[1:] = ['--help']; from pagemill.jobs.cli.app import main\n"
        "try: main()\nfinally: print(sorted(sys.modules))"
    )
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "Transcribes document archives" in said.stdout
    assert not re.search(r"'(numpy|numba|yaml|PIL|pypdfium2|pagemill\.(decoder|vision|pipeline))'", said.stdout)


def test_every_command_has_help(pagemill: Pagemill) -> None:
    commands = re.findall(r"^  (\S+) +\w", pagemill("--help").out.partition("Commands:")[2], re.MULTILINE)
    assert {"run", "generate", "plan", "doctor", "logits", "encode-image", "tokenize"} <= set(commands)
    for command in commands:
        assert pagemill(command, "--help").code == 0


def test_version(pagemill: Pagemill) -> None:
    assert pagemill("--version").out.startswith("pagemill ")


def test_run_writes_a_page_and_says_which_model_it_used(pagemill: Pagemill, page: Path, echo: None, tmp_path: Path) -> None:
    said = pagemill("run", page, "-o", tmp_path / "out", "--format", "markdown,text", "--progress", "none")
    assert said.code == 0
    assert said.out == ""
    assert said.err.count("the sample model") == 1
    assert "1 pages: 1 ok; 1 of them now" in said.err
    assert sorted(path.name for path in (tmp_path / "out").glob("page.*")) == ["page.md", "page.txt"]
    assert "1 pages: 1 ok; 0 of them now" in pagemill("run", page, "-o", tmp_path / "out", "--progress", "none").err


def test_job_file_says_it_all(pagemill: Pagemill, page: Path, echo: None, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("input: {paths: [in]}\noutput: {folder: texts, formats: [jsonl]}\nrun: {progress: none}\n", encoding="utf-8")
    assert pagemill("run", job).code == 0
    (line,) = (tmp_path / "texts" / "page.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["status"] == "ok"


def test_json_progress_is_all_that_standard_output_holds(pagemill: Pagemill, page: Path, echo: None, tmp_path: Path) -> None:
    said = pagemill("run", page, "-o", tmp_path / "out", "--progress", "json")
    events = [json.loads(line) for line in said.out.splitlines()]
    assert {event["event"] for event in events} == {"progress", "note"}
    assert [event for event in events if event["event"] == "progress"][-1]["done"] == 1
    assert said.err == ""


def test_bad_document_among_good_ones_fails_alone(pagemill: Pagemill, page: Path, echo: None, tmp_path: Path) -> None:
    (page.parent / "bad.pdf").write_bytes(b"no pdf")
    (page.parent / "empty.png").write_bytes(b"")
    said = pagemill("run", page.parent, "-o", tmp_path / "out", "--progress", "none")
    assert said.code == codes.SOME_FAILED
    assert "3 pages: 1 ok, 2 failed" in said.err
    assert "bad.pdf, page 1: failed: not a document" in said.err
    assert "empty.png, page 1: failed: file is empty" in said.err
    assert "failed" in (tmp_path / "out" / "bad.md").read_text(encoding="utf-8")


BAD = {
    "no command": (["frobnicate"], 2, "No such command 'frobnicate'"),
    "no such option": (["run", "{page}", "--frob"], 2, "No such option"),
    "format that is not": (["run", "{page}", "--format", "docx"], 3, "'mets', found 'docx'"),
    "job file that is not": (["run", "nope.yaml"], 3, "nope.yaml: cannot read the job file"),
    "job file among documents": (["run", "{page}", "job.yaml"], 3, "expected one job file or documents"),
    "more threads than cores": (["run", "{page}", "-o", "{out}", "--threads", "9999"], 3, "engine.threads: expected at most"),
    "one of two model files": (["run", "{page}", "--model", "m.gguf"], 3, "model.mmproj: expected both"),
    "missing input": (["run", "nope.pdf", "-o", "{out}"], 4, "found nothing at: nope.pdf"),
    "missing model": (["run", "{page}", "--model", "a.gguf", "--mmproj", "b.gguf"], 3, "a.gguf cannot be read"),
    "model that is none": (["run", "{page}", "--model", "{page}", "--mmproj", "{mmproj}"], 5, "not a GGUF file"),
    "mmproj that is a text model": (["run", "{page}", "--model", "{model}", "--mmproj", "{model}"], 5, "general.architecture"),
    "output folder below a file": (["run", "{page}", "-o", "{page}/out"], 6, "expected a folder that can be written"),
    "plan of no model": (["plan", "{page}"], 5, "not a GGUF file"),
    "plan of a missing file": (["plan", "nope.gguf"], 5, "no such file"),
    "tokens that are none": (["logits", "{model}", "--tokens", "{page}", "--out", "{out}"], 4, "expected a .npy file"),
    "neither image nor pixels": (["encode-image", "{mmproj}"], 4, "expected an IMAGE or --pixels FILE.npy, found neither"),
    "image that is none": (["encode-image", "{mmproj}", "{mmproj}", "--out", "{out}"], 4, "expected an image"),
    "encoder that is none": (["encode-image", "{model}", "{page}", "--out", "{out}"], 5, "general.architecture"),
    "empty prompt": (["generate", "{model}", "-p", ""], 5, "expected a prompt of at least one token"),
}


@pytest.mark.parametrize("name", BAD)
def test_expected_error_is_one_message_with_its_code(pagemill: Pagemill, page: Path, tmp_path: Path, name: str) -> None:
    arguments, code, message = BAD[name]
    places = {"page": page, "out": tmp_path / "out", "model": MODEL, "mmproj": MMPROJ}
    said = pagemill(*[argument.format(**places) for argument in arguments])
    assert said.code == code
    assert message in said.err
    assert "Traceback" not in said.err
    assert code in codes.EXIT_CODES


def test_damaged_ledger_is_told(pagemill: Pagemill, page: Path, echo: None, tmp_path: Path) -> None:
    (tmp_path / "out" / ".pagemill").mkdir(parents=True)
    (tmp_path / "out" / ".pagemill" / "ledger.sqlite3").write_bytes(b"x" * 5000)
    said = pagemill("run", page, "-o", tmp_path / "out", "--progress", "none")
    assert (said.code, "expected a Pagemill ledger" in said.err) == (8, True)


def test_unexpected_error_keeps_its_trace(pagemill: Pagemill, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("pagemill.jobs.cli.doctor.command", fail)
    monkeypatch.setattr(sys, "argv", ["pagemill", "doctor"])
    with pytest.raises(ZeroDivisionError):
        cli.main()


def test_tokenize_reads_standard_input_and_writes_ids(pagemill: Pagemill) -> None:
    as_json = pagemill("tokenize", MODEL, "--json", stdin="Grüße <|im_end|>".encode())
    as_lines = pagemill("tokenize", MODEL, stdin="Grüße <|im_end|>".encode())
    special = pagemill("tokenize", MODEL, "--json", "--parse-special", stdin="Grüße <|im_end|>".encode())
    assert json.loads(as_json.out) == [int(line) for line in as_lines.out.split()]
    assert len(json.loads(special.out)) < len(json.loads(as_json.out))
    assert pagemill("tokenize", MODEL, stdin=b"\xff").code == 4


def test_plan_and_doctor_print_tables(pagemill: Pagemill) -> None:
    assert re.search(r"^architecture +\w+$", pagemill("plan", MODEL).out, re.MULTILINE)
    doctor = pagemill("doctor")
    assert doctor.code == 0
    for fact in ("cpu variant", "threads", "memory", "encoder backends"):
        assert re.search(rf"^{fact}  +\S", doctor.out, re.MULTILINE)


def test_given_pixels_replace_preprocessing(pagemill: Pagemill, tmp_path: Path) -> None:
    np.save(tmp_path / "pixels.npy", np.zeros((3, 56, 84), np.float32))
    said = pagemill("encode-image", MMPROJ, "--pixels", tmp_path / "pixels.npy", "--out", tmp_path / "rows.npy")
    assert said.code == 0, said.err
    rows = np.load(tmp_path / "rows.npy")
    assert rows.dtype == np.float32
    assert len(rows) == 2 * 3


def test_generate_leaves_the_way_with_closed_pipes_as_it_was(pagemill: Pagemill) -> None:
    """A closed pipe ends the command; whatever runs in the process after it, writing to one is an error again."""
    before = signal.getsignal(signal.SIGPIPE)
    assert pagemill("generate", MODEL, "-p", "").code == 5
    assert signal.getsignal(signal.SIGPIPE) is before


def test_interrupted_run_ends_resumable(tmp_path: Path, page: Path) -> None:
    frames = [Image.new("L", (140, 84), 255 - index) for index in range(200)]
    frames[0].save(page.parent / "many.tiff", save_all=True, append_images=frames[1:])
    command = [sys.executable, "-m", "tests.jobs.echo_job", str(tmp_path / "out"), str(page.parent)]
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        before = count_done(tmp_path / "out")
        process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        while count_done(tmp_path / "out") < before + 3:
            assert process.poll() is None
            time.sleep(0.02)
        os.kill(process.pid, number)
        said = process.communicate(timeout=60)[1]
        assert process.returncode == code
        assert "left" in said
        assert "the same command goes on from here" in said
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stderr
    assert "201 pages: 201 ok" in said


@dataclass(frozen=True)
class Options:
    needed: Annotated[int, typer.Option("--needed")]
    more: Annotated[str, typer.Option()] = "none"


def test_a_record_of_options_becomes_an_option_each() -> None:
    seen: list[object] = []

    def command(name: str, options: Options) -> int:
        seen.append((name, options))
        return 0

    given = inspect.signature(expanded(command)).parameters
    empty = inspect.Parameter.empty
    assert {name: one.default for name, one in given.items()} == {"name": empty, "needed": empty, "more": "none"}
    assert expanded(command)(name="a", needed=3, more="b") == 0
    assert seen == [("a", Options(3, "b"))]


def test_every_command_is_a_module_of_its_name() -> None:
    folder = ROOT / "jobs" / "cli"
    assert all((folder / f"{name.replace('-', '_')}.py").is_file() for name in COMMANDS)
