"""GLC: a multiscale video transformer that compares its tokens with one token of the whole clip.

A clip becomes patches of space and time (`PatchEmbedding`), and all patches together one global
token (`GlobalEmbedding`). The blocks of the encoder halve the grid of patches where they double
the width; the block `GlobalLocalBlock` then lets each token see itself and the global token only.
The decoder doubles the grid again, adds the encoder's tokens of the same size, and ends in one map
of logits for each frame.

Source: Lai et al. 2024, "In the Eye of Transformer: Global-Local Correlation for Egocentric Gaze
Estimation and Beyond"; parameters have the names of its published networks.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

Grid = tuple[int, int, int]
"""Numbers of tokens over time, height and width."""


@dataclass(frozen=True)
class GlcLayout:
    """The sizes of a GLC network."""

    frames: int
    size_px: int
    every: int
    """Of a clip: number of frames, their width and height, and how many frames of the video one of
    them stands for."""
    width: int
    """Width of tokens in the first block; it doubles at each stage, and so do the heads from 1."""
    depth: int
    """Number of blocks in the encoder."""
    stages: tuple[int, ...]
    """Blocks (from 0) that halve the grid."""
    decoder_heads: tuple[int, ...]
    """Attention heads of each block of the decoder: one more than there are stages."""
    key_stride: int
    """By how much the first block thins out keys and values in height and width."""
    drop_path: float = 0.0
    """Probability with which the last block is skipped in training; it rises linearly from 0."""
    fusion_drop_path: float = 0.0
    """The same of the global-local block."""
    groups: int = 0
    """Groups of GroupNorm in the global embedding; 0: BatchNorm, as published."""

    @property
    def grid(self) -> Grid:
        """Return the grid of the patches."""
        return (self.frames // 2, self.size_px // 4, self.size_px // 4)


GLC_LAYOUTS = {
    "glc-paper": GlcLayout(8, 256, 8, 96, 16, (1, 3, 14), (8, 4, 4, 2), 8, 0.2, 0.4),
    "glc-8": GlcLayout(8, 256, 8, 96, 8, (1, 3, 6), (8, 4, 4, 2), 8, 0.2, 0.4),
    "glc-small": GlcLayout(8, 64, 4, 32, 8, (1, 4), (4, 2, 1), 4, groups=8),
    "glc-tiny": GlcLayout(4, 48, 8, 16, 2, (1,), (2, 1), 4, groups=4),
}
_PATCH_KERNEL, _PATCH_STRIDE = (3, 7, 7), (2, 4, 4)
_BLOCK_EPSILON = 1e-6


class Glc(nn.Module):
    """Clips in, one saliency map a frame out.

    `GlcLayout` determines the number of parameters: 70,181,857 for ``glc-paper``.
    """

    def __init__(self, layout: GlcLayout) -> None:
        super().__init__()
        self.layout = layout
        time, height, width = layout.grid
        dim, heads, keys = layout.width, 1, layout.key_stride
        self.patch_embed = PatchEmbedding(dim)
        self.global_embed = GlobalEmbedding(dim, layout.grid, layout.groups)
        self.pos_embed_spatial = nn.Parameter(torch.zeros(1, height * width, dim))
        self.pos_embed_temporal = nn.Parameter(torch.zeros(1, time, dim))
        self.blocks = nn.ModuleList()
        for number in range(layout.depth):
            halves = number in layout.stages
            if halves:
                heads, keys = heads * 2, max(1, keys // 2)
            # A block is as wide as its input: the one before a stage doubles the width.
            output = dim * 2 if number + 1 in layout.stages else dim
            drop = layout.drop_path * number / max(1, layout.depth - 1)
            self.blocks.append(
                _EncoderBlock(dim, output, heads=heads, halves=halves, keys=keys, drop_path=drop)
            )
            dim = output
        self.global_fuse = GlobalLocalBlock(dim, heads, layout.fusion_drop_path)
        self.norm = nn.LayerNorm(2 * dim, eps=_BLOCK_EPSILON)
        inputs = 2 * dim
        for number, heads_up in enumerate(layout.decoder_heads):
            last = number == len(layout.decoder_heads) - 1
            output = dim >> number
            stride = (2, 1, 1) if last else (1, 2, 2)
            thinned = 2 << number
            block = _DecoderBlock(inputs, output, heads_up, stride, (1, thinned, thinned))
            setattr(self, f"decode_block{number + 1}", block)
            inputs = output
        self.classifier = nn.Conv3d(layout.width, 1, 1)
        # The last layer alone has too few numbers to be a person's own.
        self.personal_head = (f"decode_block{len(layout.decoder_heads)}", "classifier")
        nn.init.trunc_normal_(self.pos_embed_spatial, std=0.02)
        nn.init.trunc_normal_(self.pos_embed_temporal, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        """Return logits of where the gaze is, for each frame.

        `clips` (float32, shape (n, 3, frames, size, size)).

        Returns float32, shape (n, 1, frames, size / 4, size / 4).
        """
        patches = self.patch_embed(clips)
        grid: Grid = self.layout.grid
        token = self.global_embed(patches)
        time, height, width = grid
        position = self.pos_embed_spatial.repeat(1, time, 1) + torch.repeat_interleave(
            self.pos_embed_temporal, height * width, dim=1
        )
        x = torch.cat([token, patches.flatten(2).transpose(1, 2) + position], dim=1)
        # The decoder adds the first tokens, and those before the grid is halved.
        skipped = [(x, grid)]
        for number, block in enumerate(self.blocks):
            x, grid = block(x, grid)
            if number + 1 in self.layout.stages:
                skipped.append((x, grid))
        x = self.norm(torch.cat([x, self.global_fuse(x, grid)], dim=2))
        for number in range(len(self.layout.decoder_heads)):
            x, grid = getattr(self, f"decode_block{number + 1}")(x, grid)
            if number + 1 < len(self.layout.decoder_heads):
                x = x + skipped[-1 - number][0]
        first, first_grid = skipped[0]
        maps = _to_grid(x[:, 1:], grid) + functional.interpolate(
            _to_grid(first[:, 1:], first_grid), size=grid, mode="trilinear"
        )
        logits: torch.Tensor = self.classifier(maps)
        return logits


class PatchEmbedding(nn.Module):
    """Overlapping patches of 3 frames and 7 x 7 pixels, as tokens of `width` numbers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv3d(3, width, _PATCH_KERNEL, _PATCH_STRIDE, padding=(1, 3, 3))

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        """Return patches, shape (n, width, time, height, width)."""
        patches: torch.Tensor = self.proj(clips)
        return patches


class GlobalEmbedding(nn.Module):
    """All patches as one token: three convolutions that halve the grid, and a linear layer."""

    def __init__(self, width: int, grid: Grid, groups: int) -> None:
        super().__init__()
        time, height, columns = grid
        for number in range(3):
            norm = nn.GroupNorm(groups, width) if groups else nn.BatchNorm3d(width)
            setattr(self, f"bn_{number}", norm)
            convolution = nn.Conv3d(width, width, 3, (1, 2, 2), padding=1)
            setattr(self, f"proj_{number + 1}", convolution)
        self.linear = nn.Linear(width * time * -(-height // 8) * -(-columns // 8), width)

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        """Return the token, shape (n, 1, width)."""
        x = patches
        for number in range(3):
            x = functional.relu(getattr(self, f"bn_{number}")(x))
            x = getattr(self, f"proj_{number + 1}")(x)
        token: torch.Tensor = self.linear(x.flatten(1))
        return token.unsqueeze(1)


class _Mlp(nn.Module):
    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(inputs, hidden)
        self.fc2 = nn.Linear(hidden, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.fc2(functional.gelu(self.fc1(x)))
        return y


class _DropPath(nn.Module):
    """Leave out a branch for some samples of a batch in training.

    Source: Huang et al. 2016, "Deep Networks with Stochastic Depth".
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training or self.probability == 0:
            return x
        kept = 1 - self.probability
        drawn = torch.rand((len(x), 1, 1), device=x.device, dtype=x.dtype)
        return x * (drawn < kept) / kept


class _PooledAttention(nn.Module):
    """Attention on queries, keys and values that are first convolved over the grid.

    The global token, which stands first, has no place in the grid and passes by.
    """

    def __init__(
        self, dim: int, heads: int, queries: nn.Module | None, keys: Grid, up: bool = False
    ) -> None:
        super().__init__()
        self.heads, self.up = heads, up
        head_dim = dim // heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        if queries is not None:
            setattr(self, "upsample_q" if up else "pool_q", queries)
            self.norm_q = nn.LayerNorm(head_dim)
        self.pool_k = _depthwise(head_dim, keys)
        self.norm_k = nn.LayerNorm(head_dim)
        self.pool_v = _depthwise(head_dim, keys)
        self.norm_v = nn.LayerNorm(head_dim)

    def project(
        self, x: torch.Tensor, grid: Grid
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Grid]:
        """Return queries, keys and values, shape (n, heads, tokens, dim / heads); queries' grid."""
        n, tokens, dim = x.shape
        parts = self.qkv(x).reshape(n, tokens, 3, self.heads, dim // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        k, _ = _pool(k, grid, self.pool_k)
        v, _ = _pool(v, grid, self.pool_v)
        pool = getattr(self, "upsample_q" if self.up else "pool_q", None)
        if pool is not None:
            q, grid = _pool(q, grid, pool)
            q = self.norm_q(q)
        return q, self.norm_k(k), self.norm_v(v), grid

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(q, k, v)

    def forward(self, x: torch.Tensor, grid: Grid) -> tuple[torch.Tensor, Grid]:
        q, k, v, grid = self.project(x, grid)
        attended = self.attend(q, k, v)
        joined = attended.transpose(1, 2).reshape(len(x), q.shape[2], -1)
        return self.proj(joined), grid


class _GlobalLocalAttention(_PooledAttention):
    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return global_local_attention(q, k, v)


def global_local_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return attention of each token to itself and to the global token, which stands first.

    The paper subtracts 1e8 from all other entries of a dense matrix before the softmax, which
    leaves these two; computed alone they need no matrix, and stay finite in half precision.

    `q`, `k`, `v` (float, shape (n, heads, tokens, numbers)).

    Returns float, shape (n, heads, tokens, numbers).
    """
    scale = q.shape[-1] ** -0.5
    to_self = (q * k).sum(-1) * scale
    to_global = (q * k[:, :, :1]).sum(-1) * scale
    share = torch.sigmoid(to_self - to_global).unsqueeze(-1)
    # The global token sees itself only: both terms are its own.
    return share * v + (1 - share) * v[:, :, :1]


class _Block(nn.Module):
    """A block with an MLP that may change the width of tokens, and then of the residual."""

    norm2: nn.LayerNorm
    mlp: _Mlp
    drop_path: _DropPath
    proj: nn.Linear | None

    def finish(self, x: torch.Tensor) -> torch.Tensor:
        """Return the tokens after the MLP."""
        normed = self.norm2(x)
        output: torch.Tensor = self.drop_path(self.mlp(normed))
        return output + (x if self.proj is None else self.proj(normed))


class _EncoderBlock(_Block):
    def __init__(
        self, dim: int, output: int, *, heads: int, halves: bool, keys: int, drop_path: float
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=_BLOCK_EPSILON)
        queries = _depthwise(dim // heads, (1, 2, 2)) if halves else None
        self.attn = _PooledAttention(dim, heads, queries, (1, keys, keys))
        self.drop_path = _DropPath(drop_path)
        self.norm2 = nn.LayerNorm(dim, eps=_BLOCK_EPSILON)
        self.mlp = _Mlp(dim, 4 * dim, output)
        self.proj = nn.Linear(dim, output) if output != dim else None
        self.pool_skip = nn.MaxPool3d((1, 3, 3), (1, 2, 2), (0, 1, 1)) if halves else None

    def forward(self, x: torch.Tensor, grid: Grid) -> tuple[torch.Tensor, Grid]:
        attended, pooled = self.attn(self.norm1(x), grid)
        if self.pool_skip is not None:
            x, _ = _pool(x.unsqueeze(1), grid, self.pool_skip)
            x = x.squeeze(1)
        return self.finish(x + self.drop_path(attended)), pooled


class GlobalLocalBlock(_Block):
    """The global-local correlation: each token against the global one, then an MLP."""

    def __init__(self, dim: int, heads: int, drop_path: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=_BLOCK_EPSILON)
        head_dim = _depthwise(dim // heads, (1, 1, 1))
        self.attn = _GlobalLocalAttention(dim, heads, head_dim, (1, 1, 1))
        self.drop_path = _DropPath(drop_path)
        self.norm2 = nn.LayerNorm(dim, eps=_BLOCK_EPSILON)
        self.mlp = _Mlp(dim, 4 * dim, dim)
        self.proj = None

    def forward(self, x: torch.Tensor, grid: Grid) -> torch.Tensor:
        """Return tokens of the same shape as `x`, (n, tokens, dim)."""
        attended, _ = self.attn(self.norm1(x), grid)
        return self.finish(x + self.drop_path(attended))


class _DecoderBlock(_Block):
    def __init__(self, dim: int, output: int, heads: int, stride: Grid, keys: Grid) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=_BLOCK_EPSILON)
        head_dim = dim // heads
        time, height, width = stride
        padding = (time - 1, height - 1, width - 1)
        queries = nn.ConvTranspose3d(
            head_dim, head_dim, 3, stride, 1, padding, groups=head_dim, bias=False
        )
        self.attn = _PooledAttention(dim, heads, queries, keys, up=True)
        self.drop_path = _DropPath(0.0)
        self.norm2 = nn.LayerNorm(dim, eps=_BLOCK_EPSILON)
        self.mlp = _Mlp(dim, 4 * output, output)
        self.proj = nn.Linear(dim, output) if output != dim else None
        self.upsample_skip = nn.Upsample(scale_factor=stride, mode="trilinear")

    def forward(self, x: torch.Tensor, grid: Grid) -> tuple[torch.Tensor, Grid]:
        attended, larger = self.attn(self.norm1(x), grid)
        x, _ = _pool(x.unsqueeze(1), grid, self.upsample_skip)
        return self.finish(x.squeeze(1) + attended), larger


def _depthwise(dim: int, stride: Grid) -> nn.Conv3d:
    return nn.Conv3d(dim, dim, 3, stride, padding=1, groups=dim, bias=False)


def _pool(x: torch.Tensor, grid: Grid, pool: nn.Module) -> tuple[torch.Tensor, Grid]:
    """Apply a convolution or pooling to tokens of shape (n, heads, 1 + tokens, numbers)."""
    first, tokens = x[:, :, :1], x[:, :, 1:]
    n, heads = x.shape[:2]
    pooled = pool(_to_grid(tokens.flatten(0, 1), grid))
    time, height, width = pooled.shape[2:]
    tokens = pooled.flatten(2).transpose(1, 2)
    tokens = tokens.reshape(n, heads, *tokens.shape[1:])
    return torch.cat([first, tokens], dim=2), (time, height, width)


def _to_grid(tokens: torch.Tensor, grid: Grid) -> torch.Tensor:
    """Return tokens (n, count, numbers) as (n, numbers, time, height, width)."""
    n, _, numbers = tokens.shape
    return tokens.transpose(1, 2).reshape(n, numbers, *grid)
