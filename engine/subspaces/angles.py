"""Where a head reads and where it writes: principal angles, and how far W_OV is from a projection.

Principal angles of two subspaces with orthonormal bases Q_1, Q_2: cos(angle_i) = sigma_i(Q_1^T Q_2) (Bjoerck & Golub 1973).
"""

from dataclasses import dataclass

import numpy as np
import torch

from engine.device import parallel_map
from engine.models.weights import LayerHeads, model_shape, read_layers
from engine.params import Number, frozen, uses
from engine.progress import OnStep, silent
from engine.subspaces.params import ProjectionsParams
from engine.subspaces.reading import check_head, head_weight, orthonormal

DRAWS = 24
READS = ("Q", "K", "V")
BAND = (5, 50, 95)


@dataclass(frozen=True)
class AnglesResult:
    """Between what each head reads (row space of W_Q, W_K, W_V) and what it writes (column space of W_O).

    ``angles`` (3, d_head) of the chosen head, degrees, ascending; ``chance_low``, ``chance_median``, ``chance_high`` (d_head,):
    random subspaces. ``overlap`` (n_layers, n_heads): mean cos^2 between W_V's and W_O's, chance d_head / d_model.
    ``not_projection`` (n_layers, n_heads): |W^2 - W|_F / |W|_F for W = W_OV, 0 for a projection; ``at_best_scale``: the same of
    c W with the c that makes it least, so that no scale is to blame; ``chance_at_best_scale``: Gaussian factors, mean; ``chance_not_projection``:
    the same, of the chosen head's size |W|_F.
    """

    layer: int
    head: int
    angles: np.ndarray
    chance_low: np.ndarray
    chance_median: np.ndarray
    chance_high: np.ndarray
    overlap: np.ndarray
    chance_overlap: float
    not_projection: np.ndarray
    at_best_scale: np.ndarray
    chance_at_best_scale: float
    chance_not_projection: float


@uses("model", "layer", "head")
def angles(params: ProjectionsParams, on_step: OnStep = silent) -> AnglesResult:
    """Return the principal angles of one head, and overlap and distance from a projection of every head of the model."""
    shape = model_shape(params.model)
    check_head(params, shape)
    overlaps, distances, chosen = [], [], None
    for layer, heads in enumerate(read_layers(params.model, on_step=on_step)):
        on_step(layer, shape.n_layers, "Angles, layer by layer")
        found = parallel_map(lambda h, of=heads: _of_head(of, h), range(shape.n_heads))
        overlaps.append([one[0] for one in found])
        distances.append([one[1] for one in found])
        if layer == params.layer:
            size = product_norm(head_weight(heads, "O", params.head), head_weight(heads, "V", params.head))
            written = orthonormal(head_weight(heads, "O", params.head))
            chosen = [principal_angles(orthonormal(head_weight(heads, name, params.head).T), written) for name in READS]
    low, median, high, scaled, sized = _chance(shape.d_model, shape.d_head, size)
    r, distances = min(len(a) for a in chosen), np.array(distances)
    return AnglesResult(
        params.layer,
        params.head,
        frozen(np.array([a[:r] for a in chosen])),
        *(frozen(x[:r]) for x in (low, median, high)),
        overlap=frozen(np.array(overlaps)),
        chance_overlap=shape.d_head / shape.d_model,
        not_projection=frozen(distances[..., 0]),
        at_best_scale=frozen(distances[..., 1]),
        chance_at_best_scale=scaled,
        chance_not_projection=sized,
    )


def angle_numbers(result: AnglesResult) -> tuple[Number, ...]:
    """Return overlap and distance from a projection of the chosen head, and the least distance of all heads, beside chance."""
    at = (result.layer, result.head)
    return (
        Number("Overlap of read and written", 100 * float(result.overlap[at]), 100 * result.chance_overlap, 1, " %"),
        Number("|W² − W| / |W|, a projection has 0", float(result.not_projection[at]), result.chance_not_projection, 2),
        Number("The same at its best scale", float(result.at_best_scale[at]), result.chance_at_best_scale, 2),
        Number("The least of all heads", float(result.at_best_scale.min()), result.chance_at_best_scale, 2),
    )


def principal_angles(P: torch.Tensor, Q: torch.Tensor) -> np.ndarray:
    """Return the angles in degrees, ascending, between the spans of two orthonormal bases (d, r) and (d, s): min(r, s) of them."""
    return np.degrees(np.arccos(torch.linalg.svdvals(P.T @ Q).clamp(0, 1).cpu().numpy()))


def distance_from_projection(A: torch.Tensor, B: torch.Tensor) -> tuple[float, float]:
    """Return |W^2 - W|_F / |W|_F for W = A B, A (d, r), B (r, d), and the same of c W for the best c; no d x d product exists.

    W^2 = A (B A) B, so with A = Q R and B^T = Q' R' both norms are those of r x r cores. At the best scale it is the sine of
    the angle between W^2 and W; 1 for W = 0 or W^2 = 0.
    """
    R, S = (torch.linalg.qr(M, mode="r").R for M in (A, B.T))
    once, twice = R @ S.T, R @ (B @ A) @ S.T
    size, squared = once.norm(), twice.norm()
    if size == 0 or squared == 0:
        return 1.0, 1.0
    cosine = float((once * twice).sum() / (size * squared))
    return float((twice - once).norm() / size), max(1 - cosine**2, 0.0) ** 0.5


def product_norm(A: torch.Tensor, B: torch.Tensor) -> float:
    """Return |A B|_F, A (d, r), B (r, d), from the r x r Gram matrices: |A B|^2 = tr(A^T A B B^T)."""
    return float(((A.T @ A) * (B @ B.T)).sum()) ** 0.5


def _of_head(heads: LayerHeads, head: int) -> tuple[float, tuple[float, float]]:
    W_O, W_V = (head_weight(heads, name, head) for name in "OV")
    cosines = torch.linalg.svdvals(orthonormal(W_V.T).T @ orthonormal(W_O))
    return float(cosines.square().mean()), distance_from_projection(W_O, W_V)


def _chance(d: int, r: int, size: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, float, float]:
    """Return the band of principal angles of random r-dimensional subspaces, and distances of Gaussian factors: at best scale, at |W| = size."""
    generator = torch.Generator().manual_seed(0)
    draw = lambda _: (torch.randn(d, r, generator=generator, dtype=torch.float64), torch.randn(r, d, generator=generator, dtype=torch.float64))  # noqa: E731
    pairs = [draw(i) for i in range(DRAWS)]
    found = parallel_map(lambda pair: principal_angles(torch.linalg.qr(pair[0])[0], torch.linalg.qr(pair[1].T)[0]), pairs)
    scaled = np.mean([distance_from_projection(*pair)[1] for pair in pairs])
    sized = np.mean([distance_from_projection(A * (size / product_norm(A, B)), B)[0] for A, B in pairs])
    return (*np.percentile(np.array(found), BAND, axis=0), float(scaled), float(sized))
