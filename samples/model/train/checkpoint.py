"""Checkpoints: averaged weights as float16 safetensors (to keep and share), and the full state (to go on from)."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from samples.model.train.network import Network

FIRST_NAMES = {"aux_pat.": "heads.patch.", "aux_cell.": "heads.cell.", "aux_prv.": "heads.before.0."}  # of the prototype


def save_weights(path: Path, weights: dict[str, Tensor], notes: dict[str, str]) -> None:
    """Matrices in float16, the rest in float32; replaces the file in one go."""
    kept = {
        name: (weight.half() if weight.dim() > 1 else weight.float()).contiguous().cpu() for name, weight in weights.items()
    }
    part = path.with_suffix(".part")
    save_file(kept, part, metadata=notes)
    os.replace(part, path)


def load_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Weights in float32 under today's names, and the notes saved with them."""
    with safe_open(path, "pt") as file:
        weights = {_today(name): file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118  not a dict
        return weights, dict(file.metadata() or {})


def put_weights(network: Network, weights: dict[str, Tensor]) -> None:
    """Fill the network.  Heads of the training may be missing, from before they were thought of; other gaps are refused.

    The second `before` head then starts as a copy of the first, others as they are.
    """
    weights = dict(weights)
    for name in ("weight", "bias"):
        weights.setdefault(f"heads.before.1.{name}", weights[f"heads.before.0.{name}"])
    for name, weight in network.state_dict().items():
        if name.startswith("heads."):
            weights.setdefault(name, weight)
    network.load_state_dict(weights)


def save_state(path: Path, state: dict[str, object]) -> None:
    """Everything that training goes on from."""
    part = path.with_suffix(".part")
    torch.save(state, part)
    os.replace(part, path)


def load_state(path: Path) -> dict[str, object]:
    """What `save_state` wrote; tensors, numbers and strings only."""
    state: dict[str, object] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def _today(name: str) -> str:
    for old, new in FIRST_NAMES.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name
