"""Is an update low-rank? Its spectrum beside that of a random matrix of the same size, and where it lies in the weight."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from engine.linalg import directions_for, energy_effective_rank
from engine.models.peft_files import short_name
from engine.params import Number, frozen

TOP = 16
DRAWS = 4


@dataclass(frozen=True)
class UpdateSpectrum:
    """One weight's update D (d_out, d_in).

    ``effective_rank``: exp of the entropy of sigma^2 / sum; ``directions_90``: the least rank that holds 90 % of |D|_F^2,
    both with what a Gaussian matrix of the same shape gives. ``alignment``: |U_k^T D V_k|_F^2 / |D|_F^2 with U_k, V_k the top
    k = 16 singular directions of W (fewer in a smaller W); chance k^2 / (d_out d_in).
    """

    name: str
    singular_values: np.ndarray
    effective_rank: float
    effective_rank_chance: float
    directions_90: int
    directions_90_chance: float
    alignment: float
    alignment_chance: float


@torch.no_grad()
def update_spectra(pairs: Mapping[str, tuple[torch.Tensor, torch.Tensor]]) -> list[UpdateSpectrum]:
    """Return the spectrum of every update from module name -> (W, D), each (d_out, d_in)."""
    return [spectrum_of(short_name(name), torch.linalg.svdvals(D.double()).cpu().numpy(), D.shape, alignment(W, D)) for name, (W, D) in pairs.items()]


def spectrum_of(name: str, values: np.ndarray, shape: tuple[int, int], aligned: float) -> UpdateSpectrum:
    """Return what sums up the singular values of one update, beside chance."""
    by_chance = gaussian_spectra(*sorted(shape))
    k = min(TOP, *shape)
    return UpdateSpectrum(
        name,
        frozen(values),
        float(energy_effective_rank(values)),
        float(energy_effective_rank(by_chance).mean()),
        int(directions_for(values, 0.9)),
        float(directions_for(by_chance, 0.9).mean()),
        aligned,
        k * k / (shape[0] * shape[1]),
    )


def alignment(W: torch.Tensor, D: torch.Tensor, k: int = TOP) -> float:
    """Return the share of |D|_F^2 that lies between the top k left and right singular directions of W; 0 for D = 0."""
    W, D = (W, D) if W.shape[0] <= W.shape[1] else (W.mT, D.mT)
    W, D, k = W.double(), D.double(), min(k, *W.shape)
    U = torch.linalg.eigh(W @ W.mT).eigenvectors[:, -k:]  # ascending; the Gram matrix is the quick way to the top directions
    V = torch.linalg.qr(W.mT @ U).Q
    total = D.square().sum()
    return float((U.mT @ D @ V).square().sum() / total) if total > 0 else 0.0


@lru_cache(maxsize=16)
def gaussian_spectra(n: int, m: int) -> np.ndarray:
    """Return singular values (4, n) of Gaussian (n, m) matrices, n <= m, scaled to Frobenius norm 1, from a fixed seed."""
    G = torch.from_numpy(np.random.default_rng(0).standard_normal((DRAWS, n, m)))
    values = torch.linalg.eigvalsh(G @ G.mT).clamp_min(0).flip(-1).sqrt().numpy()
    return frozen(values / np.linalg.norm(values, axis=1, keepdims=True))


def directions_of(values: np.ndarray, shape: tuple[int, int], aligned: float) -> list[Number]:
    """Return the numbers to read off one update's spectrum, beside chance; ``aligned``: its alignment."""
    s = spectrum_of("", values, shape, aligned)
    return [
        Number("Rank that holds 90 %", float(s.directions_90), s.directions_90_chance, 0),
        Number("Effective rank of the update", s.effective_rank, s.effective_rank_chance, 1),
        Number(f"In the top {TOP} directions of W", 100 * s.alignment, 100 * s.alignment_chance, 1, " %"),
    ]
