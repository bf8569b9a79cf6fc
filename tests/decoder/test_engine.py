"""Continuous batching: a sequence's tokens depend on nothing but itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from pagemill.decoder.batch import Event, Prompt, Request, Rows, Tokens
from pagemill.decoder.engine import Engine
from pagemill.decoder.errors import ContextFull, ModelError
from pagemill.decoder.kernels.team import Team, available_cores
from pagemill.decoder.model import Model, open_model
from pagemill.decoder.sampler import Sampling
from tests.answers import oracle_files

ANSWER = 12
Answer = list[tuple[int, float]]


@pytest.fixture(scope="module", params=["qwen3-Q4_K_M", "qwen3-Q8_0", "llama-Q5_0", "qwen3-BF16"])
def model(request: pytest.FixtureRequest) -> Model:
    """A small model of a mixed, an 8-bit, a legacy and a float format."""
    return open_model(oracle_files(f"formats/{request.param}.gguf")[0])


@pytest.fixture(scope="module")
def small() -> Model:
    """The smallest model."""
    return open_model(oracle_files("archs/qwen3.gguf")[0])


def prompt(seed: int, length: int, model: Model) -> Prompt:
    """Token ids, embedding rows, token ids."""
    rng = np.random.default_rng(seed)
    ids = tuple(int(i) for i in rng.integers(0, model.spec.vocab, length))
    rows = rng.standard_normal((length, model.spec.width)).astype(np.float32) * 0.1
    return Prompt((Tokens(ids[:3]), Rows(rows), Tokens(ids[3:])))


def requests(model: Model) -> list[Request]:
    """32 pages of different lengths; every third one draws its tokens."""
    lengths = [1 + 13 * i % 150 for i in range(32)]
    return [
        Request(prompt(i, length, model), ANSWER, Sampling(temperature=0.8 * (i % 3 == 0), seed=i), key=i)
        for i, length in enumerate(lengths)
    ]


def run(engine: Engine, queue: list[Request]) -> dict[object, Answer]:
    """Each request's (token, log-prob) pairs."""
    for request in queue:
        engine.submit(request)
    answers: dict[object, Answer] = {request.key: [] for request in queue}
    while not engine.idle:
        for event in engine.step():
            answers[event.key].append((event.token, event.log_prob))
    engine.close()
    return answers


def test_a_page_gives_the_same_bits_alone_among_others_and_in_any_chunk(model: Model) -> None:
    pages = requests(model)
    threads = min(2, available_cores())
    among = run(Engine(model, slots=32, context=512, threads=threads, chunk=64), pages)
    backwards = run(Engine(model, slots=7, context=512, threads=1, chunk=17), pages[::-1])
    assert among == backwards
    for page in (pages[0], pages[11], pages[31]):
        for chunk in (1, 256):
            alone = run(Engine(model, slots=1, context=600, threads=threads, chunk=chunk), [page])
            assert alone[page.key] == among[page.key]


@pytest.mark.parametrize("kv_cache", ["f32", "q8_0"])
def test_other_caches_keep_the_bits_too(kv_cache: str) -> None:
    model = open_model(oracle_files("formats/qwen3-Q4_K.gguf")[0])
    pages = requests(model)[:6]
    among = run(Engine(model, slots=6, context=512, threads=1, kv_cache=kv_cache, chunk=50), pages)
    alone = run(Engine(model, slots=1, context=512, kv_cache=kv_cache, chunk=9), [pages[5]])
    assert alone[5] == among[5]


@pytest.mark.parametrize("kv_cache", ["f16", "q8_0"])
def test_threads_do_not_change_a_bit_of_steps_that_mix_reading_and_decoding(kv_cache: str) -> None:
    """Long prompts are read in chunks beside pages that decode; more threads than cores only wait for each other."""
    model = open_model(oracle_files("formats/qwen3-Q4_K_M.gguf")[0])
    pages = [Request(prompt(i, 40 + 210 * (i % 2), model), ANSWER, key=i) for i in range(5)]
    answers = []
    for threads in (1, 2, 3, 4):
        with closing(Team(threads, crowded=True)) as team:
            answers.append(run(Engine(model, slots=3, context=512, kv_cache=kv_cache, chunk=31 + threads, team=team), pages))
    assert answers[1:] == answers[:1] * 3


def test_a_shared_team_outlives_an_engine(small: Model) -> None:
    with closing(Team(1)) as team:
        answers = [run(Engine(small, slots=1, context=64, team=team), [Request(ids(1, 2), 3, key=0)]) for _ in range(2)]
    assert answers[0] == answers[1]


def test_a_team_has_no_more_threads_than_cores() -> None:
    cores = available_cores()
    with pytest.raises(ValueError, match=f"between 1 and the {cores} cores available here, found {cores + 1}"):
        Team(cores + 1)


@pytest.fixture
def engine(small: Model) -> Iterator[Engine]:
    """Two slots, a context of 64."""
    engine = Engine(small, slots=2, context=64, threads=1, chunk=16)
    yield engine
    engine.close()


def ids(*values: int) -> Prompt:
    """A prompt of token ids."""
    return Prompt((Tokens(values),))


def finishes(events: list[Event]) -> list[object]:
    """How each event ended its sequence."""
    return [event.finish for event in events]


def test_a_stop_token_ends_the_answer(engine: Engine) -> None:
    first = engine.generate(Request(ids(1, 2, 3), 5))
    again = engine.generate(Request(ids(1, 2, 3), 5, stop_ids=frozenset({first[2].token})))
    assert finishes(first) == [None] * 4 + ["length"]
    assert finishes(again)[-1] == "stop"
    assert [event.token for event in again] == [event.token for event in first[: len(again)]]


def test_the_context_ends_the_answer(engine: Engine) -> None:
    events = engine.generate(Request(ids(*range(1, 61)), 100))
    assert finishes(events) == [None] * 4 + ["context"]  # positions 60..63, and the token after the last


def test_a_freed_slot_is_taken_at_the_next_step(engine: Engine) -> None:
    tickets = [engine.submit(Request(ids(1), 2 if i else 30)) for i in range(4)]
    assert engine.room == 0
    seen: list[set[int]] = [{event.ticket for event in engine.step()} for _ in range(6)]
    assert seen == [{0, 1}, {0, 1}, {0, 2}, {0, 2}, {0, 3}, {0, 3}]
    engine.cancel(tickets[0])
    assert engine.idle
    assert engine.room == 2


def test_cancelling_frees_the_slot_of_a_waiting_or_running_request(engine: Engine) -> None:
    running, also, waiting = (engine.submit(Request(ids(5), 50)) for _ in range(3))
    engine.step()
    for ticket in (waiting, running, running):
        engine.cancel(ticket)
    assert {event.ticket for event in engine.step()} == {also}
    assert engine.room == 1


def test_broken_rows_end_their_own_sequence_only(small: Model, engine: Engine) -> None:
    bad = np.full((2, small.spec.width), np.nan, np.float32)
    engine.submit(Request(Prompt((Rows(bad),)), 4, key="bad"))
    engine.submit(Request(ids(1, 2), 4, key="good"))
    events: list[Event] = []
    while not engine.idle:
        events += engine.step()
    assert [event.finish for event in events if event.key == "bad"] == ["broken"]
    assert [event.finish for event in events if event.key == "good"][-1] == "length"


@pytest.mark.parametrize(
    ("request_", "error", "message"),
    [
        (Request(Prompt(()), 1), ModelError, "prompt is empty"),
        (Request(Prompt((Tokens(tuple(range(64))),)), 1), ContextFull, "64 positions, the context 64"),
        (Request(Prompt((Tokens((1,)),)), 0), ModelError, "max_tokens"),
    ],
    ids=["empty", "too long", "no answer"],
)
def test_an_impossible_request_is_refused(engine: Engine, request_: Request, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        engine.submit(request_)


def test_a_token_outside_the_vocabulary_is_refused(engine: Engine) -> None:
    engine.submit(Request(ids(10**6), 1))
    with pytest.raises(ModelError, match="from 0 to"):
        engine.step()
