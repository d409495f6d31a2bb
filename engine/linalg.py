"""Spectra of products, the numbers that sum them up, and what chance would give. Everything in float64.

Shape legend: ``singular_values`` is (..., r), in any unit, not necessarily sorted; results drop the last axis.
"""

import numpy as np
import torch

from engine.errors import InputError


def product_singular_values(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    """Return r singular values of A B without forming the product: svd(R_A R_B^T) from two QRs. The exact route.

    A (..., m, r), B (..., r, n) -> (..., r), descending, the last ones 0 where m or n is below r. Householder QR and
    the SVD of a core of at most r x r, so the error is of the order of eps * |A| * |B|, whatever the condition of
    either factor; both are scaled first, so nothing over- or underflows on the way.
    """
    (A, by_A), (B, by_B) = scaled(A), scaled(B)
    R_A = torch.linalg.qr(A, mode="r").R
    R_B = torch.linalg.qr(B.mT, mode="r").R
    values = torch.linalg.svdvals(R_A @ R_B.mT) * by_A[..., None] * by_B[..., None]
    return torch.nn.functional.pad(values, (0, A.shape[-1] - values.shape[-1]))


def truncating_factors(A: torch.Tensor, B: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return L (..., r, q) and M (..., q, r) in float64 with A L[:, :k] M[:k] B = the rank-k truncation of A B for every k.

    A (..., m, r), B (..., r, n), q = min(m, r). With A = Q R and the SVD R R_B^T = u s v^T of the core, the truncation is
    Q u_k u_k^T R B; L = R^+ u and M = u^T R put that between A and B, exactly, also where A has a lower rank than r.
    """
    A, B = scaled(A)[0], scaled(B)[0]
    R = torch.linalg.qr(A, mode="r").R
    u = torch.linalg.svd(R @ torch.linalg.qr(B.mT, mode="r").R.mT).U
    return torch.linalg.pinv(R) @ u, u.mT @ R


def scaled(A: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (A / c, c) in float64: c (...,) a power of two, so the division is exact; entries then are below 2 (c = 1 for zeros)."""
    A = A.double()
    largest = A.abs().amax((-2, -1))
    c = torch.exp2(torch.where(largest > 0, largest, 1.0).log2().floor())
    return A / c[..., None, None], c


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


def numerical_rank(singular_values: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return how many singular values of A B stand above what rounding leaves: sigma_i > r * eps * |A|_F |B|_F.

    ``scale`` (...,) is |A|_F |B|_F, to which float64 computes every singular value; 0 for a zero matrix.
    """
    floor = np.shape(singular_values)[-1] * np.finfo(np.float64).eps * np.asarray(scale)[..., None]
    return (np.asarray(singular_values) > floor).sum(-1)


def condition_number(singular_values: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return sigma_1 / sigma_k with k the numerical rank, so that it is finite for any matrix; 0 for a zero matrix."""
    values = -np.sort(-np.asarray(singular_values, dtype=np.float64), axis=-1)
    rank = numerical_rank(values, scale)
    last = np.take_along_axis(values, np.maximum(rank - 1, 0)[..., None], axis=-1)[..., 0]
    return np.divide(values[..., 0], last, out=np.zeros_like(last), where=rank > 0)


def copying_score(eigenvalues: np.ndarray) -> np.ndarray:
    """Return Re(sum lambda) / sum |lambda| over the last axis, in [-1, 1]; 0 where all vanish.

    1: every direction is written back as it was read; -1: every one is written back negated (Elhage et al. 2021, "copying").
    """
    total, size = np.real(eigenvalues).sum(-1), np.abs(eigenvalues).sum(-1)
    return np.divide(total, size, out=np.zeros_like(size), where=size > 0)


def product_eigenvalues(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    """Return the r eigenvalues of A B that can differ from 0, (..., r) complex: those of the r x r product B A.

    A (..., n, r), B (..., r, n), scaled first, since eigenvalues of the scaled product are the same up to the scale.
    """
    (A, by_A), (B, by_B) = scaled(A), scaled(B)
    return torch.linalg.eigvals(B @ A) * by_A[..., None] * by_B[..., None]


def gaussian_product_spectra(m: int, r: int, n: int, draws: int, seed: int = 0) -> np.ndarray:
    """Return singular values of G H for Gaussian G (m, r), H (r, n), each scaled to Frobenius norm 1: (draws, r).

    Chance for a head whose factors have these shapes; multiply by |A|_F |B|_F for its scale. Only the triangular
    factors are drawn, with chi-distributed diagonals (Bartlett 1933), so the cost does not depend on m and n.
    """
    rng = np.random.default_rng(seed)
    left, right = (gaussian_r_factor(rng, size, r, draws) for size in (m, n))
    return np.linalg.svd(left @ right.transpose(0, 2, 1), compute_uv=False)


def gaussian_product_eigenvalues(n: int, r: int, draws: int, seed: int = 0) -> np.ndarray:
    """Return eigenvalues of G H for Gaussian G (n, r), H (r, n), in no fixed unit: (draws, r), complex.

    They are those of H G. With H = L Q^T (L lower triangular, Q orthonormal columns), H G = L (Q^T G), and Q^T G is an
    r x r Gaussian independent of L: so the cost does not depend on n here either.
    """
    rng = np.random.default_rng(seed)
    L = gaussian_r_factor(rng, n, r, draws).transpose(0, 2, 1)
    return np.linalg.eigvals(L @ rng.standard_normal((draws, r, r)))


def gaussian_r_factor(rng, m: int, r: int, draws: int) -> np.ndarray:
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
