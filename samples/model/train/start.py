"""Weights to begin from when there is no checkpoint: tokens that are spelled alike start alike."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from samples.model.train.network import Network
from samples.model.train.vocabulary import open_tokenizer

LONGEST, LAST = 8, 3  # characters from a token's start, and from its end, that shape its vector
NARROW = ("o_proj.weight", "down_proj.weight")  # added to the residual: start small


@torch.no_grad()
def initialise(network: Network, seed: int) -> None:
    """Fill all matrices; rare tokens then learn from frequent ones with the same letters."""
    draws = torch.Generator().manual_seed(seed)
    for name, parameter in network.named_parameters():
        if parameter.dim() > 1:
            scale = parameter[0].numel() ** -0.5 * (0.3 if name.endswith(NARROW) else 1.0)
            nn.init.normal_(parameter, 0.0, scale, generator=draws)
    network.embed.weight.copy_(spelled(network.shape.vocab, network.shape.width, draws))


def spelled(vocab: int, width: int, draws: torch.Generator) -> Tensor:
    """(vocab, width) unit vectors: a sum over a token's characters by place, from both ends, and a little of its own."""
    from_start = torch.randn(LONGEST + 1, 128, width, generator=draws)
    from_end = 0.7 * torch.randn(LAST, 128, width, generator=draws)
    lengths = torch.randn(LONGEST + 2, width, generator=draws)
    own = torch.randn(vocab, width, generator=draws)
    rows = []
    for token in range(vocab):
        text = open_tokenizer().decode([token], skip_special_tokens=False)
        if not text or not text.isascii() or text.startswith("<|"):
            rows.append(2.3 * own[token])
            continue
        row = lengths[min(len(text), LONGEST + 1)] + 0.3 * own[token]
        for place, letter in enumerate(text[:LONGEST]):
            row = row + from_start[place, ord(letter)]
        for place, letter in enumerate(text[: -LAST - 1 : -1]):
            row = row + from_end[place, ord(letter)]
        rows.append(row)
    return nn.functional.normalize(torch.stack(rows))
