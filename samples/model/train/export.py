"""`python -m samples.model.train.export WEIGHTS FOLDER`: the GGUF pair as llama.cpp's converter names its parts.

text-q8_0.gguf is architecture qwen3 in Q8_0, mmproj-f16.gguf the encoder and projector `lightonocr` in F16.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray
from torch import Tensor

from samples.model.train.checkpoint import load_weights
from samples.model.train.labels import PATCH
from samples.model.train.network import MEAN, SHAPE, STD, Shape
from samples.model.train.vocabulary import END, FILE

TEXT, PROJECTOR = "text-q8_0.gguf", "mmproj-f16.gguf"
NAME, LICENCE, VERSION = "pagemill-sample", "apache-2.0", "2"
READS = "clean English print in printable ASCII, letters of 14 to 28 px, as Markdown"
TEXTS = ("King James Bible (public domain)", "Python documentation (PSF-2.0)", "wamerican word list (public domain)")
PADDING = "<|endoftext|>"
LONGEST_EDGE_PX = 672
TEXT_LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
VISION_LAYER = {
    "attention_norm": "ln1",
    "ffn_norm": "ln2",
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_out",
    "feed_forward.gate_proj": "ffn_gate",
    "feed_forward.up_proj": "ffn_up",
    "feed_forward.down_proj": "ffn_down",
}
PROJECTION = {
    "vision.patch_conv": "v.patch_embd",
    "vision.ln_pre": "v.pre_ln",
    "proj.norm": "mm.input_norm",
    "proj.merging_layer": "mm.patch_merger",
    "proj.linear_1": "mm.1",
    "proj.linear_2": "mm.2",
}
CHAT_TEMPLATE = (
    "{{ '<|im_start|>system<|im_end|>\\n' }}{% for message in messages %}{% if message['role'] != 'system' %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' }}{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for c in message['content'] %}{% if c['type'] == 'text' %}{{ c['text'] }}{% else %}{{ '<|image_pad|>' }}{% endif %}"
    "{% endfor %}{% endif %}{{ '<|im_end|>\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def export(weights: Mapping[str, Tensor], folder: Path, notes: Mapping[str, str], shape: Shape = SHAPE) -> None:
    """Write both files; heads of the training are left out."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {name: weight.float().numpy() for name, weight in weights.items()}
    text = gguf.GGUFWriter(folder / TEXT, "qwen3")
    describe(text, gguf.GGUFType.MODEL, gguf.LlamaFileType.MOSTLY_Q8_0, notes)
    add_text_keys(text, shape)
    add_tokenizer(text, shape)
    write(text, text_tensors(arrays, shape), Type.Q8_0)
    projector = gguf.GGUFWriter(folder / PROJECTOR, "clip")
    describe(projector, gguf.GGUFType.MMPROJ, gguf.LlamaFileType.MOSTLY_F16, notes)
    add_vision_keys(projector, shape)
    write(projector, vision_tensors(arrays, shape), Type.F16)


def describe(writer: gguf.GGUFWriter, kind: str, file_type: gguf.LlamaFileType, notes: Mapping[str, str]) -> None:
    """Who made it, from what, and for what."""
    writer.add_type(kind)
    writer.add_name(NAME)
    writer.add_version(VERSION)
    writer.add_license(LICENCE)
    writer.add_description(f"Reads {READS}. Trained for {notes.get('flop', '?')} FLOP on pages drawn from: {'; '.join(TEXTS)}.")
    writer.add_languages(["en"])
    writer.add_tags(["ocr", "image-to-text"])
    writer.add_file_type(file_type)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)


def add_text_keys(writer: gguf.GGUFWriter, shape: Shape) -> None:
    """The decoder's dimensions."""
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_freq_base(shape.theta)
    writer.add_layer_norm_rms_eps(shape.eps)
    writer.add_vocab_size(shape.vocab)


def add_tokenizer(writer: gguf.GGUFWriter, shape: Shape) -> None:
    """Byte-level BPE with Qwen2's pre-split; the special tokens are control tokens."""
    file = json.loads(FILE.read_text())
    special = {token["content"]: token["id"] for token in file["added_tokens"]}
    tokens = sorted((file["model"]["vocab"] | special).items(), key=lambda token: token[1])
    if [number for _, number in tokens] != list(range(shape.vocab)):
        raise SystemExit(
            f"{FILE}: expected tokens numbered 0 to {shape.vocab - 1}, found {len(tokens)}: train the tokenizer again"
        )
    kinds = [gguf.TokenType.CONTROL if text in special else gguf.TokenType.NORMAL for text, _ in tokens]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in file["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([text for text, _ in tokens])
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(special[END])
    writer.add_pad_token_id(special[PADDING])
    writer.add_bos_token_id(special[PADDING])
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def add_vision_keys(writer: gguf.GGUFWriter, shape: Shape) -> None:
    """The encoder's and projector's dimensions."""
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type("lightonocr")
    writer.add_vision_projection_dim(shape.width)
    writer.add_vision_image_size(LONGEST_EDGE_PX)
    writer.add_vision_patch_size(PATCH)
    writer.add_vision_embedding_length(shape.vision_width)
    writer.add_vision_feed_forward_length(shape.vision_hidden)
    writer.add_vision_block_count(shape.vision_layers)
    writer.add_vision_head_count(shape.vision_heads)
    writer.add_vision_image_mean(list(MEAN))
    writer.add_vision_image_std(list(STD))
    writer.add_vision_attention_layernorm_eps(shape.vision_eps)
    writer.add_vision_use_silu(True)
    writer.add_vision_spatial_merge_size(shape.merge)


def text_tensors(arrays: Mapping[str, NDArray[np.float32]], shape: Shape) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """The decoder's tensors under GGUF's names; no output matrix, as it is the embedding."""
    yield "token_embd.weight", arrays["embed.weight"]
    yield "output_norm.weight", arrays["norm.weight"]
    for layer in range(shape.layers):
        for ours, theirs in TEXT_LAYER.items():
            yield f"blk.{layer}.{theirs}.weight", arrays[f"layers.{layer}.{ours}.weight"]


def vision_tensors(arrays: Mapping[str, NDArray[np.float32]], shape: Shape) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """The encoder's and projector's tensors; queries and keys reordered for rope on adjacent pairs."""
    for ours, theirs in PROJECTION.items():
        yield f"{theirs}.weight", arrays[f"{ours}.weight"]
    for layer in range(shape.vision_layers):
        for ours, theirs in VISION_LAYER.items():
            array = arrays[f"vision.layers.{layer}.{ours}.weight"]
            yield f"v.blk.{layer}.{theirs}.weight", paired(array, shape.vision_heads) if ours in ("q_proj", "k_proj") else array


def paired(matrix: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Rows (half, index) of each head to (index, half): what rotates halves here rotates neighbours in ggml."""
    rows, columns = matrix.shape
    return matrix.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write(writer: gguf.GGUFWriter, tensors: Iterator[tuple[str, NDArray[np.float32]]], matrix_type: Type) -> None:
    """Matrices in `matrix_type`, vectors in float32; closes the file."""
    for name, array in tensors:
        kind = Type.F32 if array.ndim == 1 else matrix_type
        writer.add_tensor(name, gguf.quants.quantize(np.ascontiguousarray(array), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    """Read weights, write the pair."""
    parser = argparse.ArgumentParser(prog="python -m samples.model.train.export", description=__doc__)
    parser.add_argument("weights", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    weights, notes = load_weights(options.weights)
    export(weights, options.folder, notes)


if __name__ == "__main__":
    main()
