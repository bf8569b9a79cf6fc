"""No fact of a spec is ignored: changing it changes the logits, or the plan refuses the model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pagemill.decoder.archs import ARCHS
from pagemill.decoder.engine import logits
from pagemill.decoder.facts import Facts
from pagemill.decoder.gguf.parse import parse_header
from pagemill.decoder.model import Model, open_model
from pagemill.decoder.network.support import unsupported
from pagemill.decoder.spec import AttentionSpec, ExpertSpec, ModelSpec, NormSpec, RopeSpec
from pagemill.decoder.tensors import FoundTensors, shape_reasons
from tests.build import tiny_parts
from tests.flips import flips

DESCRIBE = {"architecture", "name", "context"}  # for people, and a limit that the engine's callers heed
TOKENS = [3 + index % 40 for index in range(24)]

ATTENTION = AttentionSpec(4, 2, 32, 0.2, rope=RopeSpec(10000.0, 32, "halves"))
SPEC = ModelSpec("qwen3", "", 64, 96, 48, 128, NormSpec("rms", 1e-6), (ATTENTION, ATTENTION), "silu")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A small model whose positions are stretched by YaRN, so that all of RopeSpec counts."""
    parts = tiny_parts()
    scaling = {"type": "yarn", "factor": 4.0, "original_context_length": 32}
    parts.metadata |= {f"qwen3.rope.scaling.{key}": value for key, value in scaling.items()}
    path: Path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    path.write_bytes(parts.bytes())
    return open_model(path, exact=True)


def with_spec(model: Model, spec: ModelSpec) -> Model:
    """The model with other facts and the same weights."""
    return replace(model, planned=replace(model.planned, plan=replace(model.plan, spec=spec)))


def refusals(model: Model, spec: ModelSpec) -> list[str]:
    """What a plan with these facts says against the model."""
    found = FoundTensors(dict(model.plan.tensors), dict(model.plan.biases))
    return [*unsupported(spec), *shape_reasons(ARCHS[model.spec.architecture].tensors, spec, found)]


def test_every_fact_changes_the_logits_or_is_refused(model: Model) -> None:
    assert refusals(model, model.spec) == []
    before = logits(model, TOKENS, decode_from=12, kv_cache="f32")
    ignored = set()
    for path, spec in flips(model.spec):
        if not refusals(model, spec):
            after = logits(with_spec(model, spec), TOKENS, decode_from=12, kv_cache="f32")
            if np.array_equal(before, after):
                ignored.add(path)
    assert ignored == DESCRIBE


REFUSED = {
    "parallel residual": (replace(SPEC, parallel_residual=True), "parallel residual"),
    "layer norm": (replace(SPEC, norm=NormSpec("layer", 1e-6)), "norms of kind 'layer'"),
    "no gate": (replace(SPEC, gated=False), "without a gate"),
    "capped logits": (replace(SPEC, logit_soft_cap=30.0), "soft cap of logits (30)"),
    "capped scores": (replace(SPEC, attention=(replace(ATTENTION, soft_cap=50.0),) * 2), "attention scores (50)"),
    "rope by layer": (
        replace(SPEC, attention=(ATTENTION, replace(ATTENTION, rope=RopeSpec(1e6, 32, "halves")))),
        "differ between layers",
    ),
    "experts": (replace(SPEC, experts=ExpertSpec(4, 2)), "a mixture of experts (4 experts, 2 used)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_forward_does_not_compute_is_named(name: str) -> None:
    spec, message = REFUSED[name]
    (reason,) = unsupported(spec)
    assert message in reason


def test_facts_of_a_header_that_nothing_reads_are_refused() -> None:
    parts = tiny_parts()
    parts.metadata["qwen3.attention.sinks"] = 1
    facts = Facts(parse_header(parts.bytes()), "qwen3")
    ARCHS["qwen3"].spec_of(facts)
    assert len(facts.reasons) == 1
