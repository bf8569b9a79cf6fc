"""The command line: one function a command.  Only this module and ``commands`` print, and only ``main`` exits.

A command's work lies in ``commands``, imported when it runs: ``--help`` loads no numpy and no engine.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from pagemill.jobs.cli.cli_eval import evaluate
from pagemill.jobs.cli.cli_models import models_app

app = typer.Typer(
    name="pagemill",
    help="Transcribes document archives with vision-language OCR models on the machines people own.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(models_app, name="models")


class ProgressKind(StrEnum):
    """How progress is shown."""

    AUTO = "auto"
    RICH = "rich"
    TQDM = "tqdm"
    JSON = "json"
    NONE = "none"


class KvCache(StrEnum):
    """How keys and values are kept."""

    F32 = "f32"
    F16 = "f16"
    Q8_0 = "q8_0"


class Precision(StrEnum):
    """Of the vision encoder's matrix products."""

    AUTO = "auto"
    F32 = "f32"
    BF16 = "bf16"
    INT8 = "int8"


ModelPath = Annotated[Path, typer.Argument(metavar="MODEL.gguf", help="The text model.", show_default=False)]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Compute threads.  [default: one a physical core]", show_default=False)
]


@app.command()
def run(
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="JOB.yaml | FILE...", help="A job file, or documents and folders of them.", show_default=False),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Output folder.  [default: out]", show_default=False)
    ] = None,
    formats: Annotated[
        str | None, typer.Option("--format", help="Any of text,markdown,html,... as in config.yaml.", show_default=False)
    ] = None,
    text_model: Annotated[
        Path | None,
        typer.Option("--model", help="The text model's GGUF file.  [default: the sample model]", show_default=False),
    ] = None,
    mmproj: Annotated[Path | None, typer.Option(help="Its vision encoder's GGUF file.", show_default=False)] = None,
    threads: Threads = None,
    slots: Annotated[int | None, typer.Option(min=1, help="Pages decoded at once.  [default: 16]", show_default=False)] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens a page may have.  [default: 4096]", show_default=False)
    ] = None,
    password: Annotated[str | None, typer.Option(help="Of encrypted PDFs.", show_default=False)] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Do pages again that failed in an earlier run.")] = False,
    progress: Annotated[
        ProgressKind | None, typer.Option(help="How to show progress.  [default: auto]", show_default=False)
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write where the time goes, for ui.perfetto.dev.", show_default=False),
    ] = None,
) -> int:
    """Transcribe documents.  The same command again does only what is missing."""
    from pagemill.jobs.cli.run import run_documents

    return run_documents(
        inputs,
        {
            ("output", "folder"): None if output is None else str(output),
            ("output", "formats"): None if formats is None else [name.strip() for name in formats.split(",") if name.strip()],
            ("model", "text"): None if text_model is None else str(text_model),
            ("model", "mmproj"): None if mmproj is None else str(mmproj),
            ("engine", "threads"): threads,
            ("engine", "slots"): slots,
            ("engine", "max_tokens"): max_tokens,
            ("input", "password"): password,
            ("run", "retry_failed"): retry_failed or None,
            ("run", "progress"): None if progress is None else progress.value,
            ("run", "trace"): None if trace is None else str(trace),
        },
    )


@app.command()
def check(
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="JOB.yaml | FILE...", help="A job file, or documents and folders of them.", show_default=False),
    ],
    sample: Annotated[int, typer.Option(min=0, help="Pages to read for the estimate; 0: none.")] = 5,
    threads: Threads = None,
    password: Annotated[str | None, typer.Option(help="Of encrypted PDFs.", show_default=False)] = None,
) -> int:
    """Say what a job would read, which files are bad, and about what it would take.  Writes nothing."""
    from pagemill.jobs.cli.check import check_job

    return check_job(inputs, {("engine", "threads"): threads, ("input", "password"): password}, sample)


@app.command("retry-failed")
def retry_failed(
    target: Annotated[
        Path, typer.Argument(metavar="JOB.yaml | DIR", help="A job file, or the output folder of a run.", show_default=False)
    ],
    statuses: Annotated[str, typer.Option("--status", help="Any of failed,looped,truncated,low_confidence,blank.")] = "failed",
    threads: Threads = None,
    password: Annotated[str | None, typer.Option(help="Of encrypted PDFs.", show_default=False)] = None,
    progress: Annotated[
        ProgressKind | None, typer.Option(help="How to show progress.  [default: auto]", show_default=False)
    ] = None,
) -> int:
    """Do pages again that ended badly, and what is missing."""
    from pagemill.jobs.cli.retry_failed import retry_failed as retry

    return retry(
        target,
        [name.strip() for name in statuses.split(",") if name.strip()],
        {
            ("engine", "threads"): threads,
            ("input", "password"): password,
            ("run", "progress"): None if progress is None else progress.value,
        },
    )


OutputFolder = Annotated[Path, typer.Argument(metavar="DIR", help="The output folder of a run.", show_default=False)]


@app.command()
def status(
    folder: OutputFolder, as_json: Annotated[bool, typer.Option("--json", help="One JSON object for machines.")] = False
) -> int:
    """Say how far an output folder is: pages by status, reasons, who works on it."""
    from pagemill.jobs.cli.status import print_status

    return print_status(folder, as_json=as_json)


@app.command()
def verify(folder: OutputFolder) -> int:
    """Compare an output folder with its ledger: name every file that is missing or changed."""
    from pagemill.jobs.cli.verify import verify_folder

    return verify_folder(folder)


@app.command()
def review(
    folder: OutputFolder,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write.  [default: DIR/review.html]", show_default=False)
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="Another run's output folder, to show what differs.", show_default=False)
    ] = None,
    image_px: Annotated[int, typer.Option(min=0, max=10_000, help="Longest side of page images; 0: none.")] = 1400,
    password: Annotated[str | None, typer.Option(help="Of encrypted PDFs, for their images.", show_default=False)] = None,
) -> int:
    """Write an HTML file to look through a run: page images beside their text, filters, differences.  No server."""
    from pagemill.jobs.cli.review import ReviewWish, write_review

    return write_review(folder, ReviewWish(output, against, image_px, password))


@app.command()
def watch(
    job: Annotated[
        Path, typer.Argument(metavar="JOB.yaml", help="Its input.paths are the folders to watch.", show_default=False)
    ],
    once: Annotated[bool, typer.Option("--once", help="End when everything that is there has ended.")] = False,
    threads: Threads = None,
    progress: Annotated[
        ProgressKind | None, typer.Option(help="How to show progress.  [default: auto]", show_default=False)
    ] = None,
) -> int:
    """Transcribe what arrives in folders, until told to stop."""
    from pagemill.jobs.cli.watch import watch_folders

    flags = {("engine", "threads"): threads, ("run", "progress"): None if progress is None else progress.value}
    return watch_folders(job, flags, once=once)


app.command("eval")(evaluate)


@app.command()
def generate(
    model: ModelPath,
    prompt: Annotated[str, typer.Option("--prompt", "-p", help="What the text begins with, or the question with --chat.")],
    max_tokens: Annotated[int, typer.Option("-n", "--max-tokens", min=1, help="Tokens to generate at most.")] = 128,
    temperature: Annotated[float, typer.Option("--temp", min=0.0, help="0 always takes the likeliest token.")] = 0.0,
    top_k: Annotated[int, typer.Option(min=0, help="Only the k likeliest tokens; 0: all.")] = 0,
    top_p: Annotated[float, typer.Option(min=0.0, max=1.0, help="Only the likeliest that together reach this.")] = 1.0,
    min_p: Annotated[float, typer.Option(min=0.0, max=1.0, help="Only those so likely beside the likeliest.")] = 0.0,
    repeat_penalty: Annotated[float, typer.Option(min=1.0, help="Divides the logits of recent tokens.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Of the random choice.")] = 0,
    chat: Annotated[bool, typer.Option("--chat", help="Put the prompt into the model's chat template.")] = False,
    system: Annotated[str | None, typer.Option(help="System message, with --chat.", show_default=False)] = None,
    kv_cache: Annotated[KvCache, typer.Option(help="How keys and values are kept.")] = KvCache.F16,
    threads: Threads = None,
) -> int:
    """Continue a text with a text model; the text goes to standard output as it comes."""
    from pagemill.jobs.cli.generate import Wish, generate_text

    sampling = (temperature, top_k, top_p, min_p, repeat_penalty, seed)
    return generate_text(model, Wish(prompt, max_tokens, sampling, chat, system), kv_cache.value, threads)


@app.command()
def plan(
    model: ModelPath, kv_cache: Annotated[KvCache, typer.Option(help="How keys and values are kept.")] = KvCache.F16
) -> int:
    """Say from a model's header how it would run, or every reason why it cannot.  Reads no weight."""
    from pagemill.jobs.cli.plan import print_plan

    return print_plan(model, kv_cache.value)


@app.command()
def doctor() -> int:
    """Say what this machine offers: CPU variant, threads, memory, encoder backends."""
    from pagemill.jobs.cli.doctor import print_report

    return print_report()


@app.command()
def logits(
    model: ModelPath,
    tokens: Annotated[Path, typer.Option(help="Token ids: a .npy file, one dimension of integers.")],
    out: Annotated[Path, typer.Option(help="Where to write the logits: (tokens, vocabulary) float32 .npy.")],
    kv_cache: Annotated[KvCache, typer.Option(help="How keys and values are kept.")] = KvCache.F16,
    exact_activations: Annotated[
        bool, typer.Option("--exact-activations", help="float32 activations instead of int8.")
    ] = False,
    threads: Threads = None,
) -> int:
    """Write a text model's logits at every position, for comparing engines."""
    from pagemill.jobs.cli.compare import write_logits

    return write_logits(model, tokens, out, kv_cache=kv_cache.value, exact=exact_activations, threads=threads)


@app.command("encode-image")
def encode_image(
    mmproj: Annotated[Path, typer.Argument(metavar="MMPROJ.gguf", help="The vision encoder.", show_default=False)],
    image: Annotated[
        Path | None, typer.Argument(metavar="[IMAGE]", help="Needed unless --pixels is given.", show_default=False)
    ] = None,
    out: Annotated[Path, typer.Option(help="Where to write the rows: (rows, width) float32 .npy.")] = Path("embeddings.npy"),
    pixels: Annotated[
        Path | None, typer.Option(help="A (3, H, W) float32 .npy that replaces preprocessing.", show_default=False)
    ] = None,
    precision: Annotated[Precision, typer.Option(help="Of matrix products.")] = Precision.AUTO,
    multiple_px: Annotated[int, typer.Option(help="Both sides become a multiple of it: 28 or 14.")] = 28,
    threads: Threads = None,
) -> int:
    """Write the embedding rows of an image, for comparing encoders."""
    from pagemill.jobs.cli.compare import write_embeddings

    return write_embeddings(mmproj, image, pixels, out, precision=precision.value, multiple_px=multiple_px, threads=threads)


@app.command()
def tokenize(
    model: ModelPath,
    parse_special: Annotated[
        bool, typer.Option("--parse-special", help="Read the names of special tokens as these tokens.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list instead of one id a line.")] = False,
) -> int:
    """Turn the text on standard input (UTF-8) into token ids on standard output."""
    from pagemill.jobs.cli.compare import print_tokens

    return print_tokens(model, parse_special=parse_special, as_json=as_json)


def _print_version(wanted: bool) -> None:
    if wanted:
        from pagemill import __version__

        print(f"pagemill {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> NoReturn:
    """Runs the command line and exits with one of EXIT_CODES; an expected error is one message, not a trace."""
    try:
        code = app(standalone_mode=False)
    except Exception as error:
        code = _explain(error)
        if code is None:
            raise
    sys.exit(code if isinstance(code, int) else 0)


def _explain(error: Exception) -> int | None:
    """Tells an expected error on standard error; returns its exit code, None for an error that nobody expected."""
    if isinstance(error, typer.Abort):
        return 128 + 2
    exit_code = getattr(error, "exit_code", None)  # an error of typer's: wrong command or option
    if isinstance(exit_code, int) and hasattr(error, "show"):
        error.show()
        return exit_code
    from pagemill.jobs.cli.exit_codes import exit_code_of

    code = exit_code_of(error)
    if code is not None:
        lines = str(error).splitlines() or [type(error).__name__]
        print("\n".join(f"pagemill: {line}" for line in lines), file=sys.stderr)
    return code
