"""``pagemill generate``: continue a text."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pagemill.decoder import Engine, Model, ModelError, Prompt, Request, Sampling, Tokenizer, Tokens, open_model
from pagemill.jobs.run.spec import check_threads


@dataclass(frozen=True, slots=True)
class Wish:
    """What to generate.  sampling: temperature, top_k, top_p, min_p, repetition penalty, seed."""

    prompt: str
    max_tokens: int
    sampling: tuple[float, int, float, float, float, int]
    chat: bool
    system: str | None


def generate_text(path: Path, wish: Wish, kv_cache: str, threads: int | None) -> int:
    """Prints the text as it comes, whole characters at a time."""
    with _ended_by_a_closed_pipe():
        return _generate(path, wish, kv_cache, threads)


@contextmanager
def _ended_by_a_closed_pipe() -> Iterator[None]:
    """When `head` has read enough, end quietly as other programs do."""
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGPIPE, before)


def _generate(path: Path, wish: Wish, kv_cache: str, threads: int | None) -> int:
    check_threads(threads)
    model = open_model(path, kv_cache=kv_cache)
    tokenizer = model.tokenizer
    ids = _prompt_ids(model, wish)
    context = len(ids) + wish.max_tokens
    if context > model.spec.context:
        raise ModelError(
            f"expected a prompt and an answer of at most {model.spec.context} tokens together, "
            f"found {len(ids)} and {wish.max_tokens}; shorten the prompt or give a smaller -n"
        )
    temperature, top_k, top_p, min_p, penalty, seed = wish.sampling
    sampling = Sampling(temperature, top_k, top_p, min_p, repetition_penalty=penalty, seed=seed)
    request = Request(Prompt((Tokens(tuple(ids)),)), wish.max_tokens, sampling, frozenset(tokenizer.eos_ids))
    engine = Engine(model, slots=1, context=context, threads=threads, kv_cache=kv_cache)
    try:
        _stream(engine, request, tokenizer)
    finally:
        engine.close()
    return 0


def _prompt_ids(model: Model, wish: Wish) -> list[int]:
    tokenizer, template = model.tokenizer, model.template
    if not wish.chat:
        ids = tokenizer.encode(wish.prompt, add_special=True)
        if not ids:
            raise ModelError("expected a prompt of at least one token, found an empty one; give some text with -p")
        return ids
    if template is None:
        raise ModelError(f"{model.planned.path}: expected a chat template in the file for --chat, found none; leave --chat out")
    messages = [{"role": "system", "content": wish.system}] if wish.system is not None else []
    text = template.render([*messages, {"role": "user", "content": wish.prompt}], add_generation_prompt=True)
    return tokenizer.encode(text, parse_special=True)


def _stream(engine: Engine, request: Request, tokenizer: Tokenizer) -> None:
    text = tokenizer.detokenizer()
    engine.submit(request)
    while not engine.idle:
        for event in engine.step():
            if event.finish == "broken":
                raise ModelError("expected finite logits, found NaN: the model's weights are damaged, or do not suit this text")
            if event.token not in request.stop_ids:
                sys.stdout.write(text.push(event.token))
                sys.stdout.flush()
    sys.stdout.write(text.flush() + "\n")
