"""Spectra of products, the numbers that sum them up, and what chance would give. Everything in float64.

Shape legend: ``singular_values`` is (..., r), in any unit, not necessarily sorted; results drop the last axis.
"""

import numpy as np
import torch

from engine.errors import InputError


def product_singular_values(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    """Return the r largest singular values of A B without forming the product: svd(R_A R_B^T) from two QRs.

    A (..., m, r), B (..., r, n), r <= m, n -> (..., r), descending. Householder QR and the SVD of an r x r core, so
    the error is of the order of eps * |A| * |B|, whatever the condition of either factor.
    """
    R_A = torch.linalg.qr(A.double(), mode="r").R
    R_B = torch.linalg.qr(B.double().mT, mode="r").R
    return torch.linalg.svdvals(R_A @ R_B.mT)


def energy(singular_values: np.ndarray) -> np.ndarray:
    """Return the share of each direction, sigma_i^2 / sum sigma^2, (..., r); all zeros for a zero matrix."""
    squares = np.square(np.asarray(singular_values, dtype=np.float64) / _scale(singular_values))
    total = squares.sum(-1, keepdims=True)
    return np.divide(squares, total, out=np.zeros_like(squares), where=total > 0)


def cumulative_energy(singular_values: np.ndarray) -> np.ndarray:
    """Return E_k = sum_{i<=k} sigma_i^2 / sum sigma^2 for k = 1..r, (..., r), largest values first."""
    return np.cumsum(-np.sort(-energy(singular_values), axis=-1), axis=-1)


def directions_for(singular_values: np.ndarray, share: float) -> np.ndarray:
    """Return the least k with E_k >= share (0 for a zero matrix)."""
    if not 0 < share <= 1:
        raise InputError(f"The share of energy is {share}; it must be above 0 and at most 1.")
    reached = cumulative_energy(singular_values) >= share * (1 - 1e-12)
    return np.where(reached.any(-1), reached.argmax(-1) + 1, 0)


def energy_effective_rank(singular_values: np.ndarray) -> np.ndarray:
    """Return exp(H(p)) with p_i = sigma_i^2 / sum sigma^2; 0 for a zero matrix.

    The definition of the source notes (seed 004): the Renyi dimension of order 1 of the energy.
    """
    return _exp_entropy(energy(singular_values))


def effective_rank(singular_values: np.ndarray) -> np.ndarray:
    """Return exp(H(p)) with p_i = sigma_i / sum sigma (Roy & Vetterli, EUSIPCO 2007); 0 for a zero matrix."""
    return _exp_entropy(energy(np.sqrt(np.asarray(singular_values, dtype=np.float64) / _scale(singular_values))))


def stable_rank(singular_values: np.ndarray) -> np.ndarray:
    """Return |A|_F^2 / |A|_2^2 (Rudelson & Vershynin 2007); 0 for a zero matrix."""
    largest = energy(singular_values).max(-1)
    return np.divide(1.0, largest, out=np.zeros_like(largest), where=largest > 0)


def participation_ratio(singular_values: np.ndarray) -> np.ndarray:
    """Return (sum x)^2 / sum x^2 with x = sigma^2; 0 for a zero matrix. The Renyi dimension of order 2."""
    second = np.square(energy(singular_values)).sum(-1)
    return np.divide(1.0, second, out=np.zeros_like(second), where=second > 0)


def gaussian_product_spectra(m: int, r: int, n: int, draws: int, seed: int = 0) -> np.ndarray:
    """Return singular values of G H for Gaussian G (m, r), H (r, n), each scaled to Frobenius norm 1: (draws, r).

    Chance for a head whose factors have these shapes; multiply by |A|_F |B|_F for its scale. Only the triangular
    factors are drawn, with chi-distributed diagonals (Bartlett 1933), so the cost does not depend on m and n.
    """
    rng = np.random.default_rng(seed)
    left, right = (_gaussian_r_factor(rng, size, r, draws) for size in (m, n))
    return np.linalg.svd(left @ right.transpose(0, 2, 1), compute_uv=False)


def _gaussian_r_factor(rng, m: int, r: int, draws: int) -> np.ndarray:
    """Return (draws, r, r): the R of the QR of a Gaussian (m, r), divided by the Frobenius norm."""
    if m < r:
        raise InputError(f"A factor of shape {m} x {r} is wider than tall; chance is defined for m >= r.")
    R = np.triu(rng.standard_normal((draws, r, r)), 1)
    R[:, np.arange(r), np.arange(r)] = np.sqrt(rng.chisquare(m - np.arange(r), size=(draws, r)))
    return R / np.linalg.norm(R, axis=(1, 2), keepdims=True)


def _scale(singular_values: np.ndarray) -> np.ndarray:
    """Return the largest value along the last axis, or 1 where that is 0, to keep squares from under- and overflow."""
    largest = np.max(np.abs(singular_values), axis=-1, keepdims=True)
    return np.where(largest > 0, largest, 1.0)


def _exp_entropy(p: np.ndarray) -> np.ndarray:
    entropy = -np.sum(p * np.log(np.where(p > 0, p, 1.0)), axis=-1)
    return np.where(p.sum(-1) > 0, np.exp(entropy), 0.0)
