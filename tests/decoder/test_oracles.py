"""The engine against answers of Hugging Face and llama.cpp, at every recorded position.

Tolerances, from the suite's README: two independent float32 engines agree to 1.8e-6, so 1e-5 (and 2e-4 for any one logit) is
fair and sharp for float32 activations; int8 activations are held to 1.2 times llama.cpp's own recorded error.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pagemill.decoder.archs import ARCHS
from pagemill.decoder.engine import logits
from pagemill.decoder.formats import FORMATS
from pagemill.decoder.gguf.files import open_file
from pagemill.decoder.kernels.isa import PORTABLE
from pagemill.decoder.kernels.memory import Array
from pagemill.decoder.model import open_model
from tests.answers import ORACLES, oracle_files
from tests.build import tiny_parts


def relative(found: Array, expected: Array) -> float:
    """||found - expected|| / ||expected||."""
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def runs(path: Path) -> bool:
    """Whether the engine has this file's architecture and formats."""
    header, _ = open_file(path)
    known = header.text("general.architecture") in ARCHS
    experts = any("exps" in name or "ffn_gate.0" in name for name in header.tensors)
    return known and not experts and all(info.type_name in FORMATS for info in header.tensors.values())


ARCH_FILES = [path for path in oracle_files("archs/*.gguf") if path.with_suffix(".npz").exists() and runs(path)]
FORMAT_FILES = [path for path in oracle_files("formats/*.gguf") if runs(path)]


@pytest.mark.parametrize("path", ARCH_FILES, ids=lambda path: path.stem)
def test_logits_equal_those_of_an_independent_float32_engine(path: Path) -> None:
    answers = np.load(path.with_suffix(".npz"))
    found = logits(open_model(path, exact=True), answers["tokens"], kv_cache="f32")
    assert relative(found, answers["hf_logits"]) < 1e-5
    assert np.abs(found - answers["hf_logits"]).max() < 2e-4


@pytest.mark.parametrize("path", ARCH_FILES, ids=lambda path: path.stem)
def test_decoding_token_by_token_gives_the_recorded_continuation(path: Path) -> None:
    answers = np.load(path.with_suffix(".npz"))
    tokens = np.concatenate([answers["tokens"], answers["greedy"]])
    split = len(answers["tokens"])
    found = logits(open_model(path, exact=True), tokens, kv_cache="f32", decode_from=split)
    bound = 2e-3 if "-f16" in path.stem else 1e-5  # llama.cpp rounds the inputs of float16 products
    assert relative(found[split:], answers["greedy_logits"]) < bound
    np.testing.assert_array_equal(found[split - 1 : -1].argmax(-1), answers["greedy"])


@pytest.mark.parametrize("path", FORMAT_FILES, ids=lambda path: path.stem)
def test_float32_activations_give_the_dequantized_models_logits(path: Path) -> None:
    answers = np.load(path.with_suffix(".npz"))
    found = logits(open_model(path, exact=True), answers["tokens"], kv_cache="f32")[answers["positions"]]
    assert relative(found, answers["dequant_logits"]) < 1e-5
    assert np.abs(found - answers["dequant_logits"]).max() < 2e-4


@pytest.mark.parametrize("cpu", ["auto", "portable"])
@pytest.mark.parametrize("path", FORMAT_FILES, ids=lambda path: path.stem)
def test_rounded_activations_are_as_good_as_llama_cpps(path: Path, cpu: str) -> None:
    answers = np.load(path.with_suffix(".npz"))
    found = logits(open_model(path, cpu=cpu), answers["tokens"])[answers["positions"]]
    error = relative(found, answers["dequant_logits"])
    assert error < 1.2 * max(float(answers["rel_llama_vs_dequant"]), 1e-3)


@pytest.mark.parametrize("decode_from", [None, 64], ids=["prompt", "decode"])
@pytest.mark.parametrize("kv_cache", ["f32", "f16", "q8_0"])
def test_a_cached_context_costs_no_more_than_its_format(kv_cache: str, decode_from: int | None) -> None:
    answers = np.load(oracle_files("cache/qwen3-F16.npz")[0])
    model = open_model(oracle_files("formats/qwen3-F16.gguf")[0])
    found = logits(model, answers["tokens"], kv_cache=kv_cache, decode_from=decode_from)[answers["positions"]]
    bound = 3e-2 if kv_cache == "q8_0" else 3e-3  # the suite's own tolerances
    assert relative(found, answers[f"logits_{kv_cache}"]) < bound
    assert relative(found, answers["logits_f32"]) < bound


def test_the_portable_variant_is_what_it_says() -> None:
    assert open_model(ARCH_FILES[0], cpu="portable").isa == PORTABLE


@pytest.mark.parametrize("kind", ["absent", "none", "linear", "yarn"])
def test_the_attention_factor_of_rope_counts_as_in_llama_cpp(tmp_path: Path, kind: str) -> None:
    """Recorded from the same file: two float32 engines agree to 1.3e-6."""
    parts = tiny_parts()
    scaling: dict[str, object] = {"attn_factor": 1.3} | ({} if kind == "absent" else {"type": kind})
    scaling |= {"factor": 4.0} if kind in ("linear", "yarn") else {}
    scaling |= {"original_context_length": 32} if kind == "yarn" else {}
    parts.metadata |= {f"qwen3.rope.scaling.{key}": value for key, value in scaling.items()}
    path = tmp_path / "tiny.gguf"
    path.write_bytes(parts.bytes())
    with np.load(ORACLES / "rope" / "attn_factor.npz") as answers:
        tokens, expected = answers["tokens"].tolist(), answers[kind]
    found = logits(open_model(path, exact=True), tokens, kv_cache="f32")
    assert np.linalg.norm(found - expected) <= 1e-5 * np.linalg.norm(expected)
