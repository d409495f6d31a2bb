"""How much a later head reads of what an earlier head writes: Q-, K- and V-composition of all pairs of heads.

With W_OV1 of the earlier head and W_OV2, W_QK2 of the later one (column convention), each score is
|M W_OV1|_F / (|M|_F |W_OV1|_F), M = W_QK2^T (through the query), W_QK2 (through the key), W_OV2 (through the value).
Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".

Route: |M W_OV1|_F^2 is the inner product of M^T M and W_OV1 W_OV1^T. Both are symmetric, and both come from the factors by
way of r x r Grams, so rows above the diagonal are enough. Each CPU thread takes a block of rows of all heads, and multiplies
what a layer reads by what all earlier layers wrote as two tall matrices: no d x d matrix of any head exists.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from engine.circuits import Circuits
from engine.device import map_heads, workers
from engine.gram import gram
from engine.models.weights import model_shape
from engine.params import frozen, uses
from engine.progress import OnStep, silent
from engine.spectra import SpectraParams, layer_circuits

BLOCK_BYTES = 24 * 2**20


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
    """Return scores (3, N, N) in the order of ``engine.spectra_params.KINDS`` over N = n_layers * n_heads heads, [kind, earlier head, later head].

    All layers of a model, of equal shapes. The d x d side is in ``dtype``, Grams and norms always in float64: scores are
    good to 1e-6 in float32 and to 1e-12 in float64, half as many digits below a score of 1e-4. Memory beside the weights:
    24 MB per CPU thread, or one row of every head where that is more, and 3 (N, N) numbers per CPU thread.
    """
    sides = map_heads(lambda c: _sides(c, dtype), layers, at=layers[0].W_O)
    n_layers, n_heads, d = len(layers), *layers[0].W_O.shape[:2]
    edges, at_once = _edges(d, (n_layers + 3) * n_heads, dtype.itemsize), workers(at=layers[0].W_O)
    new = lambda kind, *size: torch.zeros(size, dtype=kind, device=layers[0].W_O.device)  # noqa: E731
    squares = new(torch.float64, at_once, n_layers, 3, n_heads, n_layers, n_heads)
    memory = new(dtype, at_once, (n_layers + 3) * n_heads * edges[1] * d)
    blocks = list(pairwise(edges))
    for done in range(0, len(blocks), at_once):
        on_step(done, len(blocks), "Composition of all pairs of heads, block by block")
        tasks = zip(squares, memory, blocks[done : done + at_once], strict=False)
        map_heads(lambda task: _add_block(sides, *task), tasks, at=memory)
    order = new(torch.float64, n_layers, n_layers).add_(1).tril(-1)  # [later, earlier]
    scores = squares.sum(0).clamp(0, 1).sqrt() * order[:, None, None, :, None]
    return scores.permute(1, 3, 4, 0, 2).reshape(3, n_layers * n_heads, n_layers * n_heads)


@dataclass(frozen=True)
class _Side:
    """Factors of a positive matrix of trace 1 for each head of a layer, (by X) G (by X)^T: X (n, d, r), by (n, 1, 1), G (n_heads, r, r)."""

    X: torch.Tensor
    by: torch.Tensor
    G: torch.Tensor


def _sides(c: Circuits, dtype: torch.dtype) -> list[_Side]:
    """Return W_OV W_OV^T, which is written, then M^T M for M = W_QK^T, W_QK, W_OV, which is read through query, key, value."""
    G_O, G_V, G_Q, G_K = (gram(X) for X in (c.W_O, c.W_V.mT, c.W_Q.mT, c.W_K.mT))
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


def _add_block(sides: list[list[_Side]], squares: torch.Tensor, memory: torch.Tensor, block: tuple[int, int]) -> None:
    """Add what a block of rows gives to each inner product, (later layer, kind, head, earlier layer, head).

    Layer by layer, in the caller's memory: what the layer reads, against what all before it wrote; then what it writes.
    """
    n_layers, _, n_heads = squares.shape[:3]
    rows, columns = block[1] - block[0], sides[0][0].X.shape[1] - block[0]
    room = memory[: (n_layers + 3) * n_heads * rows * columns].view(-1, n_heads, rows, columns)
    written, read = room[:-3], room[-3:]
    for i, (writes, *reads) in enumerate(sides):
        if i > 0:
            for side, out in zip(reads, read, strict=True):
                _rows(side, out, *block)
            products = read.flatten(2).flatten(0, 1) @ written[:i].flatten(2).flatten(0, 1).T
            squares[i, :, :, :i] += products.view(3, n_heads, i, n_heads)
        _rows(writes, written[i], *block)
        written[i, ..., rows:] *= 2  # blocks above the diagonal stand for those below it as well


def _rows(side: _Side, out: torch.Tensor, start: int, stop: int) -> None:
    """Put rows start..stop, columns from start on, of a layer's matrices into ``out`` (n_heads, stop - start, d - start)."""
    tail = _shared((side.X[:, start:] * side.by).to(out.dtype), len(out))
    torch.bmm(tail[:, : stop - start] @ side.G, tail.mT, out=out)


def _edges(d: int, n_matrices: int, itemsize: int) -> list[int]:
    """Return where blocks of rows begin and end: as many rows as keep a block of all matrices within the memory set aside."""
    rows = max(1, min(d, BLOCK_BYTES // (itemsize * d * n_matrices)))
    return [*range(0, d, rows), d]


def _shared(M: torch.Tensor, n_heads: int) -> torch.Tensor:
    """Return what belongs to key-value heads repeated for each of their query heads."""
    return M if len(M) == n_heads else M.repeat_interleave(n_heads // len(M), 0)


def strongest(result: CompositionResult, kind: str, count: int) -> Iterator[tuple[int, int, int, int, float]]:
    """Yield (earlier layer, head, later layer, head, score) of the ``count`` largest scores of a kind, largest first."""
    scores = getattr(result, kind)
    for index in np.argsort(scores, axis=None)[::-1][:count]:
        where = np.unravel_index(index, scores.shape)
        yield (*(int(i) for i in where), float(scores[where]))
