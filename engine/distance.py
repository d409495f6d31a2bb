"""W_QK of one head as query and key move apart: what stays of its directions, slow and fast rotations told apart."""

import math
from dataclasses import dataclass

import numpy as np
import torch

from engine.circuits import circuits, rotated
from engine.device import compute_device
from engine.errors import ModelError
from engine.linalg import energy_effective_rank, gaussian_product_spectra, scaled
from engine.models.families import Rotation, rotation_of
from engine.models.weights import model_shape, read_layers
from engine.params import frozen, uses
from engine.progress import OnStep, silent
from engine.scalars import BAND
from engine.spectra import CHANCE_DRAWS, SpectraParams, check_head

PARTS = ("all", "slow", "fast")
N_DELTAS = 24
MEASURES = ("effective_rank", "sigma_1", "frobenius")


@dataclass(frozen=True)
class DistanceResult:
    """W_QK(delta) = W_Q^T R_(-delta) W_K over ``deltas`` (n,): each measure (3, n), the rows in the order of ``PARTS``.

    ``effective_rank`` is the energy definition. Slow: only dimensions whose wavelength is above ``context`` tokens, and
    those that do not rotate; fast: the others; the three matrices add up, slow + fast = all. ``dims`` (3,): dimensions in
    each. ``*_chance`` (3, 3): low, mean and high (5 to 95 %) of Gaussian factors of the same shapes and Frobenius norms, by
    part; it is the same at any distance, since a rotated Gaussian factor is a Gaussian factor. All 0 for a part without
    dimensions.
    """

    context: int
    deltas: np.ndarray
    dims: np.ndarray
    effective_rank: np.ndarray
    sigma_1: np.ndarray
    frobenius: np.ndarray
    effective_rank_chance: np.ndarray
    sigma_1_chance: np.ndarray
    frobenius_chance: np.ndarray


@uses("model", "layer", "head", "fold")
def distance_spectra(params: SpectraParams, on_step: OnStep = silent) -> DistanceResult:
    """Return the chosen head's W_QK at about 24 distances from 0 to the context, evenly spaced in their logarithm.

    From two QRs and r x r cores R_Q R_(-delta) R_K^T, all distances in one batch. Raises ModelError for a model that does
    not rotate queries and keys.
    """
    shape = model_shape(params.model)
    check_head(params, shape)
    rotation = rotation_of(shape, params.layer)
    if rotation is None:
        raise ModelError(f"This {shape.family} model does not rotate queries and keys, so W_QK is the same at every distance.")
    (heads,) = read_layers(params.model, [params.layer], on_step)
    W_Q, W_K = circuits(heads, rotation, 0, params.fold, compute_device().name).of("qk", params.head)
    masks = part_masks(rotation, shape.d_head, shape.context)
    deltas = log_spaced(shape.context - 1)
    values = _spectra(W_Q, W_K, rotation, deltas, masks)
    found = {name: frozen(values_of) for name, values_of in zip(MEASURES, _measures(values), strict=True)}
    bands = [_chance(W_Q[:, mask], W_K[mask]) for mask in masks]
    chance = {f"{name}_chance": frozen(np.stack([band[i] for band in bands])) for i, name in enumerate(MEASURES)}
    return DistanceResult(shape.context, frozen(deltas), frozen(masks.sum(-1)), **found, **chance)


def log_spaced(last: int) -> np.ndarray:
    """Return 0, then about 23 whole numbers from 1 to ``last``, evenly spaced in their logarithm as far as whole numbers can be."""
    return np.unique(np.concatenate([[0], np.rint(np.geomspace(1, max(1, last), N_DELTAS - 1)).astype(int)]))


def part_masks(rotation: Rotation, d_head: int, context: int) -> torch.Tensor:
    """Return (3, d_head): which dimensions of q and k are in each of ``PARTS``; the wavelength of a pair is 2 pi / inv_freq."""
    slow = torch.tensor([2 * math.pi > context * frequency for frequency in rotation.inv_freq])
    turning = slow.repeat_interleave(2) if rotation.interleaved else slow.repeat(2)
    slow = torch.cat([turning, torch.ones(d_head - len(turning), dtype=torch.bool)])
    return torch.stack([torch.ones_like(slow), slow, ~slow])


def _spectra(W_Q: torch.Tensor, W_K: torch.Tensor, rotation: Rotation, deltas: np.ndarray, masks: torch.Tensor) -> np.ndarray:
    """Return singular values (parts, deltas, r) of W_Q (d, r), of which the rows of a part are kept, R_(-delta) and W_K (r, d)."""
    (W_Q, by_Q), (W_K, by_K) = scaled(W_Q), scaled(W_K)
    R_Q, R_K = (torch.linalg.qr(W, mode="r").R for W in (W_Q, W_K.mT))
    turning = Rotation(rotation.n_rotary, rotation.inv_freq, rotation.interleaved)
    turned = torch.stack([rotated(R_K.mT, turning, -int(delta)) for delta in deltas])
    cores = (R_Q * masks.to(R_Q.device)[:, None, None, :]) @ turned
    return (torch.linalg.svdvals(cores) * by_Q * by_K).cpu().numpy()


def _measures(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the measures of singular values (..., r), in the order of ``MEASURES``."""
    return energy_effective_rank(values), values.max(-1), np.linalg.norm(values, axis=-1)


def _chance(A: torch.Tensor, B: torch.Tensor) -> list[np.ndarray]:
    """Return low, mean, high (3,) of each measure for Gaussian factors as large as A (d, r) and B (r, d)."""
    d, r = A.shape
    if r == 0:
        return [np.zeros(3)] * len(MEASURES)
    scale = float(torch.linalg.matrix_norm(A.double()) * torch.linalg.matrix_norm(B.double()))
    draws = _measures(scale * gaussian_product_spectra(d, r, d, CHANCE_DRAWS))
    return [np.array([np.percentile(m, BAND[0]), m.mean(), np.percentile(m, BAND[1])]) for m in draws]
