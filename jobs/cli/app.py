"""The command line: one file a command, imported when it is asked for, so that ``--help`` loads no numpy and no engine.

Only files of this folder print, and only ``main`` exits.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from pagemill.jobs.cli.expanding import expanded

# Each command's name and sentence. ``command`` of the module of that name is its function, or a group of them.
COMMANDS = {
    "run": "Transcribe documents.  The same command again does only what is missing.",
    "check": "Say what a job would read, which files are bad, and about what it would take.  Writes nothing.",
    "retry-failed": "Do pages again that ended badly, and what is missing.",
    "status": "Say how far an output folder is: pages by status, reasons, who works on it.",
    "verify": "Compare an output folder with its ledger: name every file that is missing or changed.",
    "review": "Write an HTML file to look through a run: page images beside their text, filters, differences.  No server.",
    "watch": "Transcribe what arrives in folders, until stopped.",
    "eval": "Measure how well runs read: character and word error rates with intervals, or page tests.",
    "models": "Real models by name: list them, fetch their files, say where they lie.",
    "generate": "Continue a text with a text model; the text goes to standard output as it comes.",
    "plan": "Say from a model's header how it would run, or every reason why it cannot.  Reads no weight.",
    "doctor": "Say what this machine offers: CPU variant, threads, memory, encoder backends.",
    "logits": "Write a text model's logits at every position, for comparing engines.",
    "encode-image": "Write the embedding rows of an image, for comparing encoders.",
    "tokenize": "Turn the text on standard input (UTF-8) into token ids on standard output.",
}


class LazyCommands(TyperGroup):
    """The commands of COMMANDS, imported one by one."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """One of them."""
        if cmd_name not in COMMANDS:
            return None
        command: Any = import_module(f"pagemill.jobs.cli.{cmd_name.replace('-', '_')}").command
        if not isinstance(command, typer.Typer):
            single = typer.Typer(add_completion=False, rich_markup_mode=None)
            single.command(cmd_name)(expanded(command))
            command = single
        loaded = typer.main.get_command(command)
        loaded.name, loaded.help = cmd_name, COMMANDS[cmd_name]
        return loaded

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The table of commands, none of which it imports."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


app = typer.Typer(
    name="pagemill",
    help="Transcribes document archives with vision-language OCR models on the machines people own.",
    cls=LazyCommands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
    """Prints an expected error on standard error; returns its exit code, None for an error that nobody expected."""
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
