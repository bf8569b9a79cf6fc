"""How each architecture's metadata reads as facts."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from pagemill.decoder.archs import ARCHS
from pagemill.decoder.errors import Refused
from pagemill.decoder.facts import Facts
from pagemill.decoder.gguf.files import open_file
from pagemill.decoder.gguf.parse import Header, parse_header
from pagemill.decoder.spec import ModelSpec, RopeSpec
from pagemill.decoder.tensors import GLOBAL
from tests.answers import ORACLES
from tests.build import tiny_parts


def _spec(architecture: str, **metadata: object) -> ModelSpec:
    """The spec of a tiny file; metadata under the architecture's prefix, "__" for ".", None removes a key."""
    parts = tiny_parts(architecture)
    for name, value in metadata.items():
        key = f"{architecture}." + name.replace("__", ".")
        parts.metadata[key] = value
        if value is None:
            del parts.metadata[key]
    return _read(parse_header(parts.bytes()))


def _read(header: Header) -> ModelSpec:
    """The facts of a file; Refused with every reason that its metadata gives."""
    facts = Facts(header, header.text("general.architecture"))
    spec = ARCHS[facts.prefix].spec_of(facts)
    if facts.reasons:
        raise Refused("metadata", facts.reasons)
    return spec


@pytest.mark.parametrize("architecture", ARCHS)
def test_facts_are_those_of_the_metadata(architecture: str) -> None:
    spec = _spec(architecture)
    assert (spec.architecture, spec.name) == (architecture, "tiny")
    assert (spec.layers, spec.width, spec.ff_width, spec.vocab, spec.context) == (2, 64, 96, 48, 128)
    assert spec.norm.kind == "rms"
    assert spec.norm.eps == pytest.approx(1e-6)
    assert (spec.activation, spec.gated, spec.parallel_residual) == ("silu", True, False)
    assert (spec.embedding_scale, spec.logit_soft_cap, spec.experts) == (1.0, 0.0, None)
    first, second = spec.attention
    assert first == second
    assert (first.heads, first.kv_heads, first.head_dim, first.window, first.soft_cap) == (4, 2, 32, 0, 0.0)
    assert first.scale == 1 / math.sqrt(32)


PAIRING = {"llama": "adjacent", "qwen2": "halves", "qwen3": "halves"}


@pytest.mark.parametrize("architecture", ARCHS)
def test_rope_pairs_as_the_converter_left_the_rows(architecture: str) -> None:
    rope = _spec(architecture).attention[0].rope
    assert rope == RopeSpec(10000.0, 32, PAIRING[architecture])  # type: ignore[arg-type]


def test_head_dim_follows_from_width_when_the_file_is_silent() -> None:
    silent = {"attention__key_length": None, "attention__value_length": None}
    assert _spec("llama", **silent).attention[0].head_dim == 16


def test_kv_heads_equal_heads_when_the_file_is_silent() -> None:
    assert _spec("llama", attention__head_count_kv=None).attention[0].kv_heads == 4


ROPES: dict[str, tuple[dict[str, object], RopeSpec]] = {
    "base is 10000 by default": ({"rope__freq_base": None}, RopeSpec(10000.0, 32, "halves")),
    "part of a head": ({"rope__dimension_count": 16}, RopeSpec(10000.0, 16, "halves")),
    "none": ({"rope__scaling__type": "none", "rope__scaling__factor": 4.0}, RopeSpec(10000.0, 32, "halves")),
    "linear": ({"rope__scaling__type": "linear", "rope__scaling__factor": 4.0}, RopeSpec(10000.0, 32, "halves", "linear", 4.0)),
    "a factor without a type is linear": ({"rope__scaling__factor": 2.0}, RopeSpec(10000.0, 32, "halves", "linear", 2.0)),
    "the older name of the factor": ({"rope__scale_linear": 2.0}, RopeSpec(10000.0, 32, "halves", "linear", 2.0)),
    "yarn": (
        {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0, "rope__scaling__original_context_length": 32},
        RopeSpec(10000.0, 32, "halves", "yarn", 4.0, 32, 32.0, 1.0, 0.1 * math.log(4.0) + 1.0),
    ),
    "yarn with all of its keys": (
        {
            "rope__scaling__type": "yarn",
            "rope__scaling__factor": 2.0,
            "rope__scaling__yarn_beta_fast": 16.0,
            "rope__scaling__yarn_beta_slow": 2.0,
            "rope__scaling__attn_factor": 0.5,
        },
        RopeSpec(10000.0, 32, "halves", "yarn", 2.0, 128, 16.0, 2.0, (0.1 * math.log(2.0) + 1.0) * 0.5),
    ),
}


@pytest.mark.parametrize("name", ROPES)
def test_rope_scaling(name: str) -> None:
    metadata, expected = ROPES[name]
    assert _spec("qwen3", **metadata).attention[0].rope == expected


REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "width missing": ({"embedding_length": None}, "'qwen3.embedding_length' is missing: expected an integer"),
    "eps missing": ({"attention__layer_norm_rms_epsilon": None}, "layer_norm_rms_epsilon' is missing"),
    "eps of text": ({"attention__layer_norm_rms_epsilon": "small"}, "expected a number, found str 'small'"),
    "eps not finite": ({"attention__layer_norm_rms_epsilon": math.nan}, "expected a number above 0, found nan"),
    "no heads": ({"attention__head_count": 0}, "expected 1 to 2147483648, found 0"),
    "heads by layer": ({"attention__head_count": [4, 2]}, "expected an integer, found an array of 2 uint32"),
    "absurd layers": ({"block_count": 4_000_000_000}, "'qwen3.block_count': expected 1 to 24, found 4000000000"),
    "odd groups of heads": ({"attention__head_count_kv": 3}, "multiples of head_count_kv, found 4 and 3"),
    "narrower values": ({"attention__value_length": 16}, "different widths are not supported, found 32 and 16"),
    "odd rope": ({"rope__dimension_count": 7}, "even and at most the head's width 32, found 7"),
    "wide rope": ({"rope__dimension_count": 64}, "even and at most the head's width 32, found 64"),
    "another scaling": ({"rope__scaling__type": "longrope"}, "rope scaling 'longrope' is not supported"),
    "scaling of a number": ({"rope__scaling__type": 1}, "expected a string, found int 1"),
    "yarn of another kind": ({"rope__scaling__type": "yarn", "rope__scaling__yarn_log_multiplier": 0.1}, "is not supported"),
    "an embedding model": ({"attention__causal": False}, "'qwen3.attention.causal': False is not supported, expected True"),
    "a narrow window": ({"attention__sliding_window": 64}, "a sliding window of 64 tokens is not supported"),
    "capped logits": ({"final_logit_softcapping": 30.0}, "'qwen3.final_logit_softcapping': 30.0 is not supported"),
    "capped scores": ({"attn_logit_softcapping": 50.0}, "'qwen3.attn_logit_softcapping': 50.0 is not supported"),
    "scaled scores": ({"attention__scale": 0.1}, "'qwen3.attention.scale': 0.1"),
    "scaled logits": ({"logit_scale": 8.0}, "'qwen3.logit_scale': 8.0 is not supported, expected 1.0"),
    "scaled rows": ({"embedding_scale": 12.0}, "'qwen3.embedding_scale': 12.0 is not supported"),
    "positions in sections": ({"rope__dimension_sections": [16, 24, 24]}, "rope.dimension_sections': [16, 24, 24]"),
    "a key of tomorrow": ({"attention__sinks": 4}, "'qwen3.attention.sinks' = 4 is not known: it might change the results"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_facts_that_cannot_be_are_refused(name: str) -> None:
    metadata, message = REFUSED[name]
    with pytest.raises(Refused) as caught:
        _spec("qwen3", **metadata)
    assert any(message in reason for reason in caught.value.reasons), caught.value.reasons


def test_all_bad_facts_are_named_at_once() -> None:
    with pytest.raises(Refused) as caught:
        _spec("llama", embedding_length=None, attention__head_count="four", rope__freq_base=-1.0)
    assert len(caught.value.reasons) == 3


@pytest.mark.parametrize("name", ["qwen3", "llama", "qwen2", "llama-linear", "llama-tied-llama3rope", "mistral", "qwen3-yarn"])
def test_files_of_the_reference_converter_read(name: str) -> None:
    header, _ = open_file(Path(ORACLES / "archs" / f"{name}.gguf"))
    spec = _read(header)
    assert (spec.width, spec.ff_width, spec.vocab) == (64, 64, 384)


@pytest.mark.parametrize("architecture", ARCHS)
def test_every_tensor_has_one_row_and_one_name(architecture: str) -> None:
    rows = ARCHS[architecture].tensors
    assert len({row.role for row in rows}) == len({row.name for row in rows}) == len(rows)
    names = {row.role.name: row for row in rows}
    assert names["ATTN_Q"].file_name(3) == "blk.3.attn_q.weight"
    assert names["ATTN_Q"].file_name(3, "bias") == "blk.3.attn_q.bias"
    assert names["OUTPUT"].file_name(GLOBAL) == "output.weight"
    assert list(names["FFN_DOWN"].layers(2)) == [0, 1]
    assert list(names["TOKEN_EMBEDDING"].layers(2)) == [GLOBAL]


NEUTRAL = {"attention__sliding_window": 128, "logit_scale": 1.0, "expert_count": 0, "expert_used_count": 0}


def test_keys_at_values_that_change_nothing_are_fine() -> None:
    assert _spec("llama", **NEUTRAL, rope__scaling__finetuned=True) == _spec("llama")


@pytest.mark.parametrize("kind", ["none", "linear", "yarn"])
def test_the_attention_factor_counts_in_every_kind_of_scaling(kind: str) -> None:
    scaling = {"rope__scaling__type": kind, "rope__scaling__factor": 2.0}
    plain, scaled = _spec("llama", **scaling), _spec("llama", **scaling, rope__scaling__attn_factor=1.5)
    before, after = plain.attention[0].rope, scaled.attention[0].rope
    assert before
    assert after
    assert after.attention_factor == pytest.approx(1.5 * before.attention_factor)
