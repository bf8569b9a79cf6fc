"""A pair's weights in float32 under training's names: lets other programs run exactly what the GGUF files hold."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from samples.model.train.export import PROJECTION, PROJECTOR, TEXT, TEXT_LAYER, VISION_LAYER
from samples.model.train.network import SHAPE, Shape


def load_pair(folder: Path, shape: Shape = SHAPE) -> dict[str, Tensor]:
    """What `export` wrote, rounded as it was written; the heads of the training are not in it."""
    text, vision = (read_tensors(folder / name) for name in (TEXT, PROJECTOR))
    weights = {"embed.weight": text["token_embd.weight"], "norm.weight": text["output_norm.weight"]}
    for layer in range(shape.layers):
        for ours, theirs in TEXT_LAYER.items():
            weights[f"layers.{layer}.{ours}.weight"] = text[f"blk.{layer}.{theirs}.weight"]
    for ours, theirs in PROJECTION.items():
        weights[f"{ours}.weight"] = vision[f"{theirs}.weight"]
    for layer in range(shape.vision_layers):
        for ours, theirs in VISION_LAYER.items():
            array = vision[f"v.blk.{layer}.{theirs}.weight"]
            turned = halved(array, shape.vision_heads) if ours in ("q_proj", "k_proj") else array
            weights[f"vision.layers.{layer}.{ours}.weight"] = turned
    return {name: torch.from_numpy(np.array(array, np.float32)) for name, array in weights.items()}


def read_tensors(path: Path) -> dict[str, NDArray[np.float32]]:
    """All tensors of a GGUF file by name."""
    return {tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type) for tensor in gguf.GGUFReader(path).tensors}


def halved(matrix: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Undoes `export.paired`: rows (index, half) of each head to (half, index)."""
    rows, columns = matrix.shape
    return matrix.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
