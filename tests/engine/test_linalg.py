"""Spectral numbers against numpy, golden values and their own inequalities."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from engine import linalg
from engine.errors import InputError

GOLDEN = np.array([4.0, 2.0, 1.0, 1.0])


def test_golden_numbers():
    assert linalg.stable_rank(GOLDEN) == pytest.approx(1.375)
    assert linalg.participation_ratio(GOLDEN) == pytest.approx(1.76642, abs=1e-5)
    assert linalg.energy_effective_rank(GOLDEN) == pytest.approx(2.27632, abs=1e-5)
    assert linalg.effective_rank(GOLDEN) == pytest.approx(3.36359, abs=1e-5)
    assert linalg.cumulative_energy(GOLDEN) == pytest.approx([0.72727, 0.90909, 0.95455, 1.0], abs=1e-5)
    assert [int(linalg.directions_for(GOLDEN, share)) for share in (0.5, 0.9, 0.95, 1.0)] == [1, 2, 3, 4]


values = arrays(np.float64, st.integers(1, 12), elements=st.floats(0, 1e200, allow_subnormal=False))


@given(values)
def test_ranks_are_ordered_and_defined(singular_values):
    ranks = [f(singular_values) for f in (linalg.stable_rank, linalg.participation_ratio, linalg.energy_effective_rank, linalg.effective_rank)]
    ranks.append(np.count_nonzero(singular_values))
    assert np.isfinite(ranks).all()
    assert all(a <= b * (1 + 1e-9) for a, b in pairwise(ranks))
    assert all(r == 0 for r in ranks) if not singular_values.any() else ranks[0] >= 1 - 1e-12


@given(values, st.floats(1e-3, 1e3))
def test_scale_does_not_matter(singular_values, factor):
    for rank in (linalg.stable_rank, linalg.participation_ratio, linalg.energy_effective_rank, linalg.effective_rank):
        assert rank(factor * singular_values) == pytest.approx(rank(singular_values), rel=1e-9)


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1, float("nan")])
def test_a_share_outside_0_to_1_is_refused(share):
    with pytest.raises(InputError, match="share of energy"):
        linalg.directions_for(GOLDEN, share)


@pytest.mark.parametrize(("m", "r", "n"), [(24, 8, 24), (40, 16, 30), (8, 8, 8)])
def test_product_singular_values_against_the_whole_product(m, r, n):
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((m, r)), rng.standard_normal((r, n))
    expected = np.linalg.svd(A @ B, compute_uv=False)[:r]
    assert linalg.product_singular_values(torch.from_numpy(A), torch.from_numpy(B)).numpy() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("spoil", ["zero column", "equal columns", "all zero", "huge condition"])
def test_product_singular_values_of_hard_factors(spoil):
    rng = np.random.default_rng(1)
    A, B = rng.standard_normal((32, 6)), rng.standard_normal((6, 32))
    if spoil == "zero column":
        A[:, 2] = 0
    elif spoil == "equal columns":
        A[:, 3], B[3] = A[:, 2], B[2]
    elif spoil == "all zero":
        A[:] = 0
    else:
        A = A * np.logspace(0, -10, 6)
    got = linalg.product_singular_values(torch.from_numpy(A), torch.from_numpy(B)).numpy()
    expected = np.linalg.svd(A @ B, compute_uv=False)[:6]
    assert np.isfinite(got).all()
    assert got == pytest.approx(expected, abs=1e-13 * np.linalg.norm(A) * np.linalg.norm(B))


def test_chance_from_triangular_factors_is_chance_from_whole_gaussians():
    rng = np.random.default_rng(2)
    G, H = rng.standard_normal((400, 40, 6)), rng.standard_normal((400, 6, 30))
    whole = np.linalg.svd(G @ H, compute_uv=False)[:, :6] / (np.linalg.norm(G, axis=(1, 2)) * np.linalg.norm(H, axis=(1, 2)))[:, None]
    ours = linalg.gaussian_product_spectra(40, 6, 30, draws=400)
    error = np.sqrt(whole.var(0) / 400 + ours.var(0) / 400)
    assert (np.abs(whole.mean(0) - ours.mean(0)) < 4.5 * error).all()
    assert ours.std(0) == pytest.approx(whole.std(0), rel=0.2)


def test_chance_needs_tall_factors():
    with pytest.raises(InputError, match="wider than tall"):
        linalg.gaussian_product_spectra(4, 8, 16, draws=1)
