"""The chat template that a GGUF file carries: messages to the prompt text that its model was trained on.

Called by whoever talks to a chat model; the text is then encoded with parse_special.  A template is a program from a stranger:
it runs in jinja2's immutable sandbox, which lets it read the messages and nothing else; the prompt, its loops and what its
operators build are bounded, so that a careless template cannot take all memory or run for hours.
Names and filters are Hugging Face's (transformers.utils.chat_template_utils), because the templates are written for those.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Never

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pagemill.decoder.errors import ModelError
from pagemill.decoder.gguf.parse import Header
from pagemill.decoder.tokenizer.tokenizer import Tokenizer
from pagemill.decoder.tokenizer.vocabulary import PREFIX

KEY = "tokenizer.chat_template"
MAX_CHARACTERS = 16_000_000  # the longest prompt, and the longest string that an operator in a template may build
MAX_RANGE = 1_000_000  # how many numbers all ranges of one rendering may hold together

# Each has a role and a content: a string, or a list of {"type": "text", "text": ...} and {"type": "image"} parts.
Messages = Sequence[Mapping[str, object]]

_FAULTS = (
    TemplateError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RecursionError, MemoryError,
)  # fmt: skip  # whatever a wrong program in the sandbox can raise


class ChatTemplate:
    """One compiled template and the names of the model's special tokens.  Safe to share between threads."""

    def __init__(self, source: str, tokens: Mapping[str, str], clock: Callable[[], datetime] = datetime.now) -> None:
        """tokens: texts of bos_token and its like.  clock: what strftime_now reads.  Raises ModelError if it cannot compile."""
        environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        environment.filters["tojson"] = _to_json
        environment.globals |= {"raise_exception": _refuse, "strftime_now": lambda form: clock().strftime(form)}
        self._tokens = dict(tokens)
        try:
            self._template = environment.from_string(source)
        except _FAULTS as error:
            raise _failed("does not compile", error) from error

    @classmethod
    def from_header(cls, header: Header, tokenizer: Tokenizer) -> ChatTemplate | None:
        """The template of a file, or None if it has none."""
        source = header.text(KEY, default="")
        ids = {"bos_token": tokenizer.bos_id, "eos_token": tokenizer.eos_id}
        ids["pad_token"] = header.integer(PREFIX + "padding_token_id", default=-1)
        ids["unk_token"] = header.integer(PREFIX + "unknown_token_id", default=-1)
        known = range(tokenizer.vocab_size)
        tokens = {name: tokenizer.token_text(i) for name, i in ids.items() if i is not None and i in known}
        return cls(source, tokens) if source else None

    def render(self, messages: Messages, add_generation_prompt: bool = True) -> str:
        """The prompt text, ending where the model is to answer.  Raises ModelError if the template fails or refuses."""
        parts: list[str] = []
        characters = 0
        given: dict[str, object] = {"messages": messages, "add_generation_prompt": add_generation_prompt}
        given |= {"tools": None, "documents": None, "range": _bounded_range(), **self._tokens}
        try:
            for part in self._template.generate(given):
                parts.append(part)
                characters += len(part)
                if characters > MAX_CHARACTERS:
                    raise OverflowError(f"the prompt grew beyond {MAX_CHARACTERS} characters")
        except _FAULTS as error:
            raise _failed("failed", error) from error
        return "".join(parts)


class _Sandbox(ImmutableSandboxedEnvironment):
    """The sandbox, with sizes bounded where one short expression could ask for all memory."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        """One of the intercepted operators."""
        match operator, left, right:
            case "*", str() | list() | tuple(), int():
                _bound(len(left) * right)
            case "*", int(), str() | list() | tuple():
                _bound(len(right) * left)
            case "*", int(), int():
                _bound(left.bit_length() + right.bit_length())
            case "**", int(), int():
                _bound(left.bit_length() * abs(right))
            case "%", str(), _ if re.search(r"\d{6}|\*", left):
                raise ValueError(f"the format {left[:40]!r} asks for a field of more than 99,999 characters")
        return super().call_binop(context, operator, left, right)


class _Generation(Extension):
    """The block ``{% generation %}``, which only marks for training what the assistant wrote."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The block's body, as if the marks were not there."""
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))


def _bounded_range() -> Callable[..., range]:
    """range for one rendering."""
    left = MAX_RANGE

    def bounded(*limits: int) -> range:
        nonlocal left
        numbers = range(*limits)
        left -= len(numbers)
        if left < 0:
            raise OverflowError(f"its ranges hold more than {MAX_RANGE} numbers")
        return numbers

    return bounded


def _bound(size: int) -> None:
    if size > MAX_CHARACTERS:
        raise OverflowError(f"an expression would build a value of size {size}, the limit is {MAX_CHARACTERS}")


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without jinja2's escapes for HTML; indent is bounded like the rest."""
    _bound(indent or 0)
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> Never:
    raise TemplateError(message)


def _failed(what: str, error: BaseException) -> ModelError:
    line = getattr(error, "lineno", None)
    where = f" (line {line})" if line else ""
    found = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return ModelError(
        f"the chat template in {KEY} {what}{where}: {found}; check the messages, or give the prompt as plain text"
    )
