"""What a batch costs: glyphs in patches and cells, the pointers, and the next token."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from samples.model.train.batches import PAD, Batch
from samples.model.train.labels import BEFORE, GLYPHS, LEVELS, PATCH, RUNS
from samples.model.train.network import POINTERS, Network, Shape
from samples.model.train.vocabulary import turns

EMPTY_WEIGHT = 0.1  # of empty patches and cells, which are many and easy
BEFORE_WEIGHT = 0.7
LEVEL_WEIGHT = 0.5
NOISY_SHARE, NOISES = 0.5, (0.02, 0.05, 0.1)  # of batches; of their input tokens, against trusting what was written so far
PLAIN_TOKENS = 1500  # noise draws from the tokens before the special ones


@dataclass(frozen=True, slots=True)
class Weights:
    """How much the taught parts count beside the next token."""

    glyphs: float = 1.0
    pointers: float = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The mean loss of a batch, its parts as numbers, and the encoder's output where it may be used again."""

    loss: Tensor
    parts: dict[str, float]
    seen: NDArray[np.float16] | None


def batch_loss(network: Network, batch: Batch, weights: Weights) -> Outcome:
    """Look at the pages, unless they come with what was seen, and read them."""
    device = network.embed.weight.device
    draws = torch.Generator().manual_seed(batch.seed)
    parts: dict[str, Tensor] = {}
    loss = torch.zeros((), device=device)
    if batch.seen is not None:
        cells = put(batch.seen, device)
    else:
        with torch.set_grad_enabled(not batch.is_frozen):
            patches, cells = network.see(put(batch.pixels, device))
    if not batch.is_frozen:
        parts |= glyph_losses(network, batch, patches, cells)
        before = BEFORE_WEIGHT * (parts["before0"] + parts["before1"])
        loss = weights.glyphs * (parts["patch"] + parts["cell"] + before + LEVEL_WEIGHT * parts["levels"])
    reading, pointing = read_losses(network, batch, cells, draws)
    parts |= reading | pointing
    loss = loss + reading["token"] + LEVEL_WEIGHT * reading["level"]
    loss = loss + weights.pointers * torch.stack(list(pointing.values())).sum()
    prefix = "frozen_" if batch.is_frozen else ""
    seen = cells.half().cpu().numpy() if batch.is_frozen and batch.seen is None else None
    return Outcome(loss, {prefix + name: value.item() for name, value in parts.items()}, seen)


def glyph_losses(network: Network, batch: Batch, patches: Tensor, cells: Tensor) -> dict[str, Tensor]:
    """Cross-entropies of patches, cells and the characters before them; and two accuracies."""
    device = patches.device
    patch, patch_right = slot_loss(network.heads.patch(patches), put(batch.patches, device).long())
    cell, cell_right = slot_loss(network.heads.cell(cells), put(batch.cells, device).long())
    parts = {"patch": patch, "cell": cell, "patch_right": patch_right, "cell_right": cell_right}
    labels = put(batch.before, device).long()  # (pages, cells, runs, before)
    runs = network.heads.levels(cells).unflatten(-1, (RUNS, LEVELS + 1)).float()
    wanted = put(batch.levels, device).long()
    weight = torch.where(wanted == 0, EMPTY_WEIGHT, 1.0)
    found = functional.cross_entropy(runs.flatten(0, -2), wanted.flatten(), reduction="none")
    parts["levels"] = (found * weight.flatten()).sum() / weight.sum()
    for run, head in enumerate(network.heads.before):
        used = labels[:, :, run, 0] > 0
        logits = head(cells[used]).view(-1, GLYPHS + 2).float()
        found = functional.cross_entropy(logits, labels[:, :, run][used].flatten(), reduction="sum")
        parts[f"before{run}"] = found / (used.sum() * BEFORE).clamp(min=1)
    return parts


def slot_loss(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Loss over the filled slots and the one after them; share of the filled ones that are right."""
    slots = labels.shape[-1]
    filled = (labels > 0).sum(-1, keepdim=True)
    counted = torch.arange(slots, device=labels.device) <= filled
    logits, wanted = logits.view(*labels.shape, GLYPHS)[counted].float(), labels[counted]
    weight = torch.where((filled == 0).expand_as(labels)[counted], EMPTY_WEIGHT, 1.0)
    loss = (functional.cross_entropy(logits, wanted, reduction="none") * weight).sum() / weight.sum()
    is_glyph = wanted > 0
    right = ((logits.argmax(-1) == wanted) & is_glyph).sum() / is_glyph.sum().clamp(min=1)
    return loss, right


def read_losses(
    network: Network, batch: Batch, cells: Tensor, draws: torch.Generator
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Next-token loss and accuracy; the pointers' losses."""
    device = cells.device
    turn = turns()[batch.turn]
    tokens = torch.from_numpy(batch.tokens)
    written = with_noise(tokens[:, :-1].clamp(min=0), draws).to(device)
    tokens, pages = tokens.to(device), len(tokens)
    before = network.embed(torch.tensor(turn.before, device=device)).expand(pages, -1, -1)
    after = torch.cat((torch.tensor(turn.after, device=device).expand(pages, -1), written), 1)
    first = len(turn.before) + cells.shape[1] + len(turn.after) - 1
    logits, scores, level = network.read(torch.cat((before, cells.float(), network.embed(after)), 1), first)
    counted = tokens != PAD
    logits, wanted = logits[counted].float(), tokens[counted]
    reading = {"token": functional.cross_entropy(logits, wanted), "token_right": (logits.argmax(-1) == wanted).float().mean()}
    reading["level"] = level_loss(level.float(), put(batch.levels_of, device))
    following = put(batch.spans, device)
    current = torch.cat((torch.full_like(following[:, :1], PAD), following[:, :-1]), 1)
    pointing = {}
    for layer, raw in zip(POINTERS, scores, strict=True):
        spans = current if layer == POINTERS[0] else following
        pointing[f"pointer{layer}"] = pointer_loss(raw.float(), spans, len(turn.before), first)
    return reading, pointing


def with_noise(tokens: Tensor, draws: torch.Generator) -> Tensor:
    """Half of the batches with a few wrong tokens in what was read so far."""
    if torch.rand((), generator=draws) >= NOISY_SHARE:
        return tokens
    share = NOISES[int(torch.randint(len(NOISES), (), generator=draws))]
    struck = torch.rand(tokens.shape, generator=draws) < share
    return torch.where(struck, torch.randint(PLAIN_TOKENS, tokens.shape, generator=draws), tokens)


def pointer_loss(raw: Tensor, spans: Tensor, image_start: int, first: int) -> Tensor:
    """Mean -log of the attention that falls on a token's first and last cell.  raw: (pages, text rows, all rows)."""
    rows, keys = raw.shape[1:]
    is_past = torch.arange(keys, device=raw.device) <= torch.arange(rows, device=raw.device)[:, None] + first
    raw = raw.masked_fill(~is_past, -torch.inf)
    printed = spans[..., 0] != PAD
    if not printed.any():
        return raw.new_zeros(())
    at = raw.gather(2, spans.clamp(min=0) + image_start)
    twice = torch.where(spans[..., 0] == spans[..., 1], np.log(2.0), 0.0)  # one cell counted twice
    return (raw.logsumexp(-1) - at.logsumexp(-1) + twice)[printed].mean()


def level_loss(logits: Tensor, levels: Tensor) -> Tensor:
    """Cross-entropy over the printed tokens.  levels: (pages, text rows), -1 where not printed."""
    printed = levels != PAD
    if not printed.any():
        return logits.new_zeros(())
    return functional.cross_entropy(logits[printed], levels[printed])


def batch_flop(shape: Shape, batch: Batch) -> float:
    """Floating-point operations of a batch's products and attention, forward and backward."""
    pages, height, width = batch.pixels.shape[:3]
    patches, tokens = height // PATCH * (width // PATCH), batch.tokens.shape[1]
    cells = patches // shape.merge**2
    rows = cells + tokens + 14
    w, v = shape.width, shape.vision_width
    layer = w * shape.head_dim * (2 * shape.heads + 2 * shape.kv_heads) + 3 * w * shape.hidden
    see = patches * (3 * PATCH**2 * v + shape.vision_layers * (4 * v * v + 3 * v * shape.vision_hidden))
    see += shape.vision_layers * 2 * patches**2 * v + cells * (shape.merge**2 * v * v + v * w + w * w)
    read = layer * (rows * (shape.layers - 1) + tokens) + tokens * w * shape.vocab
    read += shape.layers * 2 * rows**2 * shape.heads * shape.head_dim
    passes = 0 if batch.seen is not None else 2 if batch.is_frozen else 6
    return float(pages * (see * passes + read * 6))


def put(array: NDArray[np.generic], device: torch.device) -> Tensor:
    """A numpy array on the device."""
    return torch.from_numpy(array).to(device)
