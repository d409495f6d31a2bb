"""Least squares is a projection, and so is PCA: of a target onto the columns of X, of the data onto their best subspace.

Source: seed 000, section 03; Eckart & Young 1936 for PCA.
"""

from dataclasses import dataclass

import numpy as np

from engine.models.weights import read_embeddings
from engine.params import Number, frozen, uses
from engine.progress import OnStep, silent
from engine.subspaces.drag import mean_length
from engine.subspaces.params import ProjectionsParams

RANDOM_DRAWS = 8


@dataclass(frozen=True)
class FitResult:
    """A polynomial of least squares through points (x, y), each (n,), as the projection of y onto the columns 1, x, x^2, ...

    ``coefficients`` (degree + 1,) from the constant up; ``fitted`` = P y and ``residual`` = y - P y, (n,). ``cosines``
    (degree + 1,): |x^j . residual| / (|x^j| |y|), 0 but for rounding. ``kept``: |P y|^2 / |y|^2, ``chance_kept`` rank / n: the
    mean over random directions of y. ``rank`` of the columns; below degree + 1 if too few points differ in x.
    """

    x: np.ndarray
    y: np.ndarray
    coefficients: np.ndarray
    fitted: np.ndarray
    residual: np.ndarray
    cosines: np.ndarray
    kept: float
    chance_kept: float
    rank: int
    said: tuple[str, ...]


@dataclass(frozen=True)
class EmbeddingResult:
    """Share of the energy of the centred token embeddings, (vocab, d_model), that is lost by projecting onto k directions.

    Each (d_model + 1,) over k = 0 .. d_model: ``pca`` the principal directions, the least possible; ``random`` the mean over
    random subspaces, 1 - k / d_model; ``axes`` the first k coordinates. ``checked``: the loss at ``rank``, measured by
    projecting every embedding. ``orthogonality``: the largest |P e . (e - P e)| / |e|^2 among them.
    """

    model: str
    vocab_size: int
    d_model: int
    pca: np.ndarray
    random: np.ndarray
    axes: np.ndarray
    rank: int
    checked: float
    orthogonality: float


@uses("points", "degree")
def fit(params: ProjectionsParams, on_step: OnStep = silent) -> FitResult:
    """Return the polynomial of least squares through the points, by an SVD of its columns, so that dependent columns do no harm."""
    x, y = np.array(params.points).reshape(-1, 2).T
    X = x[:, None] ** np.arange(params.degree + 1)
    coefficients, _, rank, _ = np.linalg.lstsq(X, y, rcond=None)
    fitted = X @ coefficients
    residual, size = y - fitted, np.linalg.norm(y)
    lengths = np.linalg.norm(X, axis=0) * size
    cosines = np.divide(np.abs(X.T @ residual), lengths, out=np.zeros_like(lengths), where=lengths > 0)
    said = ()
    if rank <= params.degree:
        said = (f"The {params.degree + 1} columns are dependent: the points have only {len(set(x))} different x. P y is still one vector.",)
    return FitResult(
        *(frozen(a) for a in (x, y, coefficients, fitted, residual, cosines)),
        kept=float((np.linalg.norm(fitted) / size) ** 2) if size else 0.0,
        chance_kept=int(rank) / len(x),
        rank=int(rank),
        said=said,
    )


def fit_numbers(result: FitResult) -> tuple[Number, ...]:
    """Return the lengths of y, of its projection and of the residual, and the share of energy kept beside a random target's."""
    y, fitted, residual = (float(np.linalg.norm(v)) for v in (result.y, result.fitted, result.residual))
    n, rank = len(result.y), result.rank
    return (
        Number("Target y, its length", y, None, 3),
        Number("Projection, the fit", fitted, y * mean_length(rank, n), 3),
        Number("Residual", residual, y * mean_length(n - rank, n), 3),
        Number("Energy kept", 100 * result.kept, 100 * result.chance_kept, 1, " %"),
    )


@uses("model", "rank")
def embeddings(params: ProjectionsParams, on_step: OnStep = silent) -> EmbeddingResult:
    """Return how much of the token embeddings k principal directions miss, beside random directions and the first coordinates."""
    on_step(0, 1, "Token embeddings")
    E = read_embeddings(params.model)[0].double().numpy()
    E = E - E.mean(0)
    d, rank = E.shape[1], min(params.rank, E.shape[1])
    eigenvalues, V = np.linalg.eigh(E.T @ E)
    total = float((E**2).sum()) or 1.0
    lost = lambda gained: frozen(np.clip(1 - np.concatenate([[0.0], np.cumsum(gained)]) / total, 0, 1))  # noqa: E731
    top = V[:, ::-1][:, :rank]
    projected = E @ top @ top.T
    left = E - projected
    sizes = np.maximum((E**2).sum(1), np.finfo(float).tiny)
    return EmbeddingResult(
        params.model,
        *E.shape,
        pca=lost(np.maximum(eigenvalues[::-1], 0)),
        random=frozen(1 - np.arange(d + 1) / d),
        axes=lost((E**2).sum(0)),
        rank=rank,
        checked=float((left**2).sum()) / total,
        orthogonality=float(np.abs((projected * left).sum(1) / sizes).max()),
    )


def embedding_numbers(result: EmbeddingResult) -> tuple[Number, ...]:
    """Return the loss at the chosen rank beside random directions, and the directions that hold 90 % of the energy."""
    ninety = int(np.argmax(result.pca <= 0.1))
    return (
        Number(f"Energy lost, {result.rank} directions", 100 * result.checked, 100 * float(result.random[result.rank]), 1, " %"),
        Number("Directions for 90 %", ninety, float(np.argmax(result.random <= 0.1 + 1e-12)), 0, f" of {result.d_model}"),
    )
