"""A linear teacher y = (W + M) x whose update M has a spectrum that you shape, and what a student of rank r can reach at best.

Inputs x have covariance Sigma, so the expected loss of a student W + D is |(M - D) Sigma^(1/2)|_F^2 / d_out. By Eckart and
Young (1936) its minimum over rank-r D is the tail of the singular values of M Sigma^(1/2), and not of M.
"""

from dataclasses import dataclass, replace

import numpy as np

from engine.lora_params import LoraParams
from engine.params import frozen

WEAK = 0.2
DRAWS = 4


@dataclass(frozen=True)
class Teacher:
    """W and M (d_out, d_in), and the square roots of the inputs' variances (d_in,); scaled so that the loss before training is 1."""

    W: np.ndarray
    M: np.ndarray
    deviation: np.ndarray

    def loss(self, D: np.ndarray) -> np.ndarray:
        """Return |(M - D) Sigma^(1/2)|_F^2 / d_out for D (..., d_out, d_in)."""
        return np.square((self.M - D) * self.deviation).sum((-2, -1)) / len(self.M)

    @property
    def seen(self) -> np.ndarray:
        """M Sigma^(1/2): what of M the inputs show."""
        return self.M * self.deviation


def teacher_of(params: LoraParams) -> Teacher:
    """Return the teacher: M = U diag(s) V^T with random orthonormal U, V; W Gaussian with entries of variance 1 / d_in."""
    rng = np.random.default_rng(params.seed)
    n, d_out, d_in = min(params.d_in, params.d_out), params.d_out, params.d_in
    U, V = (np.linalg.qr(rng.standard_normal((d, n)))[0] for d in (d_out, d_in))
    W = rng.standard_normal((d_out, d_in)) / np.sqrt(d_in)
    variance = np.ones(d_in) if params.inputs == "white" else 1.0 / np.arange(1, d_in + 1)
    deviation = np.sqrt(variance / variance.mean())
    M = (U * shape_of(params, n)) @ V.T
    M *= np.sqrt(d_out) / np.linalg.norm(M * deviation)
    return Teacher(*map(frozen, (W, M, deviation)))


def shape_of(params: LoraParams, n: int) -> np.ndarray:
    """Return the singular values of M up to a factor, (n,)."""
    i = np.arange(n)
    if params.task == "falling":
        return np.exp(-i / params.teacher_rank)
    return np.where(i < params.teacher_rank, 1.0, WEAK if params.task == "tail" else 0.0)


def floors(teacher: Teacher, ranks: tuple[int, ...]) -> np.ndarray:
    """Return the least expected loss of any update of each rank: sum_{i > r} sigma_i(M Sigma^(1/2))^2 / d_out."""
    values = np.linalg.svd(teacher.seen, compute_uv=False)
    left = np.concatenate([np.cumsum(np.square(values)[::-1])[::-1], [0.0]]) / len(teacher.M)
    return left[list(ranks)]


def pissa_floors(teacher: Teacher, ranks: tuple[int, ...]) -> np.ndarray:
    """Return the least expected loss of each rank from a PiSSA start, which froze W without W_r, its top r directions.

    The adapter has to hold M + W_r, so its floor is the tail of (M + W_r) Sigma^(1/2): above that of M, as far as M lies elsewhere.
    """
    U, s, Vh = np.linalg.svd(teacher.W, full_matrices=False)
    return np.array([floors(replace(teacher, M=teacher.M + (U[:, :r] * s[:r]) @ Vh[:r]), (r,))[0] for r in ranks])


def cut_of_M(teacher: Teacher, ranks: tuple[int, ...]) -> np.ndarray:
    """Return the expected loss of M's own truncation to each rank: the floor only where all inputs are alike."""
    U, s, Vh = np.linalg.svd(teacher.M, full_matrices=False)
    return np.array([teacher.loss((U[:, :r] * s[:r]) @ Vh[:r]) for r in ranks])


def by_chance(teacher: Teacher, ranks: tuple[int, ...], seed: int) -> np.ndarray:
    """Return the least expected loss with A random and only B free, mean of four draws of Gaussian A: r blind directions."""
    found = []
    for rank in ranks:
        rng = np.random.default_rng((seed, 1, rank))
        Q = np.linalg.qr((rng.standard_normal((DRAWS, rank, len(teacher.deviation))) * teacher.deviation).transpose(0, 2, 1))[0]
        kept = np.square(teacher.seen @ Q).sum((-2, -1)).mean()
        found.append((np.square(teacher.seen).sum() - kept) / len(teacher.M))
    return np.maximum(found, 0.0)
