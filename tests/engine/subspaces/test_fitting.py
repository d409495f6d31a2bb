"""Least squares against numpy.polyfit, PCA against torch's SVD."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.models.weights import read_embeddings
from engine.subspaces.fitting import embeddings, fit, fit_numbers
from engine.subspaces.params import ProjectionsParams

XY = st.integers(-200, 200).map(lambda k: k / 100)


@pytest.mark.parametrize("degree", range(7))
def test_the_fit_is_numpys(degree):
    result = fit(ProjectionsParams(degree=degree))
    theirs = np.polyfit(result.x, result.y, degree)
    assert result.coefficients[::-1] == pytest.approx(theirs, abs=1e-9)
    assert result.fitted == pytest.approx(np.polyval(theirs, result.x), abs=1e-10)
    assert result.cosines.max() < 1e-13
    assert result.kept + (np.linalg.norm(result.residual) / np.linalg.norm(result.y)) ** 2 == pytest.approx(1)


@given(st.lists(st.tuples(XY, XY), min_size=2, max_size=12), st.integers(0, 6))
def test_any_points_have_one_projection(points, degree):
    result = fit(ProjectionsParams(points=tuple(c for point in points for c in point), degree=degree))
    assert result.rank <= min(degree + 1, len({x for x, _ in points}))
    assert result.fitted + result.residual == pytest.approx(result.y)
    assert result.cosines.max() < 1e-9
    if result.rank == len(set(result.x)) == len(points):
        assert result.fitted == pytest.approx(result.y, abs=1e-6)
    assert all(np.isfinite(n.value) for n in fit_numbers(result))


def test_too_few_different_x_are_said():
    result = fit(ProjectionsParams(points=(1.0, 0.0, 1.0, 2.0), degree=2))
    assert "only 1 different x" in result.said[0]
    assert result.fitted == pytest.approx([1, 1])


@pytest.mark.parametrize("rank", [1, 32, 200, 256])
def test_pca_loses_the_tail_of_the_spectrum_and_no_projection_loses_less(rank):
    E = read_embeddings("fable")[0].double()
    E = E - E.mean(0)
    energies = torch.linalg.svdvals(E) ** 2
    result = embeddings(ProjectionsParams(rank=rank))
    assert result.checked == pytest.approx((energies[rank:].sum() / energies.sum()).item(), abs=1e-12)
    assert result.pca[rank] == pytest.approx(result.checked, abs=1e-12)
    assert result.orthogonality < 1e-12
    random = torch.linalg.qr(torch.randn(256, rank, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))[0]
    lost = ((E - E @ random @ random.T).square().sum() / E.square().sum()).item()
    assert lost == pytest.approx(result.random[rank], abs=0.05)
    assert result.checked <= lost + 1e-12
    assert result.checked <= result.axes[rank] + 1e-12


def test_a_rank_above_the_width_keeps_everything(tiny_llama):
    assert embeddings(ProjectionsParams(model=str(tiny_llama), rank=500)).checked == pytest.approx(0, abs=1e-12)
