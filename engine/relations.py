"""Does one number of all heads go with another? Spearman's rank correlation, beside what shuffled heads give."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from engine.errors import InputError
from engine.params import frozen
from engine.scalars import BAND

DRAWS = 5000


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's rho of n pairs; ``p``: the share of seeded permutations with at least its size; ``band``: their 5 to 95 %."""

    rho: float
    p: float
    band: tuple[float, float]
    n: int

    def in_words(self, x: str, y: str) -> str:
        """Return what came out, as a sentence."""
        if self.p > 0.05:
            return f"{x[0].upper()}{x[1:]} and {y}: no order beyond chance."
        return f"Heads with a higher {x} have a {'higher' if self.rho > 0 else 'lower'} {y}, more often than chance would have it."


def rank_correlation(x: np.ndarray, y: np.ndarray, draws: int = DRAWS, seed: int = 0) -> RankCorrelation:
    """Return Spearman's rho, the Pearson correlation of ranks (ties share their mean rank), of x and y of one shape.

    p is two-sided, (1 + permutations with |rho| at least as large) / (1 + draws). Raises InputError for fewer than 3
    pairs, values that are not finite, or a column that is the same for all heads.
    """
    x, y = (np.asarray(v, dtype=np.float64).ravel() for v in (x, y))
    if x.shape != y.shape or len(x) < 3 or not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise InputError(f"A rank correlation needs at least 3 pairs of finite numbers; received {len(x)} and {len(y)}.")
    a, b = (_standardised(_ranks(v)) for v in (x, y))
    by_chance = _shuffled(a.tobytes(), b.tobytes(), draws, seed)
    rho = float(a @ b)
    p = (1 + np.count_nonzero(np.abs(by_chance) >= abs(rho) - 1e-12)) / (1 + draws)
    return RankCorrelation(rho, float(p), tuple(float(v) for v in np.percentile(by_chance, BAND)), len(x))


@lru_cache(maxsize=64)  # a page asks again at every move of a slider that changes neither column
def _shuffled(a: bytes, b: bytes, draws: int, seed: int) -> np.ndarray:
    rng, a, b = np.random.default_rng(seed), np.frombuffer(a), np.frombuffer(b)
    return frozen(np.array([a @ rng.permutation(b) for _ in range(draws)]))


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return ranks from 1, with the mean of their ranks for equal values."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def _standardised(ranks: np.ndarray) -> np.ndarray:
    """Return ranks with mean 0 and length 1."""
    centred = ranks - ranks.mean()
    length = np.linalg.norm(centred)
    if length == 0:
        raise InputError("All heads have the same value in a column, so there is no order to compare.")
    return centred / length
