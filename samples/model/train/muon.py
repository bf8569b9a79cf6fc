"""Muon (Jordan et al. 2024) for matrices: momentum, made orthogonal by Newton-Schulz steps.  AdamW takes the rest."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

STEPS = ((4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037), (2.8769, -3.1427, 1.2046))
MOMENTUM = 0.95


class Muon:
    """Matrices of one shape are stepped together."""

    def __init__(self, matrices: Sequence[nn.Parameter], weight_decay: float = 0.01) -> None:
        self.weight_decay = weight_decay
        self._groups: dict[tuple[int, ...], list[nn.Parameter]] = {}
        for matrix in matrices:
            self._groups.setdefault(tuple(matrix.shape), []).append(matrix)
        self._momenta = {
            shape: torch.zeros(len(group), *shape, device=group[0].device) for shape, group in self._groups.items()
        }

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """One update from the matrices' gradients; all of them must have one."""
        for shape, group in self._groups.items():
            gradient = torch.stack([matrix.grad for matrix in group if matrix.grad is not None])
            momentum = self._momenta[shape].mul_(MOMENTUM).add_(gradient)
            update = orthogonal(gradient.add_(momentum, alpha=MOMENTUM))
            scale = rate * max(1.0, shape[0] / shape[1]) ** 0.5
            for matrix, change in zip(group, update, strict=True):
                matrix.mul_(1 - rate * self.weight_decay).add_(change, alpha=-scale)

    def state(self) -> dict[str, Tensor]:
        """Momenta by shape."""
        return {f"muon.{shape[0]}x{shape[1]}": momentum for shape, momentum in self._momenta.items()}

    def load(self, state: dict[str, Tensor]) -> None:
        """Take back what `state` gave."""
        for name, momentum in self.state().items():
            momentum.copy_(state[name])


def orthogonal(gradients: Tensor) -> Tensor:
    """gradients: (matrices, rows, columns).  The nearest semi-orthogonal matrices, roughly; in bfloat16."""
    x = (gradients / (gradients.flatten(1).norm(dim=1)[:, None, None] + 1e-7)).bfloat16()
    is_tall = x.shape[1] > x.shape[2]
    x = x.mT.contiguous() if is_tall else x
    for a, b, c in STEPS:
        square = x @ x.mT
        x = a * x + (b * square + c * (square @ square)) @ x
    update: Tensor = (x.mT if is_tall else x).float()
    return update
