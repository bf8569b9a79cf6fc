"""Plans: what a header alone tells, and every reason to refuse at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from pagemill.decoder.archs import ARCHS
from pagemill.decoder.errors import Refused
from pagemill.decoder.formats import FORMATS
from pagemill.decoder.gguf.files import open_file
from pagemill.decoder.gguf.parse import Header, parse_header
from pagemill.decoder.plan import Plan, plan
from pagemill.decoder.plan_text import describe
from pagemill.decoder.spec import Role
from pagemill.decoder.weights.panels import repack
from tests.answers import ORACLES, oracle_files
from tests.build import TYPE_IDS, Parts, Tensor, gguf_bytes, tiny_parts


def _plan(parts: Parts, **options: object) -> Plan:
    return plan(parse_header(parts.bytes()), **options)  # type: ignore[arg-type]


def _reasons(parts: Parts, **options: object) -> tuple[str, ...]:
    with pytest.raises(Refused) as caught:
        _plan(parts, **options)
    assert all(reason in str(caught.value) for reason in caught.value.reasons)
    return caught.value.reasons


@pytest.mark.parametrize("architecture", ARCHS)
def test_tensors_are_found_by_role(architecture: str) -> None:
    parts = tiny_parts(architecture)
    made = _plan(parts)
    names = {info.name for info in (*made.tensors.values(), *made.biases.values())}
    assert names == set(parts.tensors)
    assert made.tensors[Role.TOKEN_EMBEDDING, -1].name == "token_embd.weight"
    assert made.tensors[Role.FFN_DOWN, 1].name == "blk.1.ffn_down.weight"
    assert ((Role.ATTN_K, 0) in made.biases) == (architecture == "qwen2")
    assert ((Role.ATTN_Q_NORM, 0) in made.tensors) == (architecture == "qwen3")


def test_header_alone_is_enough() -> None:
    parts = tiny_parts(width=1024, ff_width=3072, heads=16, kv_heads=8, head_dim=128, layers=1, type_name="Q8_0")
    tensors = list(parts.tensors.items())
    head = gguf_bytes(parts.metadata, tensors, with_data=False)
    size = len(head) + sum(tensor.size_bytes + 32 for _, tensor in tensors)
    made = plan(parse_header(head, file_bytes=size))
    assert len(head) < 3000
    assert made.resident_bytes > 10 << 20


def test_output_is_tied_when_the_file_has_none() -> None:
    parts = tiny_parts()
    assert _plan(parts).tied_output
    parts.tensors["output.weight"] = Tensor((64, 48))
    assert not _plan(parts).tied_output


def test_resident_bytes_are_panels_and_float32_vectors() -> None:
    parts = tiny_parts("qwen2", layers=1, vocab=50, width=96, type_name="Q4_0")
    made = _plan(parts)
    shapes = [info.shape for info in made.tensors.values() if len(info.shape) == 2]
    panels = sum(repack(np.zeros((rows, columns // 32 * 18), np.uint8), "Q4_0").data.nbytes for columns, rows in shapes)
    vectors = 4 * (3 * 96 + 128 + 64 + 64)
    assert made.resident_bytes == panels + vectors
    exact = sum(repack(np.zeros((rows, columns * 4), np.uint8), "F32").data.nbytes for columns, rows in shapes)
    assert _plan(parts, exact=True).resident_bytes == exact + vectors


def test_refusal_names_the_file() -> None:
    parts = tiny_parts()
    del parts.tensors["output_norm.weight"]
    with pytest.raises(Refused, match=r"^model\.gguf cannot run: missing: output_norm"):
        _plan(parts, name="model.gguf")


def test_untied_embedding_stays_in_the_file() -> None:
    parts = tiny_parts()
    tied = _plan(parts).resident_bytes
    parts.tensors["output.weight"] = Tensor((64, 48))
    assert _plan(parts).resident_bytes == tied


@pytest.mark.parametrize(("kv_cache", "expected"), [("f32", 1024), ("f16", 512), ("q8_0", 272)])
def test_cached_bytes_of_a_token(kv_cache: str, expected: int) -> None:
    assert _plan(tiny_parts(), kv_cache=kv_cache).cached_token_bytes == expected  # 2 layers, K and V, 2 heads of 32


def test_three_faults_are_three_reasons() -> None:
    parts = tiny_parts()
    del parts.metadata["qwen3.attention.layer_norm_rms_epsilon"]
    del parts.tensors["blk.1.ffn_up.weight"]
    parts.tensors["blk.0.ffn_down.weight"] = Tensor((96, 64), 99, bytes(64))
    reasons = _reasons(parts)
    assert len(reasons) == 3
    for text in ("layer_norm_rms_epsilon", "blk.1.ffn_up.weight", "type 99 (blk.0.ffn_down.weight)"):
        assert sum(text in reason for reason in reasons) == 1


def _change(**tensors: Tensor | None) -> Callable[[Parts], None]:
    """Replaces tensors (None: removes); "__" for "."."""

    def apply(parts: Parts) -> None:
        for name, tensor in tensors.items():
            parts.tensors[name.replace("__", ".")] = tensor or Tensor((1,))
            if tensor is None:
                del parts.tensors[name.replace("__", ".")]

    return apply


def _meta(key: str, value: object) -> Callable[[Parts], None]:
    """Sets a metadata key (None: removes it)."""

    def apply(parts: Parts) -> None:
        parts.metadata[key] = value
        if value is None:
            del parts.metadata[key]

    return apply


REFUSED: dict[str, tuple[Callable[[Parts], None], str]] = {
    "no architecture": (_meta("general.architecture", None), "'general.architecture' is missing"),
    "unknown architecture": (
        _meta("general.architecture", "rwkv7"),
        f"'rwkv7' is not supported: expected one of {', '.join(sorted(ARCHS))}",
    ),
    "vision file": (_meta("general.architecture", "clip"), "is a vision projector (mmproj); give the text model's"),
    "an adapter": (_meta("general.type", "adapter"), "of type 'adapter': expected a model"),
    "one part of three": (_meta("split.count", 3), "one of 3 parts"),
    "embedding missing": (_change(token_embd__weight=None), "missing: token_embd.weight"),
    "a role missing in all layers": (
        _change(blk__0__attn_q_norm__weight=None, blk__1__attn_q_norm__weight=None),
        "missing: blk.0.attn_q_norm.weight, blk.1.attn_q_norm.weight",
    ),
    "a tensor of no role": (_change(blk__0__attn_sinks__weight=Tensor((4,))), "found also blk.0.attn_sinks.weight"),
    "a layer too many": (_change(blk__2__attn_q__weight=Tensor((64, 128))), "with 2 layers, found also blk.2.attn_q.weight"),
    "a bias of no role": (_change(blk__0__ffn_up__bias=Tensor((96,))), "found also blk.0.ffn_up.bias"),
    "format of a later version": (
        _change(blk__0__ffn_up__weight=Tensor((256, 96), TYPE_IDS["IQ4_XS"])),
        "format IQ4_XS (blk.0.ffn_up.weight) is not supported: expected one of F32, F16",
    ),
    "rows of no whole blocks": (
        _change(blk__0__ffn_up__weight=Tensor((64, 96), TYPE_IDS["Q4_K"], bytes(64))),
        "blk.0.ffn_up.weight: expected rows in multiples of 256 for Q4_K, found 64",
    ),
    "quantized norm": (_change(output_norm__weight=Tensor((64,), TYPE_IDS["Q8_0"])), "expected a vector in F32, F16 or BF16"),
    "narrow query": (
        _change(blk__1__attn_q__weight=Tensor((64, 64))),
        "blk.1.attn_q.weight: expected shape [64, 128], found [64, 64]",
    ),
    "transposed": (_change(blk__0__ffn_down__weight=Tensor((64, 96))), "expected shape [96, 64], found [64, 96]"),
    "bias too long": (_change(blk__0__attn_k__bias=Tensor((65,))), "blk.0.attn_k.bias: expected shape [64], found [65]"),
    "output of another vocabulary": (_change(output__weight=Tensor((64, 47))), "expected shape [64, 48], found [64, 47]"),
    "no tokens": (_meta("tokenizer.ggml.tokens", None), "'tokenizer.ggml.tokens' is missing"),
    "an empty token table": (_meta("tokenizer.ggml.tokens", []), "found none"),
    "tokens of numbers": (_meta("tokenizer.ggml.tokens", [1, 2]), "expected an array of strings"),
    "too few tokens": (_meta("tokenizer.ggml.tokens", ["a", "b"]), "found 2 tokens and 48 rows"),
    "another vocab_size": (_meta("qwen3.vocab_size", 50), "found 48 tokens and 50"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_one_fault_is_one_reason(name: str) -> None:
    change, message = REFUSED[name]
    parts = tiny_parts()
    change(parts)
    reasons = _reasons(parts)
    assert any(message in reason for reason in reasons), reasons
    # A weight whose format is wrong may have a wrong shape too, and nothing else may be wrong.
    assert len(reasons) == (2 if name == "format of a later version" else 1)


def test_missing_bias_is_refused_where_the_architecture_has_one() -> None:
    parts = tiny_parts("qwen2")
    del parts.tensors["blk.1.attn_v.bias"]
    assert _reasons(parts) == ("missing: blk.1.attn_v.bias",)


def test_missing_layer_count_is_the_only_reason() -> None:
    parts = tiny_parts()
    del parts.metadata["qwen3.block_count"]
    assert len(_reasons(parts)) == 1


def test_long_lists_are_counted_not_printed() -> None:
    parts = tiny_parts(layers=12)
    for layer in range(12):
        del parts.tensors[f"blk.{layer}.ffn_up.weight"]
    assert _reasons(parts) == ("missing: blk.0.ffn_up.weight, blk.1.ffn_up.weight, blk.2.ffn_up.weight and 9 more",)


def test_cache_that_does_not_fit_the_heads_is_refused() -> None:
    parts = tiny_parts(head_dim=48)
    assert _plan(parts).cached_token_bytes == 768
    (reason,) = _reasons(parts, kv_cache="q8_0")
    assert reason == "kv cache q8_0 needs head_dim in multiples of 32, found 48: use kv_cache: f16"
    (reason,) = _reasons(tiny_parts(head_dim=24))
    assert reason == "kv cache f16 needs head_dim in multiples of 16, found 24"
    (reason,) = _reasons(parts, kv_cache="q4_0")
    assert "expected one of f32, f16, q8_0, found 'q4_0'" in reason


def test_experts_are_one_reason() -> None:
    parts = tiny_parts("llama")
    parts.metadata |= {"llama.expert_count": 4, "llama.expert_used_count": 2}
    for layer in range(2):
        for name in ("gate", "up", "down"):
            one = parts.tensors.pop(f"blk.{layer}.ffn_{name}.weight")
            parts.tensors[f"blk.{layer}.ffn_{name}_exps.weight"] = replace(one, shape=(*one.shape, 4), data=None)
        parts.tensors[f"blk.{layer}.ffn_gate_inp.weight"] = Tensor((64, 4))
    assert len(_reasons(parts)) == 1


def _supported(header: Header) -> bool:
    formats = {info.type_name for info in header.tensors.values()}
    return (
        header.text("general.architecture") in ARCHS and formats <= set(FORMATS) and "llama.expert_count" not in header.metadata
    )


@pytest.mark.parametrize("path", oracle_files("*/*.gguf"), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_files_of_the_reference_converter_are_planned_or_refused(path: object) -> None:
    header, _ = open_file(path)  # type: ignore[arg-type]
    if not _supported(header):
        with pytest.raises(Refused):
            plan(header)
        return
    made = plan(header)
    assert set(header.tensors) == {info.name for info in (*made.tensors.values(), *made.biases.values())}
    assert made.resident_bytes <= 1.2 * header.file_bytes  # padding of rows and tiles


def test_description_says_what_it_takes() -> None:
    header, _ = open_file(ORACLES / "formats" / "qwen3-Q4_K_M.gguf")
    rows = dict(describe(plan(header, kv_cache="q8_0")))
    assert rows["architecture"] == "qwen3"
    assert rows["vocabulary"] == "512 tokens, output tied to the embedding"
    assert rows["formats"] == "Q4_K (12), F32 (9), Q6_K (3)"
    assert rows["resident"] == "819.0 KiB"  # of 814 KiB in the file: padding of the K-quants' tiles
    assert rows["kv cache"].startswith("q8_0, 544 B a token")
    assert all(key and value for key, value in rows.items())
