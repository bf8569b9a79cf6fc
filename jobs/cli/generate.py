"""``pagemill generate``: continue a text."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer

from pagemill.decoder import Engine, Model, ModelError, Prompt, Request, Sampling, Tokenizer, Tokens, open_model
from pagemill.jobs.cli.options import Cpu, KvCache, KvCacheType, ModelPath, Threads
from pagemill.jobs.run.spec import check_threads


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """What to continue, and how far."""

    prompt: Annotated[str, typer.Option("--prompt", "-p", help="What the text begins with, or the question with --chat.")]
    max_tokens: Annotated[int, typer.Option("-n", "--max-tokens", min=1, help="Tokens to generate at most.")] = 128
    chat: Annotated[bool, typer.Option("--chat", help="Put the prompt into the model's chat template.")] = False
    system: Annotated[str | None, typer.Option(help="System message, with --chat.", show_default=False)] = None


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How the next token is chosen."""

    temperature: Annotated[float, typer.Option("--temp", min=0.0, help="Sampling temperature; 0: greedy.")] = 0.0
    top_k: Annotated[int, typer.Option(min=0, help="Top-k sampling: the k most probable tokens; 0: all.")] = 0
    top_p: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Nucleus sampling: the smallest set with this total probability.")
    ] = 1.0
    min_p: Annotated[float, typer.Option(min=0.0, max=1.0, help="Drop tokens below this share of the top probability.")] = 0.0
    repeat_penalty: Annotated[float, typer.Option(min=1.0, help="Divides the logits of recent tokens.")] = 1.0
    seed: Annotated[int, typer.Option(min=0, help="Of the random choice.")] = 0

    @property
    def sampling(self) -> Sampling:
        """As the engine takes it."""
        penalty = self.repeat_penalty
        return Sampling(self.temperature, self.top_k, self.top_p, self.min_p, repetition_penalty=penalty, seed=self.seed)


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What the engine runs on."""

    kv_cache: KvCache = KvCacheType.F16
    threads: Threads = None
    cpu: Cpu = None


def command(model: ModelPath, prompt: PromptOptions, sampling: SamplingOptions, engine: EngineOptions) -> int:
    """``pagemill generate``."""
    kv_cache, threads = engine.kv_cache.value, engine.threads
    check_threads(threads)
    with _ended_by_a_closed_pipe():
        opened = open_model(model, kv_cache=kv_cache, cpu=engine.cpu or "auto")
        ids = _chat_ids(opened, prompt.prompt, prompt.system) if prompt.chat else _text_ids(opened, prompt.prompt)
        context = len(ids) + prompt.max_tokens
        if context > opened.spec.context:
            raise ModelError(
                f"expected a prompt and an answer of at most {opened.spec.context} tokens together, "
                f"found {len(ids)} and {prompt.max_tokens}; shorten the prompt or give a smaller -n"
            )
        stop_ids = frozenset(opened.tokenizer.eos_ids)
        request = Request(Prompt((Tokens(tuple(ids)),)), prompt.max_tokens, sampling.sampling, stop_ids)
        with closing(Engine(opened, slots=1, context=context, threads=threads, kv_cache=kv_cache)) as running:
            _stream(running, request, opened.tokenizer)
    return 0


@contextmanager
def _ended_by_a_closed_pipe() -> Iterator[None]:
    """When `head` has read enough, end quietly as other programs do."""
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGPIPE, before)


def _text_ids(model: Model, prompt: str) -> list[int]:
    ids = model.tokenizer.encode(prompt, add_special=True)
    if not ids:
        raise ModelError("expected a prompt of at least one token, found an empty one; give some text with -p")
    return ids


def _chat_ids(model: Model, prompt: str, system: str | None) -> list[int]:
    if model.template is None:
        raise ModelError(f"{model.planned.path}: expected a chat template in the file for --chat, found none; leave --chat out")
    messages = [{"role": "system", "content": system}] if system is not None else []
    text = model.template.render([*messages, {"role": "user", "content": prompt}], add_generation_prompt=True)
    return model.tokenizer.encode(text, parse_special=True)


def _stream(engine: Engine, request: Request, tokenizer: Tokenizer) -> None:
    text = tokenizer.detokenizer()
    for event in engine.stream(request):
        if event.finish == "broken":
            raise ModelError("expected finite logits, found NaN: the model's weights are damaged, or do not suit this text")
        if event.token not in request.stop_ids:
            sys.stdout.write(text.push(event.token))
            sys.stdout.flush()
    sys.stdout.write(text.flush() + "\n")
