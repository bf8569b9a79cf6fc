"""Weights that are not numbers are refused by name; rows that stop being numbers end their sequence as broken."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from pagemill.decoder.batch import Prompt, Request, Rows, Tokens
from pagemill.decoder.engine import Engine
from pagemill.decoder.errors import ModelError
from pagemill.decoder.formats import FORMATS
from pagemill.decoder.kernels.isa import PORTABLE, detect
from pagemill.decoder.model import open_model
from tests.answers import oracle_files
from tests.build import Parts, Tensor, tiny_parts

PROMPT = Tokens(tuple(range(3, 20)))
BAD = {"nan": np.nan, "inf": np.inf, "minus inf": -np.inf}


def changed(parts: Parts, name: str, value: float, at: int = 5) -> Parts:
    """The file with one float32 weight replaced."""
    tensor = parts.tensors[name]
    weights = np.frombuffer(tensor.data or bytes(tensor.size_bytes), np.float32).copy()
    weights[at] = value
    parts.tensors[name] = Tensor(tensor.shape, tensor.type_id, weights.tobytes())
    return parts


def written(path: Path, parts: Parts) -> Path:
    path.write_bytes(parts.bytes())
    return path


LOADED = [name for name in tiny_parts("qwen2").tensors if ".1." not in name]


@pytest.mark.parametrize("name", LOADED)
@pytest.mark.parametrize("value", BAD)
def test_a_weight_that_is_no_number_is_refused_by_name(name: str, value: str, tmp_path: Path) -> None:
    path = written(tmp_path / "bad.gguf", changed(tiny_parts("qwen2"), name, BAD[value]))
    with pytest.raises(ModelError, match=rf"tensor {name}: expected finite weights, found NaN or infinity in its F32 data"):
        open_model(path)


@pytest.mark.parametrize("format_name", FORMATS)
def test_every_scale_of_a_format_counts(format_name: str) -> None:
    weights = FORMATS[format_name]
    raw = np.random.default_rng(0).integers(0, 256, (3, 4 * weights.block_bytes), np.uint8)
    size = 4 if format_name == "F32" else 2
    halves = getattr(weights, "halves", (0,))
    for at in (block * weights.block_bytes + half for block in range(4) for half in halves):
        raw[:, at : at + size] = np.frombuffer(struct.pack("<f", 1.0)[-2:] if size == 2 else struct.pack("<f", 1.0), np.uint8)
    finite = FORMATS[format_name].dequantize(raw)
    if hasattr(weights, "halves"):
        assert weights.is_finite(raw)
        assert np.isfinite(finite).all()
    for half in halves:
        bad = raw.copy()
        bad[1, 2 * weights.block_bytes + half :][:size] = np.frombuffer(np.array(np.nan, f"<f{size}").tobytes(), np.uint8)
        if format_name == "BF16":
            bad[1, 2 * weights.block_bytes :][:2] = (0xC0, 0x7F)
        assert not weights.is_finite(bad)
        assert not np.isfinite(weights.dequantize(bad)).all()


def ones(type_name: str, size_bytes: int) -> bytes:
    """Weights of about one: the scales are, the codes are small."""
    weights = FORMATS[type_name]
    if type_name in ("F32", "F16", "BF16"):
        one = {"F32": struct.pack("<f", 1), "F16": struct.pack("<e", 1), "BF16": struct.pack("<f", 1)[2:]}[type_name]
        return one * (size_bytes // len(one))
    blocks = np.full((size_bytes // weights.block_bytes, weights.block_bytes), 0x11, np.uint8)
    for value, at in zip((1, 0), getattr(weights, "halves", ()), strict=False):  # the scale; the minimum, where there is one
        blocks[:, at : at + 2] = np.frombuffer(struct.pack("<e", value), np.uint8)
    return blocks.tobytes()


def overflowing(where: str, type_name: str = "F32") -> Parts:
    """A model of finite weights in which products of one kind overflow."""
    parts = tiny_parts(width=256, ff_width=256, heads=8, kv_heads=8, head_dim=32, type_name=type_name)
    for name, tensor in parts.tensors.items():
        if len(tensor.shape) > 1:
            parts.tensors[name] = Tensor(tensor.shape, tensor.type_id, ones(type_name, tensor.size_bytes))
    norm = parts.tensors[f"blk.0.{where}.weight"]
    parts.tensors[f"blk.0.{where}.weight"] = Tensor(norm.shape, 0, np.full(norm.shape, 3e38, np.float32).tobytes())
    return parts


def variants() -> list[str]:
    """The CPU variants that this machine runs."""
    return ["auto"] if detect() == PORTABLE else ["auto", PORTABLE.name]


@pytest.mark.parametrize("cpu", variants())
@pytest.mark.parametrize("kv_cache", ["f32", "f16", "q8_0"])
@pytest.mark.parametrize("type_name", FORMATS)
@pytest.mark.parametrize("where", ["attn_norm", "ffn_norm"])
def test_rows_that_overflow_end_broken(where: str, type_name: str, kv_cache: str, cpu: str, tmp_path: Path) -> None:
    path = written(tmp_path / "overflow.gguf", overflowing(where, type_name))
    engine = Engine(open_model(path, cpu=cpu, kv_cache=kv_cache), slots=1, context=64, kv_cache=kv_cache, threads=1)
    events = engine.generate(Request(Prompt((PROMPT,)), 4))
    engine.close()
    assert [event.finish for event in events] == ["broken"]


@pytest.mark.parametrize("kv_cache", ["f32", "f16", "q8_0"])
@pytest.mark.parametrize("place", ["first", "middle", "last"])
@pytest.mark.parametrize("value", BAD)
def test_a_broken_row_of_a_prompt_breaks_its_sequence_and_no_other(value: str, place: str, kv_cache: str) -> None:
    model = open_model(oracle_files("formats/llama-Q8_0.gguf")[0], kv_cache=kv_cache)
    rows = np.random.default_rng(1).standard_normal((30, model.spec.width)).astype(np.float32) / 20
    broken = rows.copy()
    broken[{"first": 0, "middle": 14, "last": 29}[place], 3] = BAD[value]
    engine = Engine(model, slots=2, context=64, kv_cache=kv_cache, threads=1)
    alone = [event.token for event in engine.generate(Request(Prompt((Rows(rows),)), 5))]
    engine.submit(Request(Prompt((Rows(broken),)), 5, key="broken"))
    engine.submit(Request(Prompt((Rows(rows),)), 5, key="sound"))
    events = []
    while not engine.idle:
        events += engine.step()
    engine.close()
    assert [event.finish for event in events if event.key == "broken"] == ["broken"]
    assert [event.token for event in events if event.key == "sound"] == alone
