"""Choices with known answers: what each setting leaves, how often it is drawn, and the log-probability that is reported."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pagemill.decoder.errors import ModelError
from pagemill.decoder.sampler import Sampler, Sampling, survivors

PROBABILITIES = (0.1, 0.5, 0.15, 0.25)
ROW = np.log(np.array(PROBABILITIES)).astype(np.float32)
DRAWS = 4000


def row(*logits: float) -> NDArray[np.float32]:
    """A row of logits."""
    return np.array(logits, np.float32)


def drawn(sampling: Sampling, logits: NDArray[np.float32] = ROW, history: tuple[int, ...] = ()) -> dict[int, float]:
    """How often each token comes."""
    sampler = Sampler(sampling)
    counts = Counter(sampler.sample(logits, history)[0] for _ in range(DRAWS))
    return {token: count / DRAWS for token, count in sorted(counts.items())}


SHARES = {
    "all": (Sampling(1.0), {0: 0.1, 1: 0.5, 2: 0.15, 3: 0.25}),
    "half temperature squares": (Sampling(0.5), {0: 0.01 / 0.345, 1: 0.25 / 0.345, 2: 0.0225 / 0.345, 3: 0.0625 / 0.345}),
    "top_k 2": (Sampling(1.0, top_k=2), {1: 2 / 3, 3: 1 / 3}),
    "top_k 1": (Sampling(1.0, top_k=1), {1: 1.0}),
    "top_k beyond the vocabulary": (Sampling(1.0, top_k=99), {0: 0.1, 1: 0.5, 2: 0.15, 3: 0.25}),
    "top_p 0": (Sampling(1.0, top_p=0.0), {1: 1.0}),
    "top_p just reached": (Sampling(1.0, top_p=0.74), {1: 2 / 3, 3: 1 / 3}),
    "top_p just missed": (Sampling(1.0, top_p=0.76), {1: 0.5 / 0.9, 2: 0.15 / 0.9, 3: 0.25 / 0.9}),
    "top_p of what top_k leaves": (Sampling(1.0, top_k=2, top_p=0.6), {1: 1.0}),
    "top_p before temperature": (Sampling(0.01, top_p=0.76), {1: 1.0}),
    "min_p of the best": (Sampling(1.0, min_p=0.4), {1: 2 / 3, 3: 1 / 3}),
    "min_p 1": (Sampling(1.0, min_p=1.0), {1: 1.0}),
    "a temperature near zero": (Sampling(1e-30), {1: 1.0}),
}


@pytest.mark.parametrize("case", SHARES)
def test_each_setting_leaves_the_shares_it_should(case: str) -> None:
    sampling, expected = SHARES[case]
    found = drawn(sampling)
    assert found.keys() == expected.keys()
    assert found == pytest.approx(expected, abs=4 * math.sqrt(0.25 / DRAWS))  # four standard deviations; the seed is fixed


PENALISED = {
    "positive logits are divided": (row(2.0, 3.0), (1,), Sampling(repetition_penalty=2.0), 0),
    "negative logits are multiplied": (row(-2.5, -2.0), (1,), Sampling(repetition_penalty=2.0), 0),
    "once, however often it came": (row(1.4, 3.0), (1, 1, 1), Sampling(repetition_penalty=2.0), 1),
    "not before the window": (row(2.0, 3.0), (1, 0), Sampling(repetition_penalty=2.0, repetition_window=1), 1),
    "no window": (row(2.0, 3.0), (1,), Sampling(repetition_penalty=2.0, repetition_window=0), 1),
    "rows that are no tokens": (row(2.0, 3.0), (-1, 7), Sampling(repetition_penalty=2.0), 1),
    "an impossible token stays so": (row(-math.inf, 1.0), (0, 1), Sampling(repetition_penalty=0.5), 1),
}


@pytest.mark.parametrize("case", PENALISED)
def test_repetition_penalty_follows_llama_cpp(case: str) -> None:
    logits, history, sampling, expected = PENALISED[case]
    before = logits.copy()
    token, log_prob = Sampler(sampling).sample(logits, history)
    assert token == expected
    assert np.array_equal(logits, before), "the caller's row is not to change"
    assert log_prob == pytest.approx(float(logits[token]) - math.log(np.exp(logits.astype(np.float64)).sum()), abs=1e-6)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0, top_k=1), Sampling(1.0, top_p=0.0)])
def test_of_equal_logits_the_lowest_id_is_taken(sampling: Sampling) -> None:
    assert Sampler(sampling).sample(row(-0.0, 0.0, 0.0, -1.0), ())[0] == 0


BROKEN = {"nan": (1.0, math.nan, 2.0), "plus infinity": (1.0, math.inf), "nothing possible": (-math.inf, -math.inf)}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_broken_logits_are_a_model_error(case: str, temperature: float) -> None:
    with pytest.raises(ModelError, match="expected a finite best logit"):
        Sampler(Sampling(temperature)).sample(row(*BROKEN[case]), ())


def test_the_same_seed_draws_the_same_tokens_whatever_else_is_drawn() -> None:
    logits = np.random.default_rng(5).standard_normal((20, 1000)).astype(np.float32)
    sampling = Sampling(0.8, top_p=0.9, seed=7)
    alone, other = Sampler(sampling), Sampler(Sampling(0.8, seed=8))
    expected = [alone.sample(row, ()) for row in logits]
    again, between = Sampler(sampling), []
    for one in logits:
        between.append(other.sample(one, ()))
        assert again.sample(one, ()) == expected[len(between) - 1]
    assert between != expected


def test_log_probability_depends_on_the_row_only() -> None:
    rows = np.random.default_rng(6).standard_normal((8, 1001)).astype(np.float32)
    shifted = np.zeros(1002, np.float32)[1:]  # another alignment in memory
    for one in rows:
        shifted[:] = one
        assert Sampler(Sampling()).sample(shifted, ()) == Sampler(Sampling()).sample(one.copy(), ())


@pytest.mark.parametrize("vocabulary", [1, 63, 151_936])
def test_log_probability_equals_float64(vocabulary: int) -> None:
    logits = (np.random.default_rng(vocabulary).standard_normal(vocabulary) * 4 + 100).astype(np.float32)
    token, log_prob = Sampler(Sampling()).sample(logits, ())
    assert token == int(np.argmax(logits))
    exact = logits.astype(np.float64) - float(logits[token])
    assert log_prob == pytest.approx(-math.log(np.exp(exact).sum()), abs=1e-6)  # float32 exponentials, pairwise sum


def kept_by_definition(logits: NDArray[np.float32], top_k: int, top_p: float) -> list[int]:
    """Top-k and top-p over a full sort in float64."""
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))[: top_k or None]
    if top_p == 1:
        return sorted(order)
    weights = np.exp(logits[order].astype(np.float64))
    held = np.cumsum(weights) / weights.sum()
    return sorted(order[: int((held < top_p).sum()) + 1])


@given(
    st.integers(0, 2**32 - 1), st.integers(0, 40), st.sampled_from([0.0, 0.123, 0.517, 0.873, 0.9991, 1.0]), st.floats(0.1, 20)
)
@settings(deadline=None, database=None, derandomize=True)
def test_partial_ranking_keeps_what_a_full_sort_keeps(seed: int, top_k: int, top_p: float, spread: float) -> None:
    rng = np.random.default_rng(seed)
    logits = (np.round(rng.standard_normal(40), 1) * spread).astype(np.float32)  # rounded, so that there are ties
    expected = kept_by_definition(logits, top_k, top_p)
    ids = survivors(logits, Sampling(1.0, top_k=top_k, top_p=top_p))
    assert (list(range(len(logits))) if ids is None else sorted(ids.tolist())) == expected


def test_settings_out_of_range_are_all_named() -> None:
    with pytest.raises(ValueError, match=r"temperature should be from 0 to .*, it is -1; top_p .* it is nan; seed .* it is -3"):
        Sampling(temperature=-1, top_p=math.nan, seed=-3)
