"""Two heads in a row: how much every other head composes with one, and the virtual head W_OV^b W_OV^a of a pair.

Composition scores as in ``engine.composition``, for one head only, from r x r products. Source: Elhage et al. 2021, "A
Mathematical Framework for Transformer Circuits", "virtual attention heads".
"""

from dataclasses import dataclass

import numpy as np
import torch

from engine.circuits import Circuits
from engine.errors import InputError
from engine.linalg import energy_effective_rank, product_singular_values, scaled
from engine.models.weights import model_shape
from engine.params import Number, frozen, uses
from engine.progress import OnStep, silent
from engine.scalars import BAND
from engine.spectra import CHANCE_DRAWS, check_head, layer_circuits
from engine.spectra_params import KINDS, SpectraParams


@dataclass(frozen=True)
class HeadCompositionResult:
    """Composition scores of one head with every other: ``q``, ``k``, ``v`` (n_layers, n_heads), nan in its own layer.

    In earlier layers: how much the chosen head reads of what that head writes; in later ones: how much that head reads of
    what the chosen one writes. ``chance``: 1 / sqrt(d_model), the root mean square over random rotations.
    """

    layer: int
    head: int
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    chance: float


@dataclass(frozen=True)
class VirtualResult:
    """W_OV^b W_OV^a of an ``earlier`` head a and a ``later`` head b, each (layer, head): ``singular_values`` (d_head,).

    ``low``, ``median``, ``high`` (d_head,) and ``chance_rank`` (low, mean, high): the same two matrices, one turned against
    the other by a random rotation of the residual stream: 5 to 95 % over 64 seeded draws. ``scores``: q, k, v composition of
    the pair, beside ``chance`` = 1 / sqrt(d_model).
    """

    earlier: tuple[int, int]
    later: tuple[int, int]
    singular_values: np.ndarray
    effective_rank: float
    low: np.ndarray
    median: np.ndarray
    high: np.ndarray
    chance_rank: tuple[float, float, float]
    scores: dict[str, float]
    chance: float

    def numbers(self) -> tuple[Number, ...]:
        """Return the effective rank of the virtual head and the three scores of the pair."""
        rank = Number("Effective rank of the virtual head", self.effective_rank, self.chance_rank[1])
        return (rank, *(Number(f"{kind.upper()}-composition", score, self.chance, 3) for kind, score in self.scores.items()))


@uses("model", "layer", "head", "delta", "fold")
def head_compositions(params: SpectraParams, on_step: OnStep = silent) -> HeadCompositionResult:
    """Return Q-, K- and V-composition of the chosen head with every head of every other layer."""
    shape = model_shape(params.model)
    check_head(params, shape)
    layers = [of_layer for _, of_layer in layer_circuits(params)]
    chosen, scores = _one(layers[params.layer], params.head), np.full((3, shape.n_layers, shape.n_heads), np.nan)
    for layer, others in enumerate(layers):
        on_step(layer, shape.n_layers, "Composition, layer by layer")
        if layer != params.layer:
            scores[:, layer] = pair_scores(others, chosen) if layer < params.layer else pair_scores(chosen, others)
    return HeadCompositionResult(params.layer, params.head, *(frozen(s) for s in scores), chance=shape.d_model**-0.5)


@uses("model", "layer", "head", "delta", "fold", "partner", "kind")
def virtual_head(params: SpectraParams, on_step: OnStep = silent) -> VirtualResult:
    """Return the virtual head of the chosen head and its partner, whichever of them is earlier.

    Without a partner: the earlier head that composes most through ``kind``, or for a head of layer 0 the later one.
    Raises InputError for a partner that the model does not have, or that is of the same layer.
    """
    compositions = head_compositions(params, on_step)
    partner, chosen = partner_of(params, compositions), (params.layer, params.head)
    a, b = sorted([partner, chosen])
    layers = [of_layer for _, of_layer in layer_circuits(params)]
    first, second = (_one(layers[layer], head) for layer, head in (a, b))
    W_O2, W_V2, W_O1, W_V1 = (W[0].double() for W in (second.W_O, second.W_V, first.W_O, first.W_V))
    values = product_singular_values(W_O2 @ (W_V2 @ W_O1), W_V1).cpu().numpy()
    on_step(0, 1, "Random rotations of one head against the other")
    draws = _rotated_spectra(W_O2, W_V2, W_O1, W_V1)
    low, median, high = np.percentile(draws, (BAND[0], 50, BAND[1]), axis=0)
    ranks = energy_effective_rank(draws)
    by_chance = (float(np.percentile(ranks, BAND[0])), float(ranks.mean()), float(np.percentile(ranks, BAND[1])))
    scores = {kind: float(getattr(compositions, kind)[partner]) for kind in KINDS}
    spectrum = (frozen(values), float(energy_effective_rank(values)), *(frozen(v) for v in (low, median, high)))
    return VirtualResult(a, b, *spectrum, by_chance, scores, compositions.chance)


def partner_of(params: SpectraParams, compositions: HeadCompositionResult) -> tuple[int, int]:
    """Return layer and head of the partner asked for, or of the one that composes most with the chosen head."""
    scores = getattr(compositions, params.kind)
    n_layers, n_heads = scores.shape
    if n_layers == 1:
        raise InputError("This model has one layer; composition needs two.")
    if not params.partner:
        allowed = scores[: params.layer] if params.layer else scores[1:]
        layer, head = np.unravel_index(allowed.argmax(), allowed.shape)
        return int(layer) + (0 if params.layer else 1), int(head)
    layer, head = (int(part) for part in params.partner.split("."))
    if layer >= n_layers or head >= n_heads or layer == params.layer:
        accepted = f"layers 0 to {n_layers - 1} other than {params.layer}, heads 0 to {n_heads - 1}"
        raise InputError(f"The partner is layer {layer}, head {head}; accepted are {accepted}.")
    return layer, head


def pair_scores(writers: Circuits, readers: Circuits) -> np.ndarray:
    """Return (3, n), in the order of ``KINDS``: |M W_OV1|_F / (|M|_F |W_OV1|_F), n heads of one side with the only head of the other.

    |X Y W_O W_V|_F^2 = tr(Z^T G_X Z G_V) with Z = Y W_O, G_X = X^T X, G_V = W_V W_V^T: nothing larger than r x r is kept.
    """
    n = max(len(writers.W_O), len(readers.W_O))
    W_O, W_V = (_ready(W, n) for W in (writers.W_O, writers.W_V))
    O2, V2, Q2, K2 = (_ready(W, n) for W in (readers.W_O, readers.W_V, readers.W_Q, readers.W_K))
    G_O, G_V = W_O.mT @ W_O, W_V @ W_V.mT
    written, found = _inner(G_O, G_V), []
    for X, Y in ((K2.mT, Q2), (Q2.mT, K2), (O2, V2)):
        Z, G_X, G_Y = Y @ W_O, X.mT @ X, Y @ Y.mT
        squares, size = _inner(G_X @ Z, Z @ G_V), _inner(G_X, G_Y) * written
        found.append(torch.where(size > 0, squares / size, 0.0).clamp(0, 1).sqrt())
    return torch.stack(found).cpu().numpy()


def _inner(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    """Return sum_ij A_ij B_ij, which is tr(A^T B)."""
    return (A * B).sum((-2, -1))


def _ready(W: torch.Tensor, n: int) -> torch.Tensor:
    """Return factors in float64, each scaled by a power of two (no score changes), one for each of n heads."""
    W = scaled(W)[0]
    return W.repeat_interleave(n // len(W), 0)


def _one(c: Circuits, head: int) -> Circuits:
    """Return the circuits of a single head."""
    (W_O, W_V), (W_Q, W_K) = c.of("ov", head), c.of("qk", head)
    return Circuits(W_O[None], W_V[None], W_Q.mT[None], W_K[None])


def _rotated_spectra(W_O2: torch.Tensor, W_V2: torch.Tensor, W_O1: torch.Tensor, W_V1: torch.Tensor) -> np.ndarray:
    """Return singular values (draws, r) of W_O2 W_V2 Q W_O1 W_V1 for random rotations Q, drawn evenly, seeded.

    With QR factors of the four, the core is R_O2 R_V2^T C R_O1 R_V1^T with C the r x r corner of Q in both bases: the
    first r rows of an orthonormal (d, r), which the QR of a Gaussian gives.
    """
    R_O2, R_V2, R_O1, R_V1 = (torch.linalg.qr(W, mode="r").R for W in (W_O2, W_V2.mT, W_O1, W_V1.mT))
    d, r = W_O2.shape
    generator, spectra = torch.Generator().manual_seed(0), []
    for _ in range(CHANCE_DRAWS):
        Q, R = torch.linalg.qr(torch.randn(d, r, dtype=torch.float64, generator=generator))
        corner = (Q[:r] * R.diagonal().sign()).to(R_O1.device)
        spectra.append(torch.linalg.svdvals(R_O2 @ R_V2.mT @ corner @ R_O1 @ R_V1.mT))
    return torch.stack(spectra).cpu().numpy()
