"""How much a later head reads of what an earlier head writes: Q-, K- and V-composition of all pairs of heads.

With W_OV1 of the earlier head and W_OV2, W_QK2 of the later one (column convention), each score is
|M W_OV1|_F / (|M|_F |W_OV1|_F), M = W_QK2^T (through the query), W_QK2 (through the key), W_OV2 (through the value).
Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".

Route: |M W_OV1|_F^2 is the inner product of M^T M and W_OV1 W_OV1^T. Both are symmetric, and both come from the factors by
way of r x r Grams, so blocks of their rows above the diagonal, of all heads at once, are multiplied as two tall matrices:
no d x d matrix of any head exists.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from engine.circuits import Circuits
from engine.device import map_heads
from engine.models.weights import model_shape
from engine.params import frozen, uses
from engine.progress import OnStep, silent
from engine.spectra import SpectraParams, layer_circuits

BLOCK_BYTES = 48 * 2**20
PARTS = 3


@dataclass(frozen=True)
class CompositionResult:
    """Composition scores ``q``, ``k``, ``v``, each (n_layers, n_heads, n_layers, n_heads): [earlier layer, head, later layer, head].

    In [0, 1]; 0 where the first layer is not the earlier one, or a matrix vanishes. ``chance``: 1 / sqrt(d_model), the root
    mean square over all rotations of one circuit against the other: E tr(P Q S Q^T) = tr(P) tr(S) / d for a random
    rotation Q, whatever both spectra are. Heads of Gaussian weights scatter closely around it.
    Good to 1e-6; the gain of the norm between the two heads counts only with ``fold``.
    """

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    chance: float


@uses("model", "delta", "fold")
def composition(params: SpectraParams, on_step: OnStep = silent) -> CompositionResult:
    """Return Q-, K- and V-composition of every head with every head of a later layer; W_QK at the distance asked for."""
    shape = model_shape(params.model)
    layers = [of_layer for _, of_layer in layer_circuits(params)]
    scores = composition_scores(layers, on_step)
    sizes = (shape.n_layers, shape.n_heads, shape.n_layers, shape.n_heads)
    return CompositionResult(*(frozen(scores[i].reshape(sizes)) for i in range(3)), chance=shape.d_model**-0.5)


def composition_scores(layers: list[Circuits], on_step: OnStep = silent, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return scores (3, N, N) in the order of ``engine.spectra.KINDS`` over N = n_layers * n_heads heads, [kind, earlier head, later head].

    All layers of a model, of equal shapes. The d x d side is in ``dtype``, Grams and norms always in float64: scores are
    good to 1e-6 in float32 and to 1e-12 in float64, half as many digits below a score of 1e-4. Memory beside the weights:
    four blocks of at most 48 MB, or one row of every head where that is more, and 5 (N, N) numbers.
    """
    sides = map_heads(lambda c: _sides(c, dtype), layers, at=layers[0].W_O)
    n_layers, n_heads, d = len(layers), *layers[0].W_O.shape[:2]
    edges = _edges(d, n_layers * n_heads, dtype.itemsize)
    new = lambda kind, *size: torch.zeros(size, dtype=kind, device=layers[0].W_O.device)  # noqa: E731
    squares, buffer = new(torch.float64, n_layers, 3, n_heads, n_layers, n_heads), new(dtype, 4, n_layers * n_heads * edges[1] * d)
    for done, (start, stop) in enumerate(pairwise(edges)):
        on_step(done, len(edges) - 1, "Composition of all pairs of heads, block by block")
        size, width = (n_heads, stop - start, d - start), n_layers * n_heads * (stop - start) * (d - start)
        S, P = buffer[0, :width].view(n_layers, *size), buffer[1:].flatten()[: 3 * width].view(n_layers, 3, *size)
        tasks = [(side, out) for i, of_layer in enumerate(sides) for side, out in zip(of_layer, (S[i], *P[i]), strict=True)]
        map_heads(lambda task, at=(start, stop): _rows(*task, *at), tasks, at=S)
        S[..., stop - start :] *= 2  # blocks above the diagonal stand for those below it as well
        _add_products(squares, S.flatten(-2), P.flatten(-2))
    order = new(torch.float64, n_layers, n_layers).add_(1).tril(-1)  # [later, earlier]
    scores = squares.clamp(0, 1).sqrt() * order[:, None, None, :, None]
    return scores.permute(1, 3, 4, 0, 2).reshape(3, n_layers * n_heads, n_layers * n_heads)


@dataclass(frozen=True)
class _Side:
    """Factors of a positive matrix of trace 1 for each head of a layer, (by X) G (by X)^T: X (n, d, r), by (n, 1, 1), G (n_heads, r, r)."""

    X: torch.Tensor
    by: torch.Tensor
    G: torch.Tensor


def _sides(c: Circuits, dtype: torch.dtype) -> list[_Side]:
    """Return W_OV W_OV^T, which is written, then M^T M for M = W_QK^T, W_QK, W_OV, which is read through query, key, value."""
    G_O, G_V, G_Q, G_K = (_gram(W) for W in (c.W_O.mT, c.W_V, c.W_Q, c.W_K))
    parts = ((c.W_O, G_O, G_V), (c.W_Q.mT, G_Q, G_K), (c.W_K.mT, G_K, G_Q), (c.W_V.mT, G_V, G_O))
    return [_side(X, outer, inner, len(c.W_O), dtype) for X, outer, inner in parts]


def _side(X: torch.Tensor, outer: torch.Tensor, inner: torch.Tensor, n_heads: int, dtype: torch.dtype) -> _Side:
    """Return X inner X^T scaled to trace 1, where outer = X^T X: so no scale of the weights can under- or overflow."""
    size = outer.diagonal(dim1=-2, dim2=-1).sum(-1).sqrt()[:, None, None]
    by = torch.where(size > 0, 1 / size, 0.0)
    inner, unit = _shared(inner, n_heads), _shared(outer * by**2, n_heads)
    trace = (unit * inner).sum((-2, -1), keepdim=True)
    G = torch.where(trace > 0, inner / trace, 0.0)
    return _Side(X, by.to(torch.promote_types(X.dtype, dtype)), G.to(dtype))


def _rows(side: _Side, out: torch.Tensor, start: int, stop: int) -> None:
    """Put rows start..stop, columns from start on, of a layer's matrices into ``out`` (n_heads, stop - start, d - start)."""
    tail = _shared((side.X[:, start:] * side.by).to(out.dtype), len(out))
    torch.bmm(tail[:, : stop - start] @ side.G, tail.mT, out=out)


def _add_products(squares: torch.Tensor, S: torch.Tensor, P: torch.Tensor) -> None:
    """Add one block's inner products to (later layer, kind, head, earlier layer, head), in a few tall matrix products.

    Part of each product joins layers that are not earlier and later; such large products are still the quickest.
    """
    n_layers, n_heads, size = S.shape
    parts = [n_layers * i // PARTS for i in range(PARTS + 1)]
    for a, b in pairwise(parts):
        products = P[a:b].reshape(-1, size) @ S[:b].reshape(-1, size).T
        squares[a:b, :, :, :b] += products.view(b - a, 3, n_heads, b, n_heads)


def _edges(d: int, n_heads_in_all: int, itemsize: int) -> list[int]:
    """Return where blocks of rows begin and end: as many rows as keep a block of all heads within the memory set aside."""
    rows = max(1, min(d, BLOCK_BYTES // (itemsize * d * n_heads_in_all)))
    return [*range(0, d, rows), d]


def _gram(W: torch.Tensor) -> torch.Tensor:
    """Return W W^T in float64, (n, r, r), for W (n, r, d)."""
    W = W.double()
    return W @ W.mT


def _shared(M: torch.Tensor, n_heads: int) -> torch.Tensor:
    """Return what belongs to key-value heads repeated for each of their query heads."""
    return M if len(M) == n_heads else M.repeat_interleave(n_heads // len(M), 0)


def strongest(result: CompositionResult, kind: str, count: int) -> Iterator[tuple[int, int, int, int, float]]:
    """Yield (earlier layer, head, later layer, head, score) of the ``count`` largest scores of a kind, largest first."""
    scores = getattr(result, kind)
    for index in np.argsort(scores, axis=None)[::-1][:count]:
        where = np.unravel_index(index, scores.shape)
        yield (*(int(i) for i in where), float(scores[where]))
