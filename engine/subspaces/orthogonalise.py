"""Four ways to A = Q R, step by step, and how much orthogonality each loses when columns are nearly dependent.

Classical Gram-Schmidt subtracts projections computed from the original column, modified from what is left of it;
Householder reflects, Givens rotates. Source: seed 003, sections 02 to 04; Higham 2002, chapter 19, for the laws.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from engine.params import Number, frozen, uses
from engine.progress import OnStep, silent
from engine.subspaces.params import METHODS, ProjectionsParams

EPS = float(np.finfo(np.float64).eps)
SIZE = (24, 12)
DRAWS = 3
State = tuple[str, np.ndarray, np.ndarray]
Method = Callable[[np.ndarray], Iterator[State]]


@dataclass(frozen=True)
class Step:
    """What was done, Q (m, n) so far and R (n, n) so far, and |Q^T Q - I| over the columns that are finished."""

    said: str
    Q: np.ndarray
    R: np.ndarray


@dataclass(frozen=True)
class StepsResult:
    """One method on the 4 x 3 matrix of Laeuchli (1961), ones above a small diagonal, at a condition number of 10^kappa.

    ``steps``: every state on the way; the first is the start. At the end: ``gram`` (3, 3) Q^T Q, ``loss`` |Q^T Q - I|_2,
    ``residual`` |A - Q R|_2 / |A|_2.
    """

    method: str
    A: np.ndarray
    condition_number: float
    steps: tuple[Step, ...]
    gram: np.ndarray
    loss: float
    residual: float


@dataclass(frozen=True)
class LossResult:
    """Loss |Q^T Q - I|_2 and residual |A - Q R|_2 / |A|_2 of all four methods over condition numbers 10^0 to 10^16.

    ``loss`` and ``residual`` (4, k) in the order of ``methods``, medians over random matrices of ``size``; ``eps`` as the laws
    have it: classical about eps kappa^2, modified about eps kappa, the others eps whatever kappa is. ``slopes`` (4,): of log
    loss on log kappa between 10^1 and 10^7.
    """

    methods: tuple[str, ...]
    size: tuple[int, int]
    exponent: np.ndarray
    loss: np.ndarray
    residual: np.ndarray
    slopes: np.ndarray
    eps: float


def classical(A: np.ndarray) -> Iterator[State]:
    """Yield states of classical Gram-Schmidt: all projections of a column are computed from that column as it was given."""
    Q, R = A.copy(), np.zeros((A.shape[1],) * 2)
    for k in range(A.shape[1]):
        if k:
            R[:k, k] = Q[:, :k].T @ A[:, k]
            Q[:, k] = A[:, k] - Q[:, :k] @ R[:k, k]
            yield f"Take from column {k + 1} its projections on {_first(k)}, all computed from the column as it was.", Q, R
        _normalise(Q, R, k)
        yield f"Divide what is left of column {k + 1} by its length.", Q, R


def modified(A: np.ndarray) -> Iterator[State]:
    """Yield states of modified Gram-Schmidt: each projection is computed from what the ones before it have left."""
    Q, R = A.copy(), np.zeros((A.shape[1],) * 2)
    for k in range(A.shape[1]):
        for j in range(k):
            R[j, k] = Q[:, j] @ Q[:, k]
            Q[:, k] = Q[:, k] - R[j, k] * Q[:, j]
            yield f"Take from column {k + 1} its projection on q{j + 1}, computed from what is left of it.", Q, R
        _normalise(Q, R, k)
        yield f"Divide what is left of column {k + 1} by its length.", Q, R


def householder(A: np.ndarray) -> Iterator[State]:
    """Yield states of Householder QR: a reflection I - 2 v v^T per column clears what is below the diagonal."""
    m, n = A.shape
    Q, R = np.eye(m), A.copy()
    for k in range(min(n, m - 1)):
        v = R[k:, k].copy()
        v[0] += np.copysign(np.linalg.norm(v), v[0])
        v /= np.linalg.norm(v) or 1.0
        R[k:] -= 2 * np.outer(v, v @ R[k:])
        Q[:, k:] -= 2 * np.outer(Q[:, k:] @ v, v)
        R[k + 1 :, k] = 0.0
        yield f"Reflect, so that column {k + 1} has nothing below the diagonal; Q collects the reflections.", Q[:, :n], R[:n]


def givens(A: np.ndarray) -> Iterator[State]:
    """Yield states of Givens QR: each rotation of two rows clears one entry, from the bottom up."""
    m, n = A.shape
    Q, R = np.eye(m), A.copy()
    for k in range(n):
        for i in range(m - 1, k, -1):
            length = np.hypot(R[i - 1, k], R[i, k])
            c, s = (R[i - 1, k] / length, R[i, k] / length) if length else (1.0, 0.0)
            turn = np.array([[c, s], [-s, c]])
            R[[i - 1, i]] = turn @ R[[i - 1, i]]
            Q[:, [i - 1, i]] = Q[:, [i - 1, i]] @ turn.T
            R[i, k] = 0.0
            yield f"Turn rows {i} and {i + 1}, so that row {i + 1} of column {k + 1} becomes 0.", Q[:, :n], R[:n]


METHOD_OF: dict[str, Method] = dict(zip(METHODS, (classical, modified, householder, givens), strict=True))
STEP_COUNT = {"classical": 5, "modified": 6, "Householder": 3, "Givens": 6}
"""How many steps each method takes on the small matrix."""


def factors(method: str, A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return Q (m, n) and upper triangular R (n, n) of A (m, n), m >= n, by one of the four methods."""
    _, Q, R = deque(METHOD_OF[method](np.asarray(A, dtype=np.float64)), maxlen=1).pop()
    return Q, R


def laeuchli(kappa: float) -> np.ndarray:
    """Return the 4 x 3 matrix with ones above e times the identity, e such that sqrt(3 + e^2) / e = kappa (kappa > 1)."""
    e = np.sqrt(3 / (kappa**2 - 1))
    return np.vstack([np.ones(3), e * np.eye(3)])


def conditioned(kappa: float, size: tuple[int, int], seed: int) -> np.ndarray:
    """Return U diag(1 ... 1 / kappa) V^T, (m, n), with random orthonormal U and V and singular values evenly spaced in log."""
    rng = np.random.default_rng(seed)
    m, n = size
    U, V = (np.linalg.qr(rng.standard_normal(shape))[0] for shape in ((m, n), (n, n)))
    return U * np.logspace(0, -np.log10(kappa), n) @ V.T


@uses("method", "kappa")
def steps(params: ProjectionsParams, on_step: OnStep = silent) -> StepsResult:
    """Return every state of one method on the small matrix; at kappa 10^0, where it cannot be had, a condition of 1.1 is taken."""
    kappa = max(10.0**params.kappa, 1.1)
    A = laeuchli(kappa)
    rows = {"Householder": (np.eye(4, 3), A[:3]), "Givens": (np.eye(4, 3), A[:3])}
    found = [("Nothing is done yet.", *rows.get(params.method, (A, np.zeros((3, 3)))))]
    found += [(said, Q.copy(), R.copy()) for said, Q, R in METHOD_OF[params.method](A)]
    Q, R = found[-1][1:]
    loss, residual = measure(A, Q, R)
    states = tuple(Step(said, frozen(Q), frozen(R)) for said, Q, R in found)
    return StepsResult(params.method, frozen(A), kappa, states, frozen(Q.T @ Q), loss, residual)


def steps_sentence(result: StepsResult) -> str:
    """Return in words what a method has lost at the end."""
    angle = np.degrees(np.arccos(np.clip(result.gram[1, 2] / max(np.sqrt(result.gram[1, 1] * result.gram[2, 2]), 1e-300), -1, 1)))
    return (
        f"At the end |QᵀQ − I| = {result.loss:.1e} and |A − QR| / |A| = {result.residual:.1e}: Q and R multiply back to A whatever is lost. "
        f"q2 and q3 stand at {angle:.6g}° where 90° are meant."
    )


def measure(A: np.ndarray, Q: np.ndarray, R: np.ndarray) -> tuple[float, float]:
    """Return |Q^T Q - I|_2 and |A - Q R|_2 / |A|_2."""
    loss = np.linalg.norm(Q.T @ Q - np.eye(Q.shape[1]), 2)
    return float(loss), float(np.linalg.norm(A - Q @ R, 2) / np.linalg.norm(A, 2))


@uses()
def losses(params: ProjectionsParams, on_step: OnStep = silent) -> LossResult:
    """Return what every method loses over seventeen condition numbers, on seeded random 24 x 12 matrices."""
    exponents = np.arange(17)
    found = np.zeros((2, len(METHODS), len(exponents)))
    for k, exponent in enumerate(exponents):
        on_step(k, len(exponents), "Orthogonalising, four ways")
        matrices = [conditioned(10.0**exponent, SIZE, seed) for seed in range(DRAWS)]
        for i, method in enumerate(METHODS):
            found[:, i, k] = np.median([measure(A, *factors(method, A)) for A in matrices], axis=0)
    rising = (exponents >= 1) & (exponents <= 7)
    slopes = [np.polyfit(exponents[rising], np.log10(found[0, i, rising]), 1)[0] for i in range(len(METHODS))]
    return LossResult(METHODS, SIZE, *(frozen(x) for x in (exponents, *found, np.array(slopes))), eps=EPS)


def loss_numbers(result: LossResult, kappa: int) -> tuple[Number, ...]:
    """Return how many digits of orthogonality each method keeps at a condition number of 10^kappa."""
    kept = -np.log10(np.clip(result.loss[:, kappa], 1e-16, 1))
    return tuple(Number(f"{name}: digits kept", float(value), None, 1, " of 16") for name, value in zip(result.methods, kept, strict=True))


def _normalise(Q: np.ndarray, R: np.ndarray, k: int) -> None:
    """Divide column k by its length; a column of which nothing is left stays zero."""
    R[k, k] = np.linalg.norm(Q[:, k])
    Q[:, k] /= R[k, k] or 1.0


def _first(k: int) -> str:
    return "q1" if k == 1 else " and ".join(f"q{j + 1}" for j in range(k)) if k == 2 else f"q1 to q{k}"
