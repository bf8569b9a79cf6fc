"""Greedy reading with the network itself, many pages of one size at a time; the engine is the product's way."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from samples.model.train.network import Network, TextLayer
from samples.model.train.vocabulary import end_id, open_tokenizer, turns


@torch.no_grad()
def transcribe(network: Network, pixels: Tensor, limit: int) -> list[str]:
    """pixels: (pages, height, width, 3) uint8.  Texts of at most `limit` tokens each."""
    turn, end, device = turns()[0], end_id(), pixels.device
    _, cells = network.see(pixels)
    pages = len(cells)
    before, after = (network.embed(torch.tensor(ids, device=device)).expand(pages, -1, -1) for ids in (turn.before, turn.after))
    rows = torch.cat((before, cells.float(), after), 1)
    shape = network.shape
    cache_shape = (shape.layers, 2, pages, shape.kv_heads, rows.shape[1] + limit, shape.head_dim)
    cache = torch.empty(cache_shape, dtype=cells.dtype, device=device)
    past = 0
    written: list[Tensor] = []
    done = torch.zeros(pages, dtype=torch.bool, device=device)
    while len(written) < limit and not done.all():
        cosine, sine = network.angles(past, past + rows.shape[1], device)
        length = rows.shape[1]
        for layer, layer_cache in zip(network.layers, cache, strict=True):
            assert isinstance(layer, TextLayer)
            rows = layer.extend(rows, cosine, sine, layer_cache, past)
        past += length
        tokens = functional.linear(network.norm(rows[:, -1]), network.embed.weight).argmax(-1)
        tokens = torch.where(done, end, tokens)
        written.append(tokens)
        done |= tokens == end
        rows = network.embed(tokens)[:, None]
    return [_text(ids, end) for ids in torch.stack(written, 1).tolist()]


def _text(ids: list[int], end: int) -> str:
    return str(open_tokenizer().decode(ids[: ids.index(end)] if end in ids else ids, skip_special_tokens=False))
