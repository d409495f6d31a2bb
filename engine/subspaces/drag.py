"""One vector projected onto one line: what the hand moves on the first screen.

proj_a(v) = a (a.v) / (a.a); the residual v - proj_a(v) is perpendicular to a. Source: seeds 000 and 001, sections 01 and 02.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import gamma, hypot, nan

import numpy as np

from engine.params import Number, frozen, uses
from engine.progress import OnStep, silent
from engine.subspaces.params import SPACES, ProjectionsParams

ON_THE_LINE = 1e-12


@dataclass(frozen=True)
class DragResult:
    """v and a (n,), the foot ``projection`` = t a and the ``residual`` (n,), their lengths, and the share of energy kept.

    ``coefficient`` t; nan if a = 0, when the line is a point. ``kept`` = |projection|^2 / |v|^2; it and what follows are nan
    where they would be 0 / 0. Measured, not assumed: ``right_angle`` = |a.residual| / (|a| |v|),
    ``pythagoras`` = | |v|^2 - |p|^2 - |r|^2 | / |v|^2, ``error`` = the
    largest entry of projection - exact / |v|, exact in fractions. ``chance_*``: means over all directions of a, 0 dimensions for a = 0. ``said``:
    sentences on what is special. ``along`` (k,): places t on the line in units of a's length, ``distance`` (k,): |v - t a/|a| |; empty if a = 0.
    """

    v: np.ndarray
    a: np.ndarray
    coefficient: float
    projection: np.ndarray
    residual: np.ndarray
    projection_length: float
    residual_length: float
    length: float
    kept: float
    right_angle: float
    pythagoras: float
    error: float
    chance_projection: float
    chance_residual: float
    chance_kept: float
    said: tuple[str, ...]
    along: np.ndarray
    distance: np.ndarray


@uses("space", "v", "a")
def drag(params: ProjectionsParams, on_step: OnStep = silent) -> DragResult:
    """Return the projection of v onto the line along a, in R^2 or R^3; for a = 0 the line is the origin, and so is the foot."""
    n = SPACES[params.space]
    v, a = (np.array([*values[:n], 0.0][:n]) for values in (params.v, params.a))
    unit = _unit(a)
    size = hypot(*v)
    p = unit * (unit @ v)
    r = v - p
    along = np.linspace(-1.5, 1.5, 61 if a.any() else 0) * (size or 1.0)
    k = int(a.any())
    return DragResult(
        *(frozen(x) for x in (v, a)),
        coefficient=float(unit @ v) / hypot(*a) if a.any() else nan,
        projection=frozen(p),
        residual=frozen(r),
        projection_length=hypot(*p),
        residual_length=hypot(*r),
        length=size,
        kept=(hypot(*p) / size) ** 2 if size else nan,
        right_angle=abs(float(unit @ r)) / size if size and k else nan,
        pythagoras=abs(1 - (hypot(*p) / size) ** 2 - (hypot(*r) / size) ** 2) if size else nan,
        error=_error(p, v, a) / size if size else nan,
        chance_projection=size * mean_length(k, n),
        chance_residual=size * mean_length(n - k, n),
        chance_kept=k / n,
        said=_said(v, a, r),
        along=frozen(along),
        distance=frozen(np.array([hypot(*(v - t * unit)) for t in along])),
    )


def mean_length(k: int, n: int) -> float:
    """Return E |P u| over random unit vectors u of R^n, P onto a subspace of k dimensions: 2 / pi for 1 of 2, 1/2 for 1 of 3, pi/4 for 2 of 3."""
    if k in (0, n):
        return float(k == n)
    return gamma((k + 1) / 2) * gamma(n / 2) / (gamma(k / 2) * gamma((n + 1) / 2))


def drag_numbers(result: DragResult) -> dict[str, Number]:
    """Return what is read off: length of the projection and of the residual, share of energy kept, and what doubling a does; nan for 0 / 0."""
    doubled = _unit(2 * result.a)
    ratio = hypot(*(doubled * (doubled @ result.v))) / result.projection_length if result.projection_length else nan
    return {
        "projection": Number("Projection, its length", result.projection_length, result.chance_projection, 2),
        "residual": Number("Residual, its length", result.residual_length, result.chance_residual, 2),
        "kept": Number("Energy kept", 100 * result.kept, 100 * result.chance_kept, 1, " %"),
        "doubling": Number("Projection onto 2a over projection onto a", ratio, None, 3),
    }


def line_projector(result: DragResult) -> np.ndarray:
    """Return P = a a^T / (a^T a), (n, n); the zero matrix for a = 0."""
    unit = _unit(result.a)
    return frozen(np.outer(unit, unit))


def drag_checks(result: DragResult) -> list[tuple[str, float]]:
    """Return what must be 0 but for rounding, in words, with its measured value."""
    return [
        ("cosine of the angle between residual and line", result.right_angle),
        ("Pythagoras: | |v|² − |p|² − |r|² | / |v|²", result.pythagoras),
        ("distance of the foot from exact fractions, over |v|", result.error),
    ]


def _unit(a: np.ndarray) -> np.ndarray:
    """Return a / |a|, or zeros for a = 0, without over- or underflow."""
    return a / np.abs(a).max() / hypot(*(a / np.abs(a).max())) if a.any() else np.zeros_like(a)


def _error(p: np.ndarray, v: np.ndarray, a: np.ndarray) -> float:
    """Return the largest entry of p - exact, exact = a (a.v) / (a.a) in fractions."""
    if not a.any():
        return float(np.abs(p).max())
    x, y = ([Fraction(float(entry)) for entry in vector] for vector in (v, a))
    t = sum(i * j for i, j in zip(x, y, strict=True)) / sum(j * j for j in y)
    return max(abs(float(Fraction(float(entry)) - t * j)) for entry, j in zip(p, y, strict=True))


def _said(v: np.ndarray, a: np.ndarray, r: np.ndarray) -> tuple[str, ...]:
    """Return a sentence for each special case."""
    if not a.any():
        return ("a is the zero vector: its line is the origin alone, and the closest point of that is 0. Nothing is divided by 0.",)
    if not v.any():
        return ("v is the zero vector: it lies on every line, and there is no energy to keep or to lose.",)
    if hypot(*r) <= ON_THE_LINE * hypot(*v):
        return ("v lies on the line: it is its own projection, and the residual is what rounding leaves.",)
    if hypot(*(v - r)) <= ON_THE_LINE * hypot(*v):
        return ("v is perpendicular to the line: its projection is 0, all of it is residual.",)
    return ()
