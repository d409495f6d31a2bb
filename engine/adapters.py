"""How an adapter starts and how large its update is made: the definitions of Hugging Face's peft, for many members at once.

W (d_out, d_in); the adapted layer computes (W + s B A) x with A (r, d_in), B (d_out, r).
"""

import math
from collections.abc import Sequence

import torch

from engine.errors import InputError

RULES = {"standard": "alpha / r", "rslora": "alpha / sqrt(r)"}
STARTS = {
    "zero_b": "A uniform, B = 0",
    "gaussian": "A Gaussian, B = 0",
    "pissa": "PiSSA: top directions of W",
    "orthogonal": "orthogonal, B A = 0",
    "zeros": "A = B = 0",
}


def scaling_of(rule: str, alpha: float, rank: int) -> float:
    """Return s: alpha / r (Hu et al. 2021, arXiv 2106.09685) or alpha / sqrt(r) (rsLoRA, Kalajdzievski 2023, arXiv 2312.03732)."""
    if rule not in RULES:
        raise InputError(f"The alpha rule is {rule[:40]!r}; accepted are {', '.join(RULES)}.")
    return alpha / (rank if rule == "standard" else math.sqrt(rank))


def generator(seeds: Sequence[int]) -> torch.Generator:
    """Return a generator on the CPU for a tuple of whole numbers, so that every device starts from the same numbers."""
    mixed = 0
    for seed in seeds:
        mixed = (mixed * 1_000_003 + int(seed) + 1) % (2**63 - 1)
    return torch.Generator().manual_seed(mixed)


def draw_A(start: str, rank: int, d_in: int, seeds: Sequence[int]) -> torch.Tensor:
    """Return A (r, d_in) in float32 for a start at which B = 0.

    ``zero_b``: uniform on [-1/sqrt(d_in), 1/sqrt(d_in)], what nn.Linear does (kaiming_uniform with a = sqrt(5)), peft's default;
    ``gaussian``: standard deviation 1/r; ``zeros``: 0.
    """
    source = generator(seeds)
    if start == "zero_b":
        return (2 * torch.rand(rank, d_in, generator=source) - 1) / math.sqrt(d_in)
    if start == "gaussian":
        return torch.randn(rank, d_in, generator=source) / rank
    return torch.zeros(rank, d_in)


def start_factors(start: str, W: torch.Tensor, rank: int, scaling: float, seeds: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return A (r, d_in) and B (d_out, r) before training.

    ``pissa``: with W = U S V^T, A = sqrt(S_r / s) V_r^T and B = U_r sqrt(S_r / s), and the frozen weight becomes W - s B A
    (Meng et al. 2024, arXiv 2404.02948; the division by s as in peft). ``orthogonal``: rows of a random orthogonal r x r
    matrix, odd ones in A and even ones in B, between Gaussian factors over 10, so that B A = 0 with neither zero (even r).
    The others have B = 0. Raises InputError for an unknown start, or orthogonal with an odd rank.
    """
    d_out, d_in = W.shape
    if start == "pissa":
        U, S, Vh = torch.linalg.svd(W.double(), full_matrices=False)
        root = (S[:rank] / scaling).sqrt()
        return (root[:, None] * Vh[:rank]).float(), (U[:, :rank] * root).float()
    if start == "orthogonal":
        if rank % 2:
            raise InputError(f"An orthogonal start needs an even rank; received {rank}.")
        source = generator(seeds)
        Q = torch.linalg.qr(torch.randn(rank, rank, generator=source)).Q
        A = (torch.randn(d_in, rank // 2, generator=source) @ Q[0::2]).T / 10
        return A.contiguous(), torch.randn(rank // 2, d_out, generator=source).T @ Q[1::2] / 10
    if start not in STARTS:
        raise InputError(f"The start is {start[:40]!r}; accepted are {', '.join(STARTS)}.")
    return draw_A(start, rank, d_in, seeds), torch.zeros(d_out, rank)
