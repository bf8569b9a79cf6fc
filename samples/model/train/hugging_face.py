"""`python -m samples.model.train.hugging_face WEIGHTS FOLDER`: what transformers' LightOnOCR class loads with from_pretrained.

Writes config.json, generation_config.json, model.safetensors and tokenizer.json; the image is normalised as the GGUF file says.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from samples.model.train.checkpoint import load_weights
from samples.model.train.export import LONGEST_EDGE_PX
from samples.model.train.labels import PATCH
from samples.model.train.network import SHAPE, Shape
from samples.model.train.vocabulary import FILE, end_id, open_tokenizer

IMAGE = "<|image_pad|>"
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")


def export(weights: Mapping[str, Tensor], folder: Path, shape: Shape = SHAPE) -> None:
    """Write the folder, weights in float32; heads of the training are left out."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {their_name(name): weight.float().contiguous() for name, weight in weights.items() if not name.startswith("heads.")}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config(shape), indent=2) + "\n")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": end_id(), "do_sample": False}, indent=2) + "\n")
    shutil.copyfile(FILE, folder / "tokenizer.json")


def their_name(ours: str) -> str:
    """A parameter's name in transformers' class."""
    part, _, rest = ours.partition(".")
    if part == "vision":
        stem, _, leaf = rest.rpartition(".")
        stem = f"transformer.{stem}" if stem.startswith("layers.") else stem
        return f"model.vision_encoder.{with_attention(stem, 'attention')}.{leaf}"
    if part == "proj":
        inner = f"patch_merger.{rest}" if rest.startswith("merging_layer") else rest
        return f"model.vision_projection.{inner}"
    if part == "embed":
        return f"model.language_model.embed_tokens.{rest}"
    stem, _, leaf = ours.rpartition(".")
    return f"model.language_model.{with_attention(stem, 'self_attn')}.{leaf}"


def with_attention(stem: str, group: str) -> str:
    """Their layers keep attention's matrices in a module of their own."""
    layer, _, last = stem.rpartition(".")
    return f"{layer}.{group}.{last}" if last in ATTENTION else stem


def config(shape: Shape) -> dict[str, object]:
    """config.json as transformers 5 reads it."""
    return {
        "architectures": ["LightOnOcrForConditionalGeneration"],
        "model_type": "lighton_ocr",
        "image_token_id": open_tokenizer().get_vocab()[IMAGE],
        "eos_token_id": end_id(),
        "spatial_merge_size": shape.merge,
        "tie_word_embeddings": True,
        "dtype": "float32",
        "vision_config": {
            "model_type": "pixtral",
            "hidden_size": shape.vision_width,
            "intermediate_size": shape.vision_hidden,
            "num_hidden_layers": shape.vision_layers,
            "num_attention_heads": shape.vision_heads,
            "head_dim": shape.vision_width // shape.vision_heads,
            "patch_size": PATCH,
            "image_size": LONGEST_EDGE_PX,
            "hidden_act": "silu",
            "rope_parameters": {"rope_type": "axial", "rope_theta": shape.theta},
        },
        "text_config": {
            "model_type": "qwen3",
            "hidden_size": shape.width,
            "intermediate_size": shape.hidden,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads,
            "head_dim": shape.head_dim,
            "vocab_size": shape.vocab,
            "rms_norm_eps": shape.eps,
            "rope_parameters": {"rope_type": "default", "rope_theta": shape.theta},
            "tie_word_embeddings": True,
            "max_position_embeddings": shape.context,
        },
    }


def main() -> None:
    """Read weights, write the folder."""
    parser = argparse.ArgumentParser(prog="python -m samples.model.train.hugging_face", description=__doc__)
    parser.add_argument("weights", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    export(load_weights(options.weights)[0], options.folder)


if __name__ == "__main__":
    main()
