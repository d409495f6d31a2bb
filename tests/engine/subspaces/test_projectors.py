"""Projectors onto lines and planes of R^3, and columns brought towards parallel, against numpy and mpmath."""

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from engine.subspaces import projectors
from engine.subspaces.exact import exact_condition, exact_projector, off
from engine.subspaces.params import ProjectionsParams, columns_of
from engine.subspaces.projectors import by_normal_equations, by_qr, by_svd, oblique, parallel_columns, parallel_numbers, subspace
from engine.subspaces.typed import read_matrix, write_matrix

PLANE = np.array([[2.0, 0.0], [0.5, 1.5], [0.0, 1.0]])


def oracle(A):
    """Return P with fifty digits."""
    with mpmath.workdps(50):
        M = mpmath.matrix(A.tolist())
        return np.array((M * mpmath.inverse(M.T * M) * M.T).tolist(), dtype=float)


@pytest.mark.parametrize("formula", [by_normal_equations, by_qr, by_svd])
def test_every_formula_gives_the_projector_of_mpmath(formula):
    assert formula(PLANE) == pytest.approx(oracle(PLANE), abs=1e-14)


@given(arrays(float, (3, 2), elements=st.integers(-1000, 1000).map(lambda k: k / 100)))
def test_fractions_agree_with_mpmath(A):
    if np.linalg.cond(A) > 1e5:
        return
    exact = np.array([[float(x) for x in row] for row in exact_projector(A)])
    assert exact == pytest.approx(oracle(A), abs=1e-15)
    assert exact_condition(A) == pytest.approx(np.linalg.cond(A), rel=1e-5)
    assert off(exact, exact_projector(A)) < 1e-15


def test_the_checks_hold_for_all_but_where_the_oblique_one_must_fail():
    result = subspace(ProjectionsParams(matrix=write_matrix(PLANE), slant=35))
    assert result.rank == 2
    assert result.condition_number == pytest.approx(np.linalg.cond(PLANE))
    for check in result.checks:
        assert check.idempotence < 2e-15
        assert check.eigenvalue_error < 2e-15
        assert check.trace_error < 2e-15
        skew = check.name == "oblique"
        assert check.symmetry == pytest.approx(np.tan(np.radians(35)) if skew else 0, abs=2e-15)
        assert check.norm == pytest.approx(1 / np.cos(np.radians(35)) if skew else 1)
        assert (check.error < 2e-15) != skew
    best = result.of("QR")
    assert result.of("oblique").distance > best.distance
    assert best.foot == pytest.approx(PLANE @ np.linalg.lstsq(PLANE, result.v, rcond=None)[0])
    assert PLANE.T @ (result.v - best.foot) == pytest.approx([0, 0], abs=1e-14)


def test_an_oblique_projector_without_slant_is_the_orthogonal_one():
    Q, N = np.split(np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0], [2], axis=1)
    assert oblique(Q, N[:, 0], 0) == pytest.approx(Q @ Q.T)


@pytest.mark.parametrize(
    ("matrix", "rank", "said"),
    [
        ("1;2;2", 1, None),
        ("1,2;2,4;2,4", 1, "parallel: they span a line"),
        ("1,-1;2,-2;2,-2", 1, "parallel"),
        ("0,0;0,0;0,0", 0, "All columns are zero"),
        ("0,1;0,1;0,1", 1, "span a line"),
        ("0.1,0.3;0.2,0.6;0.7,2.1", 1, "parallel"),
    ],
)
def test_dependent_columns_are_said_and_still_have_a_projector(matrix, rank, said):
    result = subspace(ProjectionsParams(matrix=matrix))
    A = columns_of(matrix)
    assert result.rank == rank
    assert said is None or said in result.said[0]
    for name in ("QR", "SVD"):
        assert pytest.approx(A @ np.linalg.pinv(A, rcond=1e-12), abs=1e-14) == result.of(name).P
        assert result.of(name).error < 1e-15
    assert (result.of("normal equations") is None) == (rank < A.shape[1])


@pytest.mark.parametrize(
    ("matrix", "rank", "said"),
    [
        ("1,1;1,1.00000001;0,0", 2, "determinant in fractions is 1.0e-16, but float64 cannot form it: forming it squares"),
        ("1e-300,0;0,1e-300;0,0", 2, "determinant in fractions is 1.0e-1200, but float64 cannot form it: its entries are smaller"),
        ("1e6,0;0,1e-11;0,0", 1, "determinant in fractions is 1.0e-10, but"),
        ("1,2;2,4;2,4", 1, "exactly singular"),
        ("0.1,0.3;0.2,0.6;0.7,2.1", 1, "exactly singular"),
        ("0,0;0,0;0,0", 0, "exactly singular"),
        ("0;0;0", 0, "exactly singular"),
    ],
)
def test_no_inverse_and_none_in_float64_are_told_apart(matrix, rank, said):
    result = subspace(ProjectionsParams(matrix=matrix))
    assert result.rank == rank
    assert result.of("normal equations") is None
    assert said in result.said[-1]
    assert ("parallel" in result.said[0]) == (rank == 1 and "exactly singular" in said)
    with mpmath.workdps(50):
        A = mpmath.matrix([[mpmath.mpf(x) for x in row.split(",")] for row in matrix.split(";")])
        assert (abs(mpmath.det(A.T * A)) > mpmath.mpf("1e-1250")) == ("exactly singular" not in said)
    if rank == 2:
        assert pytest.approx(np.diag([1.0, 1.0, 0.0]), abs=1e-15) == result.of("QR").P


@pytest.fixture(scope="module")
def sweep():
    return parallel_columns(ProjectionsParams())


def test_normal_equations_lose_with_kappa_squared_the_others_with_kappa(sweep):
    assert sweep.normal_slope == pytest.approx(2, abs=0.2)
    assert sweep.qr_slope == pytest.approx(1, abs=0.15)
    assert sweep.svd_slope == pytest.approx(1, abs=0.15)
    assert sweep.condition[:28] == pytest.approx(10 ** sweep.exponent[:28], rel=1e-2)
    digits = parallel_numbers(sweep, 8)
    assert digits["normal"].value < 2 < 7 < digits["qr"].value
    assert sweep.normal_failed.max() > 0


def test_one_error_of_the_sweep_is_that_of_mpmath():
    angle = 2 * np.arctan(1e-6)
    plane = np.linalg.svd(columns_of(ProjectionsParams().matrix))[0][:, :2]
    A = plane @ np.array([[np.cos(0.1), np.cos(0.1 + angle)], [np.sin(0.1), np.sin(0.1 + angle)]])
    for formula in projectors.FORMULAS.values():
        P = formula(A)
        assert off(P, exact_projector(A)) == pytest.approx(np.linalg.norm(P - oracle(A), 2), rel=1e-4)


@pytest.mark.parametrize("text", ["[[1, 2], [3, 4], [5, 6]]", "1 2\n3 4\n5 6", "1,2;3,4;5,6", "1\t2\r\n3\t4\r\n5\t6\n", "[1 2; 3 4; 5 6]"])
def test_matrices_are_read_as_people_paste_them(text):
    A = read_matrix(text, 3, (1, 2))
    assert A.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert read_matrix(write_matrix(A), 3, (1, 2)).tolist() == A.tolist()


@given(arrays(float, st.tuples(st.just(3), st.integers(1, 2)), elements=st.floats(-1e6, 1e6)))
def test_what_a_link_holds_is_read_back(A):
    text = write_matrix(A)
    assert write_matrix(read_matrix(text, 3, (1, 2))) == text
    assert read_matrix(text, 3, (1, 2)) == pytest.approx(A, rel=1e-11)


def test_a_typeset_minus_is_a_minus():
    assert read_matrix("\N{MINUS SIGN}1;2;\N{MINUS SIGN}3e\N{MINUS SIGN}2", 3, (1, 1)).tolist() == [[-1], [2], [-0.03]]


def test_correct_digits_stand_beside_their_law(sweep):
    found = parallel_numbers(sweep, 6)
    assert (found["normal"].chance, found["qr"].chance) == pytest.approx((15.65 - 12, 15.65 - 6), abs=0.01)
    assert all(abs(n.value - n.chance) < 1.6 for n in found.values())
