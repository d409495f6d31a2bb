"""NF4, the 4-bit numbers of QLoRA (Dettmers et al. 2023, arXiv 2305.14314): 16 levels in blocks of 64 that share one scale."""

import torch

BLOCK = 64
OFFSET = 0.9677083
"""Where the outermost quantile lies, as in bitsandbytes: mean of 1 - 1/32 and 1 - 1/30."""


def levels() -> torch.Tensor:
    """Return the 16 levels in [-1, 1], ascending: quantiles of a normal distribution, 7 below zero, zero, and 8 above."""
    above = torch.special.ndtri(torch.linspace(OFFSET, 0.5, 9, dtype=torch.float64)[:-1])
    below = -torch.special.ndtri(torch.linspace(OFFSET, 0.5, 8, dtype=torch.float64)[:-1])
    return torch.cat([below, torch.zeros(1, dtype=torch.float64), above]).sort().values / above.max()


def nf4(W: torch.Tensor) -> torch.Tensor:
    """Return W (d_out, d_in) as NF4 keeps it: each block of 64 consecutive entries over its largest, rounded to the nearest level."""
    flat = torch.nn.functional.pad(W.double().flatten(), (0, -W.numel() % BLOCK)).view(-1, BLOCK)
    scale = flat.abs().amax(1, keepdim=True)
    code = levels()
    middles = (code[1:] + code[:-1]) / 2
    index = torch.bucketize(flat / torch.where(scale > 0, scale, 1.0), middles)
    return (code[index] * scale).flatten()[: W.numel()].view_as(W).to(W.dtype)
