"""Lines and planes of R^3: the orthogonal projector by several formulas, an oblique one, and what parallel columns cost.

Orthogonal: P = A (A^T A)^-1 A^T = Q Q^T for any orthonormal basis Q of the columns' span. Source: seed 000, sections 03 and 04.
"""

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np

from engine.params import Number, frozen, uses
from engine.progress import OnStep, silent
from engine.subspaces.exact import Rows, exact_condition, exact_projector, gram_determinant, off
from engine.subspaces.params import ProjectionsParams, columns_of

EPS = float(np.finfo(np.float64).eps)
DRAWS = 9
SLOPE_FROM, SLOPE_TO = 2.0, 7.0


@dataclass(frozen=True)
class ProjectorChecks:
    """One 3 x 3 matrix and what makes it a projector, each as a measured error: 0 but for rounding if it holds.

    ``idempotence`` |P^2 - P|_2, ``symmetry`` |P - P^T|_2, ``eigenvalues`` (3,) descending and ``eigenvalue_error``, their
    largest distance from 0 and 1, ``trace_error`` |tr P - rank|, ``norm`` |P|_2, ``error`` |P - exact|_2 against the
    orthogonal projector in fractions, ``foot`` P v and ``distance`` |v - P v|. ``name``: which formula.
    """

    name: str
    P: np.ndarray
    idempotence: float
    symmetry: float
    eigenvalues: np.ndarray
    eigenvalue_error: float
    trace_error: float
    norm: float
    error: float
    foot: np.ndarray
    distance: float


@dataclass(frozen=True)
class SubspaceResult:
    """The span of the columns of A (3, k): its ``rank``, ``condition_number``, and P by every formula.

    ``basis`` (3, rank) orthonormal, ``normals`` (3, 3 - rank) its complement. ``checks``: normal equations (absent where they
    fail), QR, SVD, then the oblique projector along a direction ``slant`` degrees off the perpendicular. ``said``: sentences.
    """

    A: np.ndarray
    v: np.ndarray
    rank: int
    condition_number: float
    basis: np.ndarray
    normals: np.ndarray
    slant: int
    checks: tuple[ProjectorChecks, ...]
    said: tuple[str, ...]

    def of(self, name: str) -> ProjectorChecks | None:
        """Return the checks of a formula, or None where it failed."""
        return next((check for check in self.checks if check.name == name), None)


@dataclass(frozen=True)
class ParallelResult:
    """Error |P - exact|_2 of three formulas while two columns of one plane are brought together.

    ``condition`` (k,): the exact sigma_1 / sigma_2; each error (k,) is the median over in-plane rotations, nan where a method
    stops with a singular matrix; ``*_failed`` (k,): the share of rotations in which it stops. ``*_slope``: of log error on
    log condition between 10^2 and 10^7. ``eps``: the unit that the laws eps kappa and eps kappa^2 are drawn with.
    """

    exponent: np.ndarray
    condition: np.ndarray
    normal: np.ndarray
    qr: np.ndarray
    svd: np.ndarray
    normal_failed: np.ndarray
    normal_slope: float
    qr_slope: float
    svd_slope: float
    eps: float


def by_normal_equations(A: np.ndarray) -> np.ndarray:
    """Return A (A^T A)^-1 A^T; raises LinAlgError if A^T A is singular to working precision."""
    return A @ np.linalg.solve(A.T @ A, A.T)


def by_qr(A: np.ndarray) -> np.ndarray:
    """Return Q Q^T from A = Q R by Householder reflections (LAPACK)."""
    Q = np.linalg.qr(A)[0]
    return Q @ Q.T


def by_svd(A: np.ndarray) -> np.ndarray:
    """Return U U^T over the left singular vectors of all columns."""
    U = np.linalg.svd(A, full_matrices=False)[0]
    return U @ U.T


FORMULAS = {"normal": by_normal_equations, "qr": by_qr, "svd": by_svd}


@uses("matrix", "v", "slant")
def subspace(params: ProjectionsParams, on_step: OnStep = silent) -> SubspaceResult:
    """Return every projector onto the span of the typed columns, checked; a zero matrix spans the origin, P = 0."""
    A = columns_of(params.matrix)
    v = np.array([*params.v, 0.0][:3])
    U, sigma, _ = np.linalg.svd(A)
    det, k = gram_determinant(A), A.shape[1]
    rank = min(int((sigma > 3 * EPS * sigma[0]).sum()), k if det else k - 1)
    basis, normals = U[:, :rank], U[:, rank:]
    independent = A if rank == k else A[:, [int(np.argmax(np.abs(A).max(0)))]][:, :rank]
    exact = exact_projector(independent) if rank else [[0] * 3 for _ in range(3)]
    found = {"QR": _orthonormal(independent), "SVD": basis @ basis.T, "oblique": oblique(*frame(A, rank), params.slant)}
    said = () if rank == k else (_deficient(rank, det),)
    try:
        found = {"normal equations": by_normal_equations(A if rank == k else np.zeros_like(A)), **found}
    except np.linalg.LinAlgError:
        said += (_singular(A, det),)
    checks = tuple(check(name, P, rank, exact, v) for name, P in found.items())
    condition = float(sigma[0] / sigma[rank - 1]) if rank else 0.0
    return SubspaceResult(frozen(A), frozen(v), rank, condition, *(frozen(x) for x in (basis, normals)), params.slant, checks, said)


def frame(A: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Return an orthonormal basis (3, rank) of the columns' span, the first along the first column, and one normal (3,).

    Of a plane the normal is the cross product, of a line it leans towards the coordinate where the line is least.
    """
    q = _unit(A[:, int(np.argmax(A.any(0)))])
    if rank == 1:
        return q[:, None], _unit(np.eye(3)[np.argmin(np.abs(q))] - q[np.argmin(np.abs(q))] * q)
    if rank == 0:
        return np.zeros((3, 0)), np.zeros(3)
    normal = _unit(np.cross(q, _unit(A[:, 1])))
    return np.column_stack([q, np.cross(normal, q)]), normal


def oblique(basis: np.ndarray, normal: np.ndarray, slant: float) -> np.ndarray:
    """Return P = Q Q^T + tan(slant) q_1 n^T: onto the span of Q (3, r), along a direction ``slant`` degrees off the normal n (3,).

    P^2 = P since n^T Q = 0; |P|_2 = 1 / cos(slant); not symmetric unless the slant is 0.
    """
    P = basis @ basis.T
    return P + np.tan(np.radians(slant)) * np.outer(basis[:, 0], normal) if basis.shape[1] else P


def check(name: str, P: np.ndarray, rank: int, exact: Rows, v: np.ndarray) -> ProjectorChecks:
    """Return the measured errors of what a projector of a rank must satisfy."""
    eigenvalues = np.sort(np.linalg.eigvals(P).real)[::-1]
    foot = P @ v
    return ProjectorChecks(
        name,
        frozen(P),
        idempotence=float(np.linalg.norm(P @ P - P, 2)),
        symmetry=float(np.linalg.norm(P - P.T, 2)),
        eigenvalues=frozen(eigenvalues),
        eigenvalue_error=float(np.minimum(np.abs(eigenvalues), np.abs(eigenvalues - 1)).max()),
        trace_error=abs(float(np.trace(P)) - rank),
        norm=float(np.linalg.norm(P, 2)),
        error=off(P, exact),
        foot=frozen(foot),
        distance=float(np.linalg.norm(v - foot)),
    )


def projector_table(result: SubspaceResult) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: what makes a projector, measured, one column a formula; that of the SVD is like that of QR."""
    checks = [check for check in result.checks if check.name != "SVD"]
    small = lambda name: [f"{value:.0e}" if (value := getattr(check, name)) else "0" for check in checks]  # noqa: E731
    rows = [
        ["|P² − P|", *small("idempotence")],
        ["|P − Pᵀ|", *small("symmetry")],
        ["eigenvalues", *(", ".join(f"{abs(round(value, 3)):g}" for value in check.eigenvalues.tolist()) for check in checks)],
        ["off 0 and 1 by", *small("eigenvalue_error")],
        [f"|trace − {result.rank}|", *small("trace_error")],
        ["longest stretch |P|", *(f"{check.norm:.3f}" for check in checks)],
        ["off the exact P", *small("error")],
        ["|v − Pv|", *(f"{check.distance:.3f}" for check in checks)],
    ]
    return ["", *(check.name for check in checks)], rows


@uses("matrix")
def parallel_columns(params: ProjectionsParams, on_step: OnStep = silent) -> ParallelResult:
    """Return the error of each formula against the condition number, 1 to 10^16, in the plane of the typed columns.

    Unit columns at an angle theta have kappa = cot(theta / 2). The oracle takes the rounded columns as exact fractions. A
    typed matrix that spans a line is given a second direction perpendicular to it.
    """
    U = np.linalg.svd(columns_of(params.matrix))[0]
    exponents = np.arange(0, 16.1, 0.5)
    rows = []
    for done, exponent in enumerate(exponents):
        on_step(done, len(exponents), "Columns brought together")
        rows.append(_errors_at(U[:, :2], 2 * np.arctan(10.0**-exponent)))
    condition, normal, qr, svd, failed = np.array(rows).T
    slopes = [_slope(condition, errors) for errors in (normal, qr, svd)]
    return ParallelResult(*(frozen(x) for x in (exponents, condition, normal, qr, svd, failed)), *slopes, eps=EPS)


def parallel_numbers(result: ParallelResult, kappa: int) -> dict[str, Number]:
    """Return the correct digits that each formula keeps at a condition number of 10^kappa, beside what its law leaves of 16."""
    at = int(np.argmin(np.abs(result.exponent - kappa)))
    named = {"normal": ("Normal equations", 2), "qr": ("QR", 1), "svd": ("SVD", 1)}
    law = lambda power: digits(result.eps * 10.0 ** (power * kappa))  # noqa: E731
    return {
        name: Number(f"{label}: correct digits", digits(getattr(result, name)[at]), law(power), 1, " of 16", against="law")
        for name, (label, power) in named.items()
    }


def digits(error: float) -> float:
    """Return -log10 of a relative error, between 0 and 16; 0 where a method failed."""
    return 0.0 if np.isnan(error) else float(np.clip(-np.log10(max(error, 1e-16)), 0, 16))


def _errors_at(plane: np.ndarray, angle: float) -> tuple[float, ...]:
    """Return exact condition, then the three errors and the share of normal equations that stop, medians over rotations."""
    conditions, errors = [], {name: [] for name in FORMULAS}
    for turn in np.linspace(0.1, np.pi, DRAWS):
        A = plane @ np.array([[np.cos(turn), np.cos(turn + angle)], [np.sin(turn), np.sin(turn + angle)]])
        if not np.isfinite(condition := exact_condition(A)):
            continue  # the two columns round to the same one: they span a line
        exact = exact_projector(A)
        conditions.append(condition)
        for name, formula in FORMULAS.items():
            errors[name].append(_error(formula, A, exact))
    if not conditions:
        return (float("nan"),) * 5
    failed = float(np.isnan(errors["normal"]).mean())
    return (float(np.median(conditions)), *(_median(found) for found in errors.values()), failed)


def _error(formula, A: np.ndarray, exact: Rows) -> float:
    try:
        return off(formula(A), exact)
    except np.linalg.LinAlgError:
        return float("nan")


def _median(values: list[float]) -> float:
    known = [value for value in values if not np.isnan(value)]
    return float(np.median(known)) if known else float("nan")


def _slope(condition: np.ndarray, errors: np.ndarray) -> float:
    """Return the slope of log error on log condition where both laws can be seen."""
    x = np.log10(condition)
    seen = (x > SLOPE_FROM) & (x < SLOPE_TO) & (errors > 0)
    return float(np.polyfit(x[seen], np.log10(errors[seen]), 1)[0])


def _unit(x: np.ndarray) -> np.ndarray:
    x = x / (np.abs(x).max() or 1.0)
    return x / (np.linalg.norm(x) or 1.0)


def _orthonormal(independent: np.ndarray) -> np.ndarray:
    return by_qr(independent) if independent.shape[1] else np.zeros((3, 3))


def _deficient(rank: int, det: Fraction) -> str:
    if rank == 0:
        return "All columns are zero: they span the origin alone, and the projector onto it is the zero matrix."
    if det:
        return "The columns span a plane, but one less than 7e-16 of the longer out of line: float64 holds 16 digits and takes them for a line."
    return "The columns are parallel: they span a line, not a plane."


def _singular(A: np.ndarray, det: Fraction) -> str:
    """Return why the normal equations fail: there is no inverse, or float64 cannot form it."""
    if not det:
        return "AᵀA is exactly singular, so the formula with its inverse does not exist here; Q Qᵀ does."
    size = f"{Decimal(det.numerator) / Decimal(det.denominator):.1e}"
    why = "its entries are smaller than the smallest number" if not (A.T @ A).any() else "forming it squares the condition number"
    return f"AᵀA has an inverse, its determinant in fractions is {size}, but float64 cannot form it: {why}. Q Qᵀ never forms AᵀA."
