"""Random models of real shapes: what a benchmark needs of weights is their size and layout, not their values.

The default shape is LightOnOCR-1B's: a text part in the mix of formats that a Q4_K_M file has, and a float16 encoder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray
from tokenizers.pre_tokenizers import ByteLevel

Bytes = NDArray[np.uint8]
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|image_pad|>")


@dataclass(frozen=True, slots=True)
class TextShape:
    """A decoder's sizes."""

    layers: int = 28
    width: int = 1024
    heads: int = 16
    kv_heads: int = 8
    head_dim: int = 128
    ff_width: int = 3072
    vocab: int = 151936


@dataclass(frozen=True, slots=True)
class VisionShape:
    """An encoder's sizes."""

    layers: int = 24
    width: int = 1024
    heads: int = 16
    ff_width: int = 4096
    out_width: int = 1024


def write_text_model(path: Path, shape: TextShape = TextShape(), seed: int = 0) -> Path:
    """A qwen3 file: Q4_K, with Q6_K for the embedding and half of the v and down matrices."""
    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_block_count(shape.layers)
    writer.add_context_length(16384)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.ff_width)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    _add_tokenizer(writer, shape.vocab)
    _add(writer, "token_embd", rng, Type.Q6_K, shape.vocab, shape.width)
    _add_norm(writer, "output_norm", shape.width)
    for layer in range(shape.layers):
        _add_layer(writer, shape, layer, rng)
    return _close(writer, path)


def write_vision_model(path: Path, shape: VisionShape = VisionShape(), seed: int = 1) -> Path:
    """A float16 mmproj file."""
    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type("mmproj")
    writer.add_clip_has_vision_encoder(True)
    writer.add_string("clip.projector_type", "lightonocr")
    writer.add_vision_use_silu(True)
    writer.add_vision_projection_dim(shape.out_width)
    writer.add_vision_image_size(1540)
    writer.add_vision_patch_size(14)
    writer.add_vision_embedding_length(shape.width)
    writer.add_vision_feed_forward_length(shape.ff_width)
    writer.add_vision_block_count(shape.layers)
    writer.add_vision_head_count(shape.heads)
    writer.add_vision_attention_layernorm_eps(1e-5)
    writer.add_vision_spatial_merge_size(2)
    writer.add_vision_image_mean([0.48145466, 0.4578275, 0.40821073])
    writer.add_vision_image_std([0.26862954, 0.26130258, 0.27577711])
    writer.add_tensor("v.patch_embd.weight", _half(rng, shape.width, 3 * 14 * 14).reshape(shape.width, 3, 14, 14))
    _add_norm(writer, "v.pre_ln", shape.width)
    for layer in range(shape.layers):
        for name in ("ln1", "ln2"):
            _add_norm(writer, f"v.blk.{layer}.{name}", shape.width)
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            writer.add_tensor(f"v.blk.{layer}.{name}.weight", _half(rng, shape.width, shape.width))
        for name in ("ffn_gate", "ffn_up"):
            writer.add_tensor(f"v.blk.{layer}.{name}.weight", _half(rng, shape.ff_width, shape.width))
        writer.add_tensor(f"v.blk.{layer}.ffn_down.weight", _half(rng, shape.width, shape.ff_width))
    _add_norm(writer, "mm.input_norm", shape.width)
    writer.add_tensor("mm.patch_merger.weight", _half(rng, shape.width, 4 * shape.width))
    writer.add_tensor("mm.1.weight", _half(rng, shape.out_width, shape.width))
    writer.add_tensor("mm.2.weight", _half(rng, shape.out_width, shape.out_width))
    return _close(writer, path)


def _add_layer(writer: gguf.GGUFWriter, shape: TextShape, layer: int, rng: np.random.Generator) -> None:
    better = Type.Q6_K if layer % 2 else Type.Q4_K
    q_rows, kv_rows = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    for name, size in (("attn_norm", shape.width), ("ffn_norm", shape.width)):
        _add_norm(writer, f"blk.{layer}.{name}", size)
    for name in ("attn_q_norm", "attn_k_norm"):
        _add_norm(writer, f"blk.{layer}.{name}", shape.head_dim)
    for name, kind, rows, width in (
        ("attn_q", Type.Q4_K, q_rows, shape.width),
        ("attn_k", Type.Q4_K, kv_rows, shape.width),
        ("attn_v", better, kv_rows, shape.width),
        ("attn_output", Type.Q4_K, shape.width, q_rows),
        ("ffn_gate", Type.Q4_K, shape.ff_width, shape.width),
        ("ffn_up", Type.Q4_K, shape.ff_width, shape.width),
        ("ffn_down", better, shape.width, shape.ff_width),
    ):
        _add(writer, f"blk.{layer}.{name}", rng, kind, rows, width)


def _add_tokenizer(writer: gguf.GGUFWriter, vocab: int) -> None:
    bytes_ = sorted(ByteLevel.alphabet())
    fillers = [f"w{number}" for number in range(vocab - len(bytes_) - len(SPECIALS))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(bytes_ + fillers + list(SPECIALS))
    writer.add_token_types([1] * (vocab - len(SPECIALS)) + [3] * len(SPECIALS))
    writer.add_token_merges(["w 1"])
    writer.add_eos_token_id(vocab - 2)


def _add(writer: gguf.GGUFWriter, name: str, rng: np.random.Generator, kind: Type, rows: int, width: int) -> None:
    writer.add_tensor(f"{name}.weight", RANDOM[kind](rng, rows, width), raw_dtype=kind)


def _add_norm(writer: gguf.GGUFWriter, name: str, width: int) -> None:
    writer.add_tensor(f"{name}.weight", np.ones(width, np.float32))


def _half(rng: np.random.Generator, rows: int, width: int) -> NDArray[np.float16]:
    """Values whose products keep a row's size."""
    return (rng.standard_normal((rows, width), np.float32) / np.sqrt(width)).astype(np.float16)


def _scales(width: int, largest: float) -> Bytes:
    """The two bytes of a float16 super-scale that keeps a row's size."""
    return np.array([1 / (largest * np.sqrt(width))], np.float16).view(np.uint8)


def _q4_k(rng: np.random.Generator, rows: int, width: int) -> Bytes:
    blocks = rng.integers(0, 256, (rows, width // 256, 144), np.uint8)
    blocks[..., 0:2] = _scales(width, 32 * 5)
    blocks[..., 2:4] = _scales(width, 32 * 5 / 7.5)  # minima that centre the codes 0..15
    blocks[..., 8:12] = blocks[..., 4:8]  # as large as the scales
    return blocks.reshape(rows, -1)


def _q6_k(rng: np.random.Generator, rows: int, width: int) -> Bytes:
    blocks = rng.integers(0, 256, (rows, width // 256, 210), np.uint8)
    blocks[..., 208:210] = _scales(width, 64 * 18)
    return blocks.reshape(rows, -1)


RANDOM: dict[Type, Callable[[np.random.Generator, int, int], Bytes]] = {Type.Q4_K: _q4_k, Type.Q6_K: _q6_k}


def _close(writer: gguf.GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
