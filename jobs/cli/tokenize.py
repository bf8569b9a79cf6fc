"""``pagemill tokenize``: token ids of a text, for people who compare tokenizers."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from pagemill.decoder import Tokenizer, open_file
from pagemill.jobs.cli.options import ModelPath
from pagemill.jobs.errors import InputError


def command(
    model: ModelPath,
    parse_special: Annotated[
        bool, typer.Option("--parse-special", help="Read the names of special tokens as these tokens.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list instead of one id a line.")] = False,
) -> int:
    """``pagemill tokenize``."""
    header, _ = open_file(model)
    tokenizer = Tokenizer.from_header(header)
    data = sys.stdin.buffer.read()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"standard input: expected UTF-8, found byte {data[error.start]:#04x} at {error.start}") from error
    ids = tokenizer.encode(text, parse_special=parse_special)
    print(json.dumps(ids) if as_json else "\n".join(map(str, ids)))
    return 0
