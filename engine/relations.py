"""Does a head's spectrum say what it does? Rank correlations between any two numbers that all heads have.

The source notes (seed 004) say that a sharp spectrum, a small effective rank of W_OV, marks a copying head. That is tested
here against three measures of copying: prefix matching, the eigenvalues of W_OV, and the accuracy lost without the head.
"""

from dataclasses import dataclass, fields

import numpy as np

from engine.ablation import SweepResult, sweep
from engine.behaviour import SCORES, BehaviourResult, behaviour_scores
from engine.circuits import CIRCUITS
from engine.errors import InputError
from engine.params import Number, frozen, restrict, uses
from engine.progress import OnStep, silent
from engine.scalars import BAND, Scalars
from engine.spectra import CopyingResult, SpectraParams, SpectraResult, copying_scores, head_spectra

DRAWS = 5000
COPYING = {"prefix_matching": "prefix matching", "copying_score": "copying score", "copying_lost": "copying lost without it"}


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's rho of n pairs; ``p``: the share of seeded permutations with at least its size; ``band``: their 5 to 95 %."""

    rho: float
    p: float
    band: tuple[float, float]
    n: int


@dataclass(frozen=True)
class ColumnsResult:
    """Every number of every head: ``values`` (names, n_layers, n_heads), in the order of ``names``."""

    names: tuple[str, ...]
    values: np.ndarray

    def of(self, name: str) -> np.ndarray:
        """Return one number of all heads, (n_layers, n_heads); raise InputError for an unknown name."""
        if name not in self.names:
            raise InputError(f"The column is {name[:40]!r}; accepted are {', '.join(self.names)}.")
        return self.values[self.names.index(name)]


@dataclass(frozen=True)
class SharpnessResult:
    """Effective rank of W_OV against each measure of copying; the source's claim needs negative correlations."""

    correlations: dict[str, RankCorrelation]

    def numbers(self) -> tuple[Number, ...]:
        """Return the correlations, beside 0 for unrelated numbers."""
        return tuple(Number(f"Effective rank and {COPYING[name]}", found.rho, 0.0, 2) for name, found in self.correlations.items())


def rank_correlation(x: np.ndarray, y: np.ndarray, draws: int = DRAWS, seed: int = 0) -> RankCorrelation:
    """Return Spearman's rho, the Pearson correlation of ranks (ties share their mean rank), of x and y of one shape.

    p is two-sided, (1 + permutations with |rho| at least as large) / (1 + draws). Raises InputError for fewer than 3
    pairs, values that are not finite, or a column that is the same for all heads.
    """
    x, y = (np.asarray(v, dtype=np.float64).ravel() for v in (x, y))
    if x.shape != y.shape or len(x) < 3 or not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise InputError(f"A rank correlation needs at least 3 pairs of finite numbers; received {len(x)} and {len(y)}.")
    a, b = (_standardised(_ranks(v)) for v in (x, y))
    rng = np.random.default_rng(seed)
    by_chance = np.array([a @ rng.permutation(b) for _ in range(draws)])
    rho = float(a @ b)
    p = (1 + np.count_nonzero(np.abs(by_chance) >= abs(rho) - 1e-12)) / (1 + draws)
    return RankCorrelation(rho, float(p), tuple(float(v) for v in np.percentile(by_chance, BAND)), len(x))


def columns_of(spectra: SpectraResult, behaviour: BehaviourResult, copying: CopyingResult, swept: SweepResult) -> ColumnsResult:
    """Return every number of every head from results at hand: scores, effects of removal, and both spectra's scalars (``ov_``, ``qk_``)."""
    found = {name: getattr(behaviour, name) for name in SCORES}
    found |= {"copying_score": copying.copying_score, "loss_change": swept.loss_change, "copying_lost": swept.copying_before - swept.copying}
    found |= {f"{circuit}_{f.name}": getattr(getattr(spectra, circuit), f.name) for circuit in CIRCUITS for f in fields(Scalars)}
    return ColumnsResult(tuple(found), frozen(np.stack([np.asarray(v, dtype=np.float64) for v in found.values()])))


@uses("model", "delta", "fold", "removal", "keep")
def head_columns(params: SpectraParams, on_step: OnStep = silent) -> ColumnsResult:
    """Return every number of every head, all computed: for a notebook; a page passes the results that it has to ``columns_of``."""
    return columns_of(*(f(restrict(f, params), on_step) for f in (head_spectra, behaviour_scores, copying_scores, sweep)))


def sharpness(columns: ColumnsResult) -> SharpnessResult:
    """Return the test of the source's claim that copying heads have sharp spectra, over all heads of a model."""
    return SharpnessResult({name: rank_correlation(columns.of("ov_effective_rank"), columns.of(name)) for name in COPYING})


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
