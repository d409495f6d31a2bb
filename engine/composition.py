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
from engine.models.weights import model_shape
from engine.params import frozen, uses
from engine.progress import OnStep, silent
from engine.spectra import SpectraParams, layer_circuits

KINDS = ("q", "k", "v")
BLOCK_BYTES = 192 * 2**20


@dataclass(frozen=True)
class CompositionResult:
    """Composition scores ``q``, ``k``, ``v``, each (n_layers, n_heads, n_layers, n_heads): [earlier layer, head, later layer, head].

    In [0, 1]; 0 where the first layer is not the earlier one, or a matrix vanishes. ``chance``: 1 / sqrt(d_model), the root
    mean square over all rotations of one circuit against the other: E tr(P Q S Q^T) = tr(P) tr(S) / d for a random
    rotation Q, whatever both spectra are. Heads of Gaussian weights scatter closely around it.
    Accurate to about 1e-15 / score; the gain of the norm between the two heads counts only with ``fold``.
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


def composition_scores(layers: list[Circuits], on_step: OnStep = silent) -> torch.Tensor:
    """Return scores (3, N, N) in the order of ``KINDS`` over N = n_layers * n_heads heads, [kind, earlier head, later head].

    All layers of a model, of equal shapes. Memory: some blocks of 192 MB, and (3, N, N) numbers.
    """
    n_heads, d = layers[0].W_O.shape[:2]
    squares = torch.zeros(3, len(layers) * n_heads, len(layers) * n_heads, dtype=torch.float64, device=layers[0].W_O.device)
    norms = torch.zeros(4, len(layers) * n_heads, dtype=torch.float64, device=squares.device)
    written, read = [_written(c) for c in layers], [_read(c) for c in layers]
    edges = _edges(d, len(layers) * n_heads)
    for done, (start, stop) in enumerate(pairwise(edges)):
        on_step(done, len(edges) - 1, "Composition of all pairs of heads, block by block")
        S = _rows(written, start, stop)
        norms[3] += _diagonal_sum(S, start, stop)
        for kind in range(3):
            P = _rows([factors[kind] for factors in read], start, stop)
            norms[kind] += _diagonal_sum(P, start, stop)
            P[:, :, stop - start :] *= 2  # blocks above the diagonal stand for those below it as well
            _add_products(squares[kind], S.flatten(1), P.flatten(1), n_heads)
    size = (norms[3][:, None] * norms[:3, None, :]).clamp_min(torch.finfo(torch.float64).tiny)
    return (squares.clamp_min(0) / size).sqrt().clamp_max(1)


def _add_products(squares: torch.Tensor, S: torch.Tensor, P: torch.Tensor, n_heads: int) -> None:
    """Add the inner products of one block, earlier heads by later heads, a later layer at a time."""
    for later in range(n_heads, len(S), n_heads):
        squares[:later, later : later + n_heads] += S[:later] @ P[later : later + n_heads].T


def _written(c: Circuits) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (X, G) with W_OV W_OV^T = X G X^T by head: X = W_O, G = W_V W_V^T."""
    return c.W_O, _shared(_gram(c.W_V), len(c.W_O))


def _read(c: Circuits) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return (X, G) with M^T M = X G X^T by head, for M = W_QK^T, W_QK and W_OV: what is read through query, key and value."""
    n = len(c.W_O)
    return [(c.W_Q.mT, _shared(_gram(c.W_K), n)), (c.W_K.mT, _gram(c.W_Q)), (c.W_V.mT, _gram(c.W_O.mT))]


def _rows(factors: list[tuple[torch.Tensor, torch.Tensor]], start: int, stop: int) -> torch.Tensor:
    """Return rows start..stop, columns from start on, of X G X^T of all heads: (N, stop - start, d - start), float64."""
    blocks = []
    for X, G in factors:
        tail = _shared(X[:, start:].double(), len(G))
        blocks.append((tail[:, : stop - start] @ G) @ tail.mT)
    return torch.cat(blocks)


def _edges(d: int, n_heads_in_all: int) -> list[int]:
    """Return where blocks of rows begin and end: as many rows as keep a block of all heads within the memory set aside."""
    rows = max(1, min(d, BLOCK_BYTES // (8 * d * n_heads_in_all)))
    return [*range(0, d, rows), d]


def _diagonal_sum(block: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    return block[:, :, : stop - start].diagonal(dim1=-2, dim2=-1).sum(-1)


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
