"""Every number that sums up a spectrum, under one name each; and what Gaussian factors of the same shape would give."""

from dataclasses import dataclass, fields

import numpy as np

from engine.errors import InputError
from engine.linalg import (
    condition_number,
    cumulative_energy,
    directions_for,
    effective_rank,
    energy_effective_rank,
    gaussian_product_spectra,
    numerical_rank,
    participation_ratio,
    stable_rank,
)
from engine.params import frozen

BAND = (5, 95)


@dataclass(frozen=True)
class Scalars:
    """What sums up singular values, one array (or number) each, without the spectrum's axis; all are 0 for a zero matrix.

    ``effective_rank``: exp of the entropy of sigma^2 / sum (the source's); ``roy_vetterli_rank``: of sigma / sum;
    ``stable_rank``, ``participation_ratio``, ``numerical_rank``; ``condition_number``: sigma_1 over the last singular
    value within the numerical rank; ``directions_90``, ``directions_99``: directions that hold that share of the energy;
    ``top_share``: the first direction's share of it.
    """

    effective_rank: np.ndarray | float
    roy_vetterli_rank: np.ndarray | float
    stable_rank: np.ndarray | float
    participation_ratio: np.ndarray | float
    numerical_rank: np.ndarray | float
    condition_number: np.ndarray | float
    directions_90: np.ndarray | float
    directions_99: np.ndarray | float
    top_share: np.ndarray | float


FUNCTIONS = {
    "effective_rank": lambda values, scale: energy_effective_rank(values),
    "roy_vetterli_rank": lambda values, scale: effective_rank(values),
    "stable_rank": lambda values, scale: stable_rank(values),
    "participation_ratio": lambda values, scale: participation_ratio(values),
    "numerical_rank": numerical_rank,
    "condition_number": condition_number,
    "directions_90": lambda values, scale: directions_for(values, 0.90),
    "directions_99": lambda values, scale: directions_for(values, 0.99),
    "top_share": lambda values, scale: cumulative_energy(values)[..., 0],
}
"""Name -> function of singular values (..., r) and of their scale (...,), the product of the factors' Frobenius norms."""


@dataclass(frozen=True)
class ScalarBands:
    """Each number's mean over draws, and its 5 % to 95 % band."""

    mean: Scalars
    low: Scalars
    high: Scalars


def scalars_of(singular_values: np.ndarray, scale: np.ndarray) -> Scalars:
    """Return every number of spectra (..., r) of products whose factors' norms multiply to ``scale`` (...,)."""
    return Scalars(**{name: frozen(function(singular_values, scale)) for name, function in FUNCTIONS.items()})


def bands_of(scalars: Scalars) -> ScalarBands:
    """Return mean and band of each number over its draws, (draws,)."""
    columns = {f.name: getattr(scalars, f.name) for f in fields(Scalars)}
    low, high = (Scalars(**{name: float(np.percentile(v, q)) for name, v in columns.items()}) for q in BAND)
    return ScalarBands(Scalars(**{name: float(np.mean(v)) for name, v in columns.items()}), low, high)


def chance_spectra(d_model: int, d_head: int, draws: int) -> np.ndarray:
    """Return singular values (draws, d_head) of products of Gaussian factors of a head's shape, each of Frobenius norm 1."""
    if d_head > d_model:
        raise InputError(f"d_head {d_head} is above d_model {d_model}; chance is defined for heads that are narrower than the residual stream.")
    return gaussian_product_spectra(d_model, d_head, d_model, draws)
