"""The LightOnOCR architecture at 7.9 M parameters, and the heads that only training has.

Parameter names are those of the checkpoints; export.py maps them to GGUF's.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from samples.model.train.labels import BEFORE, CELL_SLOTS, GLYPHS, LEVELS, PATCH, PATCH_SLOTS, RUNS

MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)


@dataclass(frozen=True, slots=True)
class Shape:
    """Widths and depths; the defaults are the sample model's."""

    vision_width: int = 256
    vision_layers: int = 4
    vision_heads: int = 4
    vision_hidden: int = 768
    vision_eps: float = 1e-5
    width: int = 256
    layers: int = 6
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    hidden: int = 512
    eps: float = 1e-6
    vocab: int = 1536
    theta: float = 1e4
    merge: int = 2
    context: int = 8192


SHAPE = Shape()
POINTERS = (
    1,
    2,
    4,
)  # decoder layers whose head 0 is taught where to look: at the current token's cell, then twice at the next's
LEVEL_LAYER = 2  # decoder layer after which a row knows at what height its line stands


class Norm(nn.Module):
    """RMS norm."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last axis in x's own precision."""
        return functional.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self.eps)


class GatedLayer(nn.Module):
    """SwiGLU."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = linear(width, hidden), linear(width, hidden), linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) to the same."""
        gate, up = functional.linear(x, torch.cat((self.gate_proj.weight, self.up_proj.weight))).chunk(2, -1)
        out: Tensor = self.down_proj(functional.silu(gate) * up)
        return out


class VisionLayer(nn.Module):
    """Pixtral's layer: full attention with two-dimensional rope."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.vision_width
        self.heads = shape.vision_heads
        self.attention_norm, self.ffn_norm = Norm(width, shape.vision_eps), Norm(width, shape.vision_eps)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (linear(width, width) for _ in range(4))
        self.feed_forward = GatedLayer(width, shape.vision_hidden)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """x: (pages, patches, width)."""
        pages, patches, width = x.shape
        weights = torch.cat((self.q_proj.weight, self.k_proj.weight, self.v_proj.weight))
        heads = functional.linear(self.attention_norm(x), weights).view(pages, patches, 3, self.heads, -1)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(rotate(q, cosine, sine), rotate(k, cosine, sine), v)
        x = x + self.o_proj(mixed.transpose(1, 2).reshape(pages, patches, width))
        out: Tensor = x + self.feed_forward(self.ffn_norm(x))
        return out


class Vision(nn.Module):
    """Patches to features."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.patch_conv = nn.Conv2d(3, shape.vision_width, PATCH, PATCH, bias=False)
        self.ln_pre = Norm(shape.vision_width, shape.vision_eps)
        self.layers = nn.ModuleList(VisionLayer(shape) for _ in range(shape.vision_layers))

    def forward(self, pixels: Tensor) -> Tensor:
        """pixels: (pages, 3, height, width), normalised.  Returns (pages, patches, width)."""
        pages, _, height, width = pixels.shape
        rows, columns = height // PATCH, width // PATCH
        patches = pixels.view(pages, 3, rows, PATCH, columns, PATCH).permute(0, 2, 4, 1, 3, 5)
        embedded = functional.linear(patches.reshape(pages, rows * columns, -1), self.patch_conv.weight.flatten(1))
        x: Tensor = self.ln_pre(embedded.float())
        cosine, sine = self._angles(rows, columns, pixels.device)
        for layer in self.layers:
            x = layer(x, cosine, sine)
        return x

    def _angles(self, rows: int, columns: int, device: torch.device) -> tuple[Tensor, Tensor]:
        frequencies = inverse_frequencies(self.shape.vision_width // self.shape.vision_heads, self.shape.theta, device)
        y = torch.arange(rows, device=device).repeat_interleave(columns).float()
        x = torch.arange(columns, device=device).repeat(rows).float()
        angles = torch.cat((y[:, None] * frequencies[0::2], x[:, None] * frequencies[1::2]), -1)
        return in_compute_type(angles.cos()), in_compute_type(angles.sin())


class Projector(nn.Module):
    """Merges 2 x 2 patches into a cell (channel-major, then row, then column) and maps it to the decoder's width."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.merge = shape.merge
        self.norm = Norm(shape.vision_width, shape.vision_eps)
        self.merging_layer = linear(shape.merge**2 * shape.vision_width, shape.vision_width)
        self.linear_1, self.linear_2 = linear(shape.vision_width, shape.width), linear(shape.width, shape.width)

    def forward(self, x: Tensor, rows: int, columns: int) -> Tensor:
        """x: (pages, rows * columns, width).  Returns (pages, cells, width)."""
        pages, patches, width = x.shape
        m = self.merge
        x = self.norm(x).view(pages, rows // m, m, columns // m, m, width).permute(0, 1, 3, 5, 2, 4)
        x = self.merging_layer(x.reshape(pages, patches // m**2, width * m**2))
        out: Tensor = self.linear_2(functional.gelu(self.linear_1(x)))
        return out


class TextLayer(nn.Module):
    """Qwen3's layer: grouped attention with normed queries and keys."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.input_layernorm, self.post_attention_layernorm = Norm(shape.width, shape.eps), Norm(shape.width, shape.eps)
        self.q_norm, self.k_norm = Norm(shape.head_dim, shape.eps), Norm(shape.head_dim, shape.eps)
        self.q_proj = linear(shape.width, shape.heads * shape.head_dim)
        self.k_proj = linear(shape.width, shape.kv_heads * shape.head_dim)
        self.v_proj = linear(shape.width, shape.kv_heads * shape.head_dim)
        self.o_proj = linear(shape.heads * shape.head_dim, shape.width)
        self.mlp = GatedLayer(shape.width, shape.hidden)

    def project(self, x: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, (pages, heads, rows, head_dim)."""
        weights = torch.cat((self.q_proj.weight, self.k_proj.weight, self.v_proj.weight))
        heads = functional.linear(self.input_layernorm(x), weights).view(*x.shape[:2], -1, self.shape.head_dim).transpose(1, 2)
        q, k, v = torch.split(heads, [self.shape.heads, self.shape.kv_heads, self.shape.kv_heads], 1)
        return rotate(self.q_norm(q), cosine, sine), rotate(self.k_norm(k), cosine, sine), v

    def attend(self, q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> Tensor:
        """(pages, rows, heads * head_dim) of what the rows see."""
        group = self.shape.heads // self.shape.kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        return functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal).transpose(1, 2).flatten(2)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor, first: int, is_last: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Rows out, then head 0's queries of the text rows (from `first` on) and its keys, for the pointers.

        The last layer gives text rows only: nothing reads the others.
        """
        q, k, v = self.project(x, cosine, sine)
        mixed = self.attend(q, k, v, True)
        if is_last:
            x, mixed = x[:, first:], mixed[:, first:]
        x = x + self.o_proj(mixed)
        return x + self.mlp(self.post_attention_layernorm(x)), q[:, 0, first:], k[:, 0]

    def extend(self, x: Tensor, cosine: Tensor, sine: Tensor, cache: Tensor, past: int) -> Tensor:
        """Rows out for new rows.  cache: (2, pages, kv_heads, longest, head_dim), filled up to `past`, gains the new rows."""
        q, k, v = self.project(x, cosine, sine)
        end = past + x.shape[1]
        cache[0, :, :, past:end], cache[1, :, :, past:end] = k, v
        keys, values = cache[0, :, :, :end], cache[1, :, :, :end]
        if x.shape[1] == 1:  # a group's heads as rows: one key head needs no copies
            rows = q.view(*keys.shape[:2], -1, self.shape.head_dim)
            mixed = functional.scaled_dot_product_attention(rows, keys, values).flatten(1)[:, None]
        else:
            mixed = self.attend(q, keys, values, True)
        x = x + self.o_proj(mixed)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Heads(nn.Module):
    """What training asks of patches and cells; left out of the exported model."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.patch = nn.Linear(shape.vision_width, PATCH_SLOTS * GLYPHS)
        self.cell = nn.Linear(shape.width, CELL_SLOTS * GLYPHS)
        self.before = nn.ModuleList(nn.Linear(shape.width, BEFORE * (GLYPHS + 2)) for _ in range(RUNS))
        self.levels = nn.Linear(shape.width, RUNS * (LEVELS + 1))
        self.level = nn.Linear(shape.width, LEVELS)


class Network(nn.Module):
    """Encoder, projector and decoder with tied embedding."""

    mean: Tensor
    std: Tensor

    def __init__(self, shape: Shape = SHAPE) -> None:
        super().__init__()
        self.shape = shape
        self.vision, self.proj = Vision(shape), Projector(shape)
        self.embed = nn.Embedding(shape.vocab, shape.width)
        self.layers = nn.ModuleList(TextLayer(shape) for _ in range(shape.layers))
        self.norm = Norm(shape.width, shape.eps)
        self.heads = Heads(shape)
        self.register_buffer("mean", torch.tensor(MEAN).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(STD).view(1, 3, 1, 1), persistent=False)

    def see(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """pixels: (pages, height, width, 3) uint8.  Returns patch features and cells for the decoder."""
        normal = (pixels.permute(0, 3, 1, 2).float() / 255 - self.mean) / self.std
        patches = self.vision(normal.contiguous())
        return patches, self.proj(patches, pixels.shape[1] // PATCH, pixels.shape[2] // PATCH)

    def read(self, rows: Tensor, first: int) -> tuple[Tensor, list[Tensor], Tensor]:
        """rows: (pages, all rows, width).

        Logits of the rows from `first` on, the pointers' raw scores over all rows, and logits of the next token's level.
        """
        cosine, sine = self.angles(0, rows.shape[1], rows.device)
        scores = []
        level = rows
        for index, layer in enumerate(self.layers):
            rows, query, keys = layer(rows, cosine, sine, first, index == len(self.layers) - 1)
            if index in POINTERS:
                scores.append(query @ keys.transpose(1, 2) * self.shape.head_dim**-0.5)
            if index == LEVEL_LAYER:
                level = self.heads.level(functional.rms_norm(rows[:, first:], rows.shape[-1:]))
        return functional.linear(self.norm(rows), self.embed.weight), scores, level

    def angles(self, first: int, end: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Cosines and sines for positions first to end."""
        positions = torch.arange(first, end, device=device).float()
        angles = positions[:, None] * inverse_frequencies(self.shape.head_dim, self.shape.theta, device)
        return in_compute_type(angles.cos()), in_compute_type(angles.sin())


def linear(inputs: int, outputs: int) -> nn.Linear:
    """A matrix without bias."""
    return nn.Linear(inputs, outputs, bias=False)


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rope on halves."""
    left, right = x.chunk(2, -1)
    return torch.cat((left * cosine - right * sine, right * cosine + left * sine), -1)


def inverse_frequencies(head_dim: int, theta: float, device: torch.device) -> Tensor:
    """(head_dim / 2,) float32."""
    return theta ** -(torch.arange(0, head_dim, 2, device=device).float() / head_dim)


def in_compute_type(x: Tensor) -> Tensor:
    """bfloat16 under autocast, otherwise as it is."""
    return x.to(torch.get_autocast_dtype(x.device.type)) if torch.is_autocast_enabled(x.device.type) else x
