"""The projector in exact rational arithmetic: a float64 is a fraction, so nothing is rounded until the last step."""

from fractions import Fraction

import numpy as np

Rows = list[list[Fraction]]


def exact_projector(A: np.ndarray) -> Rows:
    """Return P = A (A^T A)^-1 A^T (n, n) as fractions, for the float64 columns of A (n, 1 or 2) as they are.

    Raises ZeroDivisionError if the columns are exactly dependent.
    """
    columns = [[Fraction(float(x)) for x in column] for column in A.T]
    if len(columns) == 1:
        (a,) = columns
        size = _dot(a, a)
        return [[x * y / size for y in a] for x in a]
    a, b = columns
    aa, ab, bb = _dot(a, a), _dot(a, b), _dot(b, b)
    det = aa * bb - ab * ab
    row = lambda i: [(bb * a[i] - ab * b[i]) / det, (aa * b[i] - ab * a[i]) / det]  # noqa: E731
    return [[left * x + right * y for x, y in zip(a, b, strict=True)] for left, right in map(row, range(len(a)))]


def exact_condition(A: np.ndarray) -> float:
    """Return sigma_1 / sigma_2 of the float64 columns of A (n, 2) from their exact Gram matrix; inf if exactly dependent."""
    a, b = ([Fraction(float(x)) for x in column] for column in A.T)
    trace, det = _dot(a, a) + _dot(b, b), _dot(a, a) * _dot(b, b) - _dot(a, b) ** 2
    if det == 0:
        return float("inf")
    half = float(trace) / 2
    largest = half + max(half * half - float(det), 0.0) ** 0.5
    return largest / float(det) ** 0.5


def gram_determinant(A: np.ndarray) -> Fraction:
    """Return det A^T A of the columns of A (n, 1 or 2) as they were typed: 0.1 is a tenth; 0 if and only if they are dependent."""
    columns = [[Fraction(repr(float(x))) for x in column] for column in A.T]
    if len(columns) == 1:
        return _dot(columns[0], columns[0])
    a, b = columns
    return _dot(a, a) * _dot(b, b) - _dot(a, b) ** 2


def off(P: np.ndarray, exact: Rows) -> float:
    """Return |P - exact|_2, the difference taken before anything is rounded; nan if P is not finite."""
    if not np.isfinite(P).all():
        return float("nan")
    difference = [[float(Fraction(float(p)) - e) for p, e in zip(*rows, strict=True)] for rows in zip(P, exact, strict=True)]
    return float(np.linalg.norm(np.array(difference), 2))


def _dot(a: list[Fraction], b: list[Fraction]) -> Fraction:
    return sum((x * y for x, y in zip(a, b, strict=True)), Fraction(0))
