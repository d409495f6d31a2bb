"""Four ways to Q and R against numpy and mpmath, and the laws by which they lose orthogonality; condition numbers."""

import mpmath
import numpy as np
import pytest

from engine.subspaces.conditioning import aspect_conditions, gaussian_conditions, limiting_condition, training_conditions
from engine.subspaces.orthogonalise import METHODS, STEP_COUNT, conditioned, factors, laeuchli, losses, measure, steps
from engine.subspaces.params import ProjectionsParams


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [(3, 3), (7, 4), (24, 12), (5, 1)])
def test_factors_are_numpys_up_to_signs(method, size):
    A = np.random.default_rng(0).standard_normal(size)
    before = A.copy()
    Q, R = factors(method, A)
    theirs, upper = np.linalg.qr(A)
    signs = np.sign(np.diag(R) * np.diag(upper))
    assert Q * signs == pytest.approx(theirs, abs=1e-13)
    assert R * signs[:, None] == pytest.approx(upper, abs=1e-13)
    assert np.tril(R, -1) == pytest.approx(0, abs=0)
    assert (before == A).all()


def test_classical_gram_schmidt_is_exact_arithmetics_in_exact_arithmetic():
    """The loss is rounding's: mpmath's QR of the same matrix is orthonormal, and its R is ours where kappa is small."""
    A = laeuchli(100.0)
    with mpmath.workdps(40):
        R = np.array(mpmath.qr(mpmath.matrix(A.tolist()), mode="skinny")[1].tolist(), dtype=float)
    for method in METHODS:
        assert np.abs(factors(method, A)[1]) == pytest.approx(np.abs(R), abs=1e-13)


@pytest.mark.parametrize("kappa", [1.0, 1e3, 1e10])
def test_matrices_have_the_condition_that_was_asked_for(kappa):
    assert np.linalg.cond(conditioned(kappa, (24, 12), 0)) == pytest.approx(kappa, rel=1e-4)
    if kappa > 1:
        assert np.linalg.cond(laeuchli(kappa)) == pytest.approx(kappa, rel=1e-4)


def test_the_laws_of_lost_orthogonality():
    result = losses(ProjectionsParams())
    slopes = dict(zip(result.methods, result.slopes, strict=True))
    assert slopes["classical"] == pytest.approx(2, abs=0.2)
    assert slopes["modified"] == pytest.approx(1, abs=0.2)
    assert slopes["Householder"] == pytest.approx(0, abs=0.05)
    assert slopes["Givens"] == pytest.approx(0, abs=0.05)
    assert (result.residual < 1e-14).all()  # all four factor A; only two give an orthonormal Q
    assert result.loss[2:].max() < 1e-14
    assert result.loss[0, 10] > 0.1


@pytest.mark.parametrize("method", METHODS)
def test_steps_end_where_the_method_ends(method):
    result = steps(ProjectionsParams(method=method, kappa=8))
    assert len(result.steps) == 1 + STEP_COUNT[method]
    last = result.steps[-1]
    Q, R = factors(method, result.A)
    assert (last.Q == Q).all()
    assert (last.R == R).all()
    assert (result.loss, result.residual) == measure(result.A, Q, R)
    if method == "classical":
        assert result.gram[1, 2] == pytest.approx(0.5)  # the textbook failure: 60 degrees where 90 are claimed


def test_zero_and_repeated_columns_divide_by_nothing():
    for method in METHODS:
        for A in (np.zeros((4, 2)), np.ones((4, 2))):
            Q, R = factors(method, A)
            assert np.isfinite(Q).all()
            assert pytest.approx(A, abs=1e-14) == Q @ R


def test_square_matrices_are_the_bad_ones():
    """The source has it the other way round: 'finite for square', 'degraded for very tall ones'."""
    result = aspect_conditions(ProjectionsParams())
    assert result.median[0] > 100 > 6 > result.median[5] > 2 > result.median[-1]
    assert (np.diff(result.median) < 0).all()
    assert result.median[4:] == pytest.approx(result.limit[4:], rel=0.15)
    assert np.isinf(result.limit[0])
    assert result.orthogonal == pytest.approx(1, abs=1e-12)


def test_random_conditions_are_numpys():
    drawn = np.random.default_rng(1).standard_normal((400, 20, 80))
    theirs = np.linalg.cond(drawn)
    assert np.median(gaussian_conditions(20, 80, 400)) == pytest.approx(np.median(theirs), rel=0.03)
    assert gaussian_conditions(80, 20, 5) == pytest.approx(gaussian_conditions(20, 80, 5))
    assert limiting_condition(4.0) == pytest.approx(3.0)


def test_square_gaussians_grow_with_their_size():
    """Edelman 1988: the mean of log kappa of an n x n Gaussian is log n + 1.537 for large n."""
    assert np.log(gaussian_conditions(128, 128, 400)).mean() == pytest.approx(np.log(128) + 1.537, abs=0.15)


def test_fables_snapshots():
    from safetensors.numpy import load_file

    from tests.conftest import FABLE

    result = training_conditions(ProjectionsParams())
    files = sorted((FABLE.parent / "fable-snapshots").glob("step-*"))
    assert result.condition.shape == (len(files), 4, 4)
    assert result.step.tolist() == [int(file.stem.split("-")[1]) for file in files]
    stored = load_file(files[3])
    for i, name in enumerate("qkvo"):
        W = stored[f"model.layers.1.self_attn.{name}_proj.weight"].astype(float)
        assert result.condition[3, 1, i] == pytest.approx(np.linalg.cond(W), rel=1e-6)
        assert result.shapes[i] == W.shape
    at_start, now = result.condition[0], result.condition[-1]
    assert (at_start[:, 1:3] < 1.6 * result.chance_high[1:3]).all()  # W_K and W_V begin as Gaussian matrices do
    assert (now[:, 1:3] > result.chance_high[1:3]).all()  # and end worse conditioned
